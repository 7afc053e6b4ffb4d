"""What a benchmark provides: images, tasks, transforms and the stream that orders them.

Raw labels, positions and targets of classes: :mod:`lw2g.interfaces.classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs
import numpy as np
import numpy.typing as npt
from torch import Tensor

from lw2g.ground.spelling import composed_names
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.vectors import VectorFacts

__all__ = [
    "BatchAugmentation",
    "Benchmark",
    "Contents",
    "ImageSource",
    "ImageTransform",
    "IndexArray",
    "RandomTransform",
    "ReadsFiles",
    "StagedTransform",
    "Task",
    "TaskData",
    "TaskStream",
    "Transforms",
]

IndexArray: TypeAlias = npt.NDArray[np.int64]
"""Numbers of images or classes, ``[n]``."""
Contents: TypeAlias = npt.NDArray[np.bytes_]
"""Hashes of the content of images, 16 bytes each: two are equal where the images are."""
ImageTransform: TypeAlias = Callable[[Tensor], Tensor]
"""What makes of a decoded image the input of the backbone."""


class ImageSource(Protocol):
    """Images by number; decoding is lazy and calls may come from several threads or worker processes."""

    def __len__(self) -> int:
        """Return the number of images."""
        ...

    def image(self, index: int) -> Tensor:
        """Return image ``index`` decoded to RGB, uint8 [3, H, W]; H and W may differ between images.

        The tensor may share memory with the source: callers must not write into it.
        """
        ...

    @property
    def ids(self) -> Sequence[str]:
        """One stable id per image, such as a relative path or ``"train/17"``."""
        ...


@runtime_checkable
class ReadsFiles(Protocol):
    """An image source that reads files as long as a run is under way, and not only while its stream is built.

    A run asks it when a task ends: what it has learned of other images than those of its fingerprint, it does
    not keep. Wrappers of sources hand the question on.
    """

    def changed(self, indices: IndexArray) -> str | None:
        """Return the first file of some images that has changed since the stream was built; None without one.

        Args:
            indices: Numbers of the images.
        """
        ...


@attrs.frozen(kw_only=True, eq=False)
class StagedTransform:
    """A transform in two steps with an image of bytes between them; prefer it if possible.

    The framework finishes whole batches on the run's device; bytes need a quarter of the memory of floats,
    and are cached where the transform is deterministic. Called, it is an ordinary ``ImageTransform``.

    Attributes:
        pixels: Maps uint8 [3, H, W] to uint8 [3, S, S]: resize and crop; alone may be random.
        finish: Maps uint8 [..., 3, S, S] to float32 of that shape, each value by itself and its channel, on
            any device: scale and normalise.
    """

    pixels: ImageTransform
    finish: ImageTransform

    def __call__(self, image: Tensor) -> Tensor:
        """Map uint8 [3, H, W] to float32 [3, S, S]."""
        return self.finish(self.pixels(image))


class BatchAugmentation(Protocol):
    """A random training transform of whole batches on the images' device (``run.speed = "fast"``).

    It gets its random draws as an argument. A sample's result depends on its own seed and position alone, up
    to rounding not on the rest of the batch.
    """

    @property
    def draws(self) -> int:
        """Number of uniform draws per sample."""
        ...

    def pixels(self, image: Tensor) -> Tensor:
        """Return the bytes to cache of an image, uint8 [3, H, W] -> uint8 [h, w, 3]; not random."""
        ...

    def __call__(self, images: Tensor, shapes: Tensor, draws: Tensor) -> Tensor:
        """Return network input, float32 [B, 3, S, S].

        Args:
            images: Results of :meth:`pixels`, uint8 [B, h, w, 3]; smaller ones lie in the top left corner.
            shapes: The h, w, H, W of each image, int64 [B, 4].
            draws: Uniform in [0, 1), float32 [B, draws].
        """
        ...


@attrs.frozen(kw_only=True, eq=False)
class RandomTransform:
    """A random training transform that also exists for whole batches; prefer it if possible.

    Attributes:
        image: Maps uint8 [3, H, W] to float32 [3, S, S]; draws from torch's global CPU generator. It may be
            staged.
        batch: Transforms whole batches with the same distribution.
    """

    image: ImageTransform
    batch: BatchAugmentation

    def __call__(self, image: Tensor) -> Tensor:
        """Map uint8 [3, H, W] to float32 [3, S, S]."""
        return self.image(image)


class Transforms(Protocol):
    """The transforms of decoded images to network input, for training and for testing.

    A random training transform draws from torch's global CPU generator only, which the loader seeds for each
    sample.
    """

    @property
    def train(self) -> ImageTransform:
        """Map uint8 [3, H, W] to float32 [3, S, S] for training."""
        ...

    @property
    def test(self) -> ImageTransform:
        """Map uint8 [3, H, W] to float32 [3, S, S] for testing; deterministic."""
        ...

    @property
    def train_is_deterministic(self) -> bool:
        """Whether ``train`` equals ``test``: features of training images may then be cached."""
        ...


def _index_array(values: npt.ArrayLike) -> IndexArray:
    """Return a read-only int64 vector."""
    array = np.array(values, dtype=np.int64)
    if array.ndim != 1:
        raise ValueError(f"expected a vector but got shape {array.shape}")
    array.setflags(write=False)
    return array


@attrs.frozen(kw_only=True, eq=False)
class TaskData:
    """The samples of one task in one split.

    Attributes:
        source: Where the images are; several tasks may share one source.
        indices: Numbers of the samples in the source, int64 [n].
        labels: Class positions of the samples, int64 [n].
        contents: Hashes of the samples' content, S16 [n], by which test images are compared with training
            images; None where the benchmark does not tell.

    Raises:
        ValueError: If the lengths differ or an index lies outside the source.
    """

    source: ImageSource
    indices: IndexArray = attrs.field(converter=_index_array)
    labels: IndexArray = attrs.field(converter=_index_array)
    contents: Contents | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse lists of different lengths, and indices outside of the source."""
        if self.contents is not None and len(self.contents) != len(self.indices):
            raise ValueError(
                f"expected as many contents as indices but got {len(self.contents)}, {len(self.indices)}"
            )
        if len(self.indices) != len(self.labels):
            raise ValueError(
                f"expected as many labels as indices but got {len(self.labels)}, {len(self.indices)}"
            )
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < len(self.source):
            raise ValueError(f"expected indices below {len(self.source)} but got up to {self.indices.max()}")

    def __len__(self) -> int:
        return len(self.indices)

    def changed(self) -> str | None:
        """Return the first file that has changed since the stream was built; None without one."""
        return self.source.changed(self.indices) if isinstance(self.source, ReadsFiles) else None

    @property
    def ids(self) -> tuple[str, ...]:
        """The stable ids of the samples, in order."""
        ids = self.source.ids
        return tuple(ids[index] for index in self.indices)


