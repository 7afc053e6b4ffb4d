"""What components are told: about the run when they are built, about the task while it is learned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Pool
from lw2g.vit.backbone import Backbone

__all__ = [
    "BuildContext",
    "SelectsKeys",
    "SharesOut",
    "TaskContext",
    "TaskInfo",
    "derive_seed",
    "task_of_class",
]

R = TypeVar("R")


def derive_seed(seed: int, *names: int | str) -> int:
    """Return a 63-bit seed for one purpose of a run, independent of every other purpose.

    >>> derive_seed(42, "task", 0) == derive_seed(42, "task", 0) != derive_seed(42, "task", 1)
    True
    """
    text = "/".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@attrs.frozen(kw_only=True)
class BuildContext:
    """What is known before the first task.

    Attributes:
        backbone: The frozen backbone.
        num_tasks: Number of tasks of the stream (known metadata; future data never is).
        num_classes: Number of classes of the whole stream.
        device: Where parameters live.
        seed: The run's seed.
    """

    backbone: Backbone
    num_tasks: int
    num_classes: int
    device: torch.device
    seed: int


@attrs.frozen(kw_only=True)
class TaskInfo:
    """What is known of a task before it is learned.

    Attributes:
        index: From 0.
        classes: Positions of its classes in the class order.
        class_names: Their names.
        seen: Number of classes seen once this task has arrived, its own included.
        num_images: Number of its training images.
    """

    index: int
    classes: tuple[int, ...]
    class_names: tuple[str, ...]
    seen: int
    num_images: int


def task_of_class(history: Sequence[TaskInfo], device: torch.device) -> torch.Tensor:
    """Return the task of each seen class, ``[C]`` int64; a class is of one task (:class:`TaskStream`)."""
    owners = [info.index for info in history for _ in info.classes]
    return torch.tensor(owners, dtype=torch.long, device=device)


class SelectsKeys(Protocol):
    """What a method may ask of the run's retrieval strategy while it learns a task."""

    def keys(self, context: TaskContext) -> Tensor | None:
        """Return the learned keys a training batch selects, ``[K, dim]`` with gradient; None without keys."""
        ...


class SharesOut(Protocol):
    """What lets the processes of a run each read a portion of the task's training images."""

    def __call__(self, size: int, seed: int | None, work: Callable[[Iterable[Batch]], R]) -> list[R]:
        """Return what the processes made of their portions, in the order of the images.

        Args:
            size: Images per batch, at most.
            seed: Of the training transform; None for the test transform.
            work: Makes something of some batches, one after the other.
        """
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
        retrieval: The run's retrieval strategy, None where the baseline makes no hard choice.
        backbone: The frozen backbone.
        device: Where tensors live.
        seed: The run's seed.
        statistics: Gives the task's training images under the test transform, in a fixed order, as batches
            of at most the given size; may be called again and again. What reads all of them is best done by
            :meth:`map` or :meth:`portions`, where several processes each read a part.
        augmented: The same images under the training transform, by size and seed of its draws; None where
            it draws nothing. Call :meth:`training_images` instead.
    """

    task: TaskInfo
    history: tuple[TaskInfo, ...]
    pool: Pool
    set_id: int
    grew: bool
    retrieval: SelectsKeys | None
    backbone: Backbone
    device: torch.device
    seed: int
    statistics: Callable[[int], Iterable[Batch]]
    augmented: Callable[[int, int], Iterable[Batch]] | None = None
    shared_out: SharesOut | None = None

    def portions(
        self, work: Callable[[Iterable[Batch]], R], size: int, purpose: str | None = None
    ) -> list[R]:
        """Return what is made of the task's training images, in one portion for each process of the run.

        For sums too large to be kept batch by batch; the portions come in the order of the images, and each
        process gets all of them.

        Args:
            work: Makes something of a portion, given batch by batch.
            size: Images per batch, at most.
            purpose: As for :meth:`training_images`; None for the test transform.
        """
        augmented = purpose is not None and self.augmented is not None
        if self.shared_out is None:
            given = self.statistics(size) if purpose is None else self.training_images(size, purpose)
            return [work(given)]
        return self.shared_out(size, self._seed_of(purpose) if augmented else None, work)

    def map(
        self,
        read: Callable[[Batch], R],
        size: int,
        purpose: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[R]:
        """Return what is made of each batch of the task's training images, in their order.

        The processes of a run share the batches out. A loop over :attr:`statistics` or
        :meth:`training_images` gives the same, and every process then reads all images.

        Args:
            read: Makes something of a batch; not drawing random numbers.
            size: Images per batch, at most.
            purpose: As for :meth:`training_images`; None for the test transform.
            progress: Told the number of images done, and of all.
        """

        def made(batches: Iterable[Batch]) -> list[R]:
            found, done = [], 0
            for batch in batches:
                found.append(read(batch))
                done += len(batch)
                if progress is not None:
                    progress(done, self.task.num_images)
            return found

        return [one for portion in self.portions(made, size, purpose) for one in portion]

    def training_images(self, size: int, purpose: str) -> Iterable[Batch]:
        """Return the task's training images under the training transform, in a fixed order.

        The transform is drawn anew for every purpose, and always alike for the same one: what is computed
        from it is the same after a resume. Where it draws nothing, these are the images of ``statistics``.

        Args:
            size: Images per batch, at most.
            purpose: Unique within the task, with the epoch in it where images are drawn anew per epoch.
        """
        if self.augmented is None:
            return self.statistics(size)
        return self.augmented(size, self._seed_of(purpose))

    def _seed_of(self, purpose: str | None) -> int:
        return derive_seed(self.seed, "task", self.task.index, str(purpose))

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
