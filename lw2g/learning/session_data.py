"""The half of a session that is learned from: the stream, its images, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import attrs

from lw2g.config.settings import RunConfig
from lw2g.disk.protocol import noted_facts
from lw2g.errors import ConfigError
from lw2g.interfaces.stream import RandomTransform, TaskData, TaskStream, Transforms
from lw2g.learning.evaluator import Evaluator
from lw2g.pixels.image_set import ImageSet
from lw2g.pixels.image_vectors import VectorSet
from lw2g.pixels.pixels import Originals
from lw2g.pixels.shared import notes_on
from lw2g.pixels.shared_words import SharedImages
from lw2g.pixels.streams import Source
from lw2g.pixels.workers import Workers
from lw2g.runtime.engine import Engine
from lw2g.vit.backbone import Backbone

__all__ = ["RunData", "require_images"]


@attrs.frozen(kw_only=True, eq=False)
class RunData:
    """The data of a run.

    All sources use the transforms of the first one, because a model sees all images alike.

    Attributes:
        stream: The tasks, of all sources one after another.
        sources: Where they come from; the configuration's benchmark first.
        transforms: Those of the first source.
        held_back: Each task's images that a mix or a temperature is fitted to, which the stream no longer
            has; None where a task has none.
        shared: Test images that are training images, too; None where the benchmark does not tell.
        options: How images are decoded, kept and batched.
        backbone: What computes queries.
        engine: Device and precision.
        query_norm: Whether queries are taken after the final norm.
        workers: Processes that decode and augment images; None: this one does.
    """

    stream: TaskStream
    sources: tuple[Source, ...]
    transforms: Transforms
    held_back: tuple[TaskData | None, ...]
    shared: SharedImages | None
    options: RunConfig
    backbone: Backbone
    engine: Engine
    query_norm: bool
    workers: Workers | None = None

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates the test images of all tasks; keeps features between evaluations."""
        parts = [task.test for task in self.stream.tasks]
        limit = self.options.image_memory * 2**20  # the option is in MiB
        # one fixed transform reads them: kept transformed, and not as they were decoded
        images = self.image_set(Originals(parts, self.engine.device, limit=limit, keep=False), train=False)
        sizes = [len(part) for part in parts]
        options = self.options
        return Evaluator(images, sizes, options.evaluation_batch, probabilities=options.probabilities)

    @cached_property
    def noted_facts(self) -> dict[str, Any]:
        """What the record tells of the protocol and of nothing else: test images, transforms, definitions."""
        return noted_facts(self.stream, self.transforms, self.sources[0].benchmark.config)

    @property
    def ends(self) -> list[int]:
        """The number of tasks up to the end of each source."""
        # a source ends where the next one begins
        return [*(source.first for source in self.sources[1:]), len(self.stream.tasks)]

    @property
    def sample_lists(self) -> list[tuple[str, ...]]:
        """The ids of all test samples, source by source."""
        lists: list[tuple[str, ...]] = []
        for source, end in zip(self.sources, self.ends, strict=True):
            ids: list[str] = []
            for task in self.stream.tasks[source.first : end]:
                ids += task.test.ids
            lists.append(tuple(ids))
        return lists

    def changed(self, index: int, *, evaluated: bool) -> str | None:
        """Return the first file that has changed since the stream was built, of those that a task has read.

        Args:
            index: The task.
            evaluated: Whether the test images of all tasks up to it are among them.
        """
        read = [self.stream.tasks[index].train, self.held_back[index]]
        if evaluated:
            # with that option an evaluation looks at the task after it, too
            last = index + 1 if self.options.next_domain else index
            read += [task.test for task in self.stream.tasks[: last + 1]]
        for data in read:
            file = None if data is None else data.changed()
            if file is not None:
                return file
        return None

    @property
    def notes(self) -> list[str]:
        """Notes for the user before the run, one sentence each."""
        notes = notes_on(self.stream)
        augments = not self.transforms.train_is_deterministic
        if (
            self.options.speed != "exact"
            and augments
            and not isinstance(self.transforms.train, RandomTransform)
        ):
            name = self.sources[0].benchmark.name
            notes.append(f"run.speed 'fast': benchmark {name!r} cannot augment by the batch; exact instead")
        return notes

    def image_set(self, parts: Sequence[TaskData] | Originals, *, train: bool) -> ImageSet:
        """Return images under the training or the test transform.

        Args:
            parts: One entry per task; or the originals that another image set has decoded, to share them.
            train: Under the training transform.
        """
        fixed = self.transforms.train_is_deterministic
        originals = parts if isinstance(parts, Originals) else self._originals(parts)
        if self.stream.vectors is not None:
            return VectorSet(originals, self.engine.device)
        # queries are of the same images as the loss, unless they shall be of images without augmentation
        still = None
        if train and not fixed and self.options.queries == "still":
            still = self.image_set(originals, train=False)
        return ImageSet(
            originals,
            self.transforms.train if train else self.transforms.test,
            deterministic=fixed or not train,
            fast=self.options.speed == "fast",
            backbone=self.backbone,
            engine=self.engine,
            batch_size=self.options.evaluation_batch,
            workers=self.workers,
            query_norm=self.query_norm,
            still=still,
        )

    def held_back_images(self, index: int) -> ImageSet | None:
        """Return the images that a task holds back, under the test transform; None without any."""
        images = self.held_back[index]
        if images is None:
            return None
        return self.image_set([images], train=False)

    def _originals(self, parts: Sequence[TaskData]) -> Originals:
        limit = self.options.image_memory * 2**20
        # a fixed transform's images are kept transformed; a random one needs the originals each time
        keep = not self.transforms.train_is_deterministic
        return Originals(parts, self.engine.device, limit=limit, keep=keep)


def require_images(stream: TaskStream) -> None:
    """Refuse tasks that teach nothing, or whose classes nobody can test, or whose images are tested twice.

    Raises:
        ConfigError: There is such a task.
    """
    met: set[tuple[str, int]] = set()
    for task in stream.tasks:
        # a class of another domain has test images of its own
        wanted = {(task.domain, target) for target in stream.targets_of(task)}
        tested: set[tuple[str, int]] = set()
        for label in set(task.test.labels.tolist()):
            tested.add((task.domain, stream.class_map.target(label)))
        if not len(task.train) or (wanted - met and not tested):
            raise ConfigError(
                f"benchmark: task {task.index + 1} has no training or no test images", "leave it out"
            )
        if tested & met:
            raise ConfigError(
                f"benchmark: task {task.index + 1} tests a class that an earlier task has brought",
                "give each test image to the first task with its class and domain",
            )
        met |= wanted