@attrs.frozen(kw_only=True, eq=False)
class Task:
    """One task of a stream.

    Attributes:
        index: Place in the stream, from 0.
        classes: Positions of the classes of this task: a contiguous ascending range.
        class_names: Their names, in the same order.
        train: Training samples.
        test: Test samples of what no earlier task has brought; none where the task brings nothing new.
        domain: The domain of its images; empty where the stream has no domains.

    Raises:
        ValueError: If the classes are not contiguous or a label lies outside them.
    """

    index: int
    classes: tuple[int, ...]
    class_names: tuple[str, ...] = attrs.field(converter=composed_names)
    train: TaskData
    test: TaskData
    domain: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse classes that do not follow each other, and labels of other classes."""
        if not self.classes or self.classes != tuple(range(self.classes[0], self.classes[-1] + 1)):
            raise ValueError(f"expected a contiguous range of classes but got {self.classes}")
        if len(self.class_names) != len(self.classes):
            raise ValueError(f"expected {len(self.classes)} class names but got {len(self.class_names)}")
        for split, data in (("train", self.train), ("test", self.test)):
            outside = (data.labels < self.classes[0]) | (data.labels > self.classes[-1])
            if outside.any():
                raise ValueError(
                    f"expected {split} labels of task {self.index} in {self.classes[0]}..{self.classes[-1]} "
                    f"but got {int(data.labels[outside][0])}"
                )


def _same_length_as_tasks(
    stream: TaskStream, field: attrs.Attribute[Any], value: tuple[int, ...] | None
) -> None:
    if value is not None and len(value) != len(stream.tasks):
        raise ValueError(f"expected {len(stream.tasks)} {field.name} but got {len(value)}")


@attrs.frozen(kw_only=True, eq=False)
class TaskStream:
    """A sequence of tasks.

    Attributes:
        name: Name of the benchmark, such as ``"digits"``.
        tasks: The tasks in order.
        class_order: The raw label of each position.
        class_names: The class name of each position; names are composed (:mod:`lw2g.ground.spelling`),
            whoever gave them, so that two that look the same are the same.
        targets: The target of each position, counted in the order in which the stream meets them; None where
            no class comes twice, and positions are targets.
        fingerprint: SHA-256 over sample ids, image content, labels, split, class order and task borders.
        planted_groups: The domain of each task by number, or the group it was generated from; else None.
        deviations: How this stream differs from the published one, in words for the record.
        notes: What a user should know of the data before a run, a sentence each: files that were passed over,
            folders that may be something else than they were taken for.
        vectors: Where the vectors come from that the stream holds in place of images; None of images. Its
            sources are then :class:`~lw2g.interfaces.vectors.VectorSource`.

    Raises:
        ValueError: If the tasks do not partition ``range(num_classes)`` in order.
    """

    name: str
    tasks: tuple[Task, ...]
    class_order: tuple[int, ...]
    class_names: tuple[str, ...] = attrs.field(converter=composed_names)
    fingerprint: str
    planted_groups: tuple[int, ...] | None = attrs.field(default=None, validator=_same_length_as_tasks)
    targets: tuple[int, ...] | None = None
    deviations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vectors: VectorFacts | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse tasks that leave out a position or meet it twice, and lists that do not fit them."""
        if self.targets is None and len(set(self.class_order)) != len(self.class_order):
            raise ValueError(
                "expected distinct raw labels in class_order but got a repeated one; targets say where a "
                "class comes again"
            )
        if len(self.class_names) != len(self.class_order):
            raise ValueError(f"expected {len(self.class_order)} class names but got {len(self.class_names)}")
        if tuple(task.index for task in self.tasks) != tuple(range(len(self.tasks))):
            raise ValueError("expected task indices 0, 1, ... in order")
        positions = [position for task in self.tasks for position in task.classes]
        if positions != list(range(self.num_classes)):
            raise ValueError(f"expected tasks that partition range({self.num_classes}) in order")
        if self.targets is not None:
            self._check_targets(self.targets)

    def _check_targets(self, targets: tuple[int, ...]) -> None:
        """Refuse targets that are not numbered as they first appear, or under which two classes mix."""
        if len(targets) != self.num_classes:
            raise ValueError(f"expected {self.num_classes} targets but got {len(targets)}")
        first = list(dict.fromkeys(targets))
        if first != list(range(len(first))):
            raise ValueError(f"expected targets that first appear as 0, 1, ... but got {first}")
        for what, values in (("raw label", self.class_order), ("class name", self.class_names)):
            pairs = set(zip(targets, values, strict=True))
            # as many pairs as targets: no target has two values; as many values: no two targets share one
            if len(pairs) != len(first) or len(set(values)) != len(first):
                raise ValueError(f"expected one {what} for each target and one target for each {what}")
        for task in self.tasks:
            targets_of_task = [targets[position] for position in task.classes]
            if len(set(targets_of_task)) != len(targets_of_task):
                raise ValueError(
                    f"expected distinct classes in task {task.index} but got targets {targets_of_task}"
                )

    @property
    def num_classes(self) -> int:
        """Number of positions: the classes of all tasks, one that comes again counted in each."""
        return len(self.class_order)

    @cached_property
    def class_map(self) -> ClassMap:
        """Position, target, name and raw label of all classes."""
        targets = tuple(range(self.num_classes)) if self.targets is None else self.targets
        return ClassMap(targets=targets, names=self.class_names, raw_labels=self.class_order)

    @cached_property
    def infos(self) -> tuple[TaskInfo, ...]:
        """What is known of each task before it is learned."""
        return tuple(
            TaskInfo(
                index=task.index,
                classes=task.classes,
                class_names=task.class_names,
                seen=task.classes[-1] + 1,
                num_images=len(task.train),
                targets=self.targets_of(task),
                domain=task.domain,
            )
            for task in self.tasks
        )

    @property
    def target_names(self) -> tuple[str, ...]:
        """The name of each target."""
        return self.class_map.target_names

    def targets_of(self, task: Task) -> tuple[int, ...]:
        """Return the targets of a task's classes."""
        return self.class_map.targets[task.classes[0] : task.classes[-1] + 1]


class Benchmark(Protocol):
    """What a benchmark component builds from its configuration."""

    def stream(self) -> TaskStream:
        """Load or render the data and return the task stream.

        Raises:
            DataError: If data are missing, incomplete or altered.
        """
        ...

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Transforms:
        """Return the transforms for square network input of ``image_size`` pixels.

        Args:
            image_size: Side S of the network input in pixels.
            mean: The backbone's native channel means, used when the benchmark normalises natively.
            std: The backbone's native channel standard deviations.
        """
        ...
