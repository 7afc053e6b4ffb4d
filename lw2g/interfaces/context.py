"""What components know: about the run when they are built, about a task while it is learned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor, nn

from lw2g.ground.spelling import composed_names
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.site import Site
from lw2g.maths.subspace import Subspace
from lw2g.vit.backbone import Backbone

__all__ = [
    "BuildContext",
    "Maker",
    "SelectsKeys",
    "TaskContext",
    "TaskInfo",
    "class_domain_ids",
    "derive_seed",
    "task_of_class",
]


def derive_seed(seed: int, *names: int | str) -> int:
    """Return a 63-bit seed for one purpose of a run, independent of every other purpose.

    >>> derive_seed(42, "task", 0) == derive_seed(42, "task", 0) != derive_seed(42, "task", 1)
    True
    """
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@attrs.frozen(kw_only=True)
class Maker:
    """A component that an option of the baseline names, with its own options.

    Attributes:
        build: Builds it from the context of its kind.
        wraps: Whether it is built around another one.
    """

    build: Callable[[Any], Any]
    wraps: bool = False


@attrs.frozen(kw_only=True)
class BuildContext:
    """The facts of a run that are known before the first task.

    Attributes:
        backbone: The frozen backbone.
        num_tasks: Number of tasks of the stream; nothing else is known of future tasks.
        num_classes: Number of classes of the whole stream.
        device: Where parameters live.
        seed: The run's seed.
        heads: The heads that the baseline's options name; a method builds one by
            :func:`lw2g.blocks.heads.closed_form`.
        carries: The carries that they name likewise.
    """

    backbone: Backbone
    num_tasks: int
    num_classes: int
    device: torch.device
    seed: int
    heads: Mapping[str, Maker] = attrs.field(factory=dict, eq=False, repr=False)
    carries: Mapping[str, Maker] = attrs.field(factory=dict, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class TaskInfo:
    """The facts of a task that are known before it is learned.

    Attributes:
        index: The task's index, from 0.
        classes: Positions of its classes in the class order.
        class_names: Names of these classes.
        seen: Number of classes of all tasks up to this one.
        num_images: Number of its training images.
        targets: What is predicted for each of its classes; by default the position itself. A class that an
            earlier task had, too, has a position of its own here and the target that it had there.
        domain: The domain of its images; empty where the stream has no domains.
    """

    index: int
    classes: tuple[int, ...]
    class_names: tuple[str, ...] = attrs.field(converter=composed_names)
    seen: int
    num_images: int
    targets: tuple[int, ...] = attrs.Factory(lambda info: info.classes, takes_self=True)
    domain: str = ""

    @property
    def class_map(self) -> ClassMap:
        """Position, target and name of its classes."""
        return ClassMap.of([self])


def task_of_class(history: Sequence[TaskInfo], device: torch.device) -> torch.Tensor:
    """Return the task of each seen class, ``[C]`` int64."""
    owners = [info.index for info in history for _ in info.classes]
    return torch.tensor(owners, dtype=torch.long, device=device)


def class_domain_ids(history: Sequence[TaskInfo], device: torch.device) -> torch.Tensor:
    """Return a number for each seen class and domain together, ``[C]`` int64, counted as they come.

    Classes with one number own the same test images. Where nothing comes again, it is the class itself.
    """
    met: dict[tuple[str, int], int] = {}
    numbers = []
    for info in history:
        for target in info.targets:
            number = met.setdefault((info.domain, target), len(met))
            numbers.append(number)
    return torch.tensor(numbers, dtype=torch.long, device=device)


class SelectsKeys(Protocol):
    """What a method may ask of the run's retrieval strategy while it learns a task."""

    def keys(self, context: TaskContext) -> Tensor | None:
        """Return the learned keys that a training batch selects, ``[K, dim]`` with gradient; None without."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class TaskContext:
    """A task once it has its set: what phases, retrieval strategies and constraints work with.

    Attributes:
        task: The task.
        history: All tasks so far, this one last.
        pool: The pool, in which this task already has its set.
        set_id: The set this task trains.
        grew: Whether the set is new; False when it is reused.
        held: Whether the set is to stay as it is: nothing trains it.
        retrieval: The run's retrieval strategy, None where the baseline makes no hard choice.
        memory: The spaces of old tasks, for constraints.
        pretrained_space: Returns the space of the un-prompted backbone's activations on the task at a site,
            for constraints.
        backbone: The frozen backbone.
        device: Where tensors live.
        seed: The run's seed.
        statistics: Gives the task's training images under the test transform, in a fixed order, as batches
            of at most the given size; may be called again and again.
        augmented: The same images under the training transform, by size and seed of its draws; None where
            it draws nothing. Call :meth:`training_images` instead.
        shuffled: The same in an order that the seed draws; None where there is no other order.
    """

    task: TaskInfo
    history: tuple[TaskInfo, ...]
    pool: Pool
    set_id: int
    grew: bool
    retrieval: SelectsKeys | None
    memory: SubspaceMemory
    pretrained_space: Callable[[Site], Subspace]
    backbone: Backbone
    device: torch.device
    seed: int
    statistics: Callable[[int], Iterable[Batch]]
    augmented: Callable[[int, int], Iterable[Batch]] | None = None
    shuffled: Callable[[int, int], Iterable[Batch]] | None = None
    held: bool = False

    def training_images(self, size: int, purpose: str, *, shuffled: bool = False) -> Iterable[Batch]:
        """Return the task's training images under the training transform, in a fixed order.

        The transform is drawn anew for every purpose, and always alike for the same one: what is computed
        from it is the same after a resume. Where it draws nothing, these are the images of ``statistics``.

        Args:
            size: Images per batch, at most.
            purpose: Unique within the task, with the epoch in it where images are drawn anew per epoch.
            shuffled: Whether in an order of their own, for what depends on which images share a batch.
        """
        images = self.augmented
        if shuffled and self.shuffled is not None:
            images = self.shuffled
        if images is None:
            return self.statistics(size)
        return images(size, derive_seed(self.seed, "task", self.task.index, purpose))

    @property
    def parameters(self) -> nn.Module:
        """The set this task trains."""
        return self.pool[self.set_id]

    def task_of_class(self) -> torch.Tensor:
        """Return the task of each seen class, ``[seen]`` int64 on the run's device."""
        return task_of_class(self.history, self.device)

    def generator(self, purpose: str) -> torch.Generator:
        """Return a CPU generator of its own for one purpose within this task."""
        generator = torch.Generator()
        generator.manual_seed(derive_seed(self.seed, "task", self.task.index, purpose))
        return generator
