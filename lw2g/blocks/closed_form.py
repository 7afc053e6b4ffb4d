"""Building block: closed-form classifiers, fitted from running sums over features.

Features and labels may come in any batches and any order: the classifier is the same as for all of them at
once, up to rounding in float64. A class that comes again in a later task has sums of its own there, so that
they can be carried apart; the classifier is solved from both together. It keeps no image, has no epochs, and
draws random numbers only from its own seed. Its input is un-prompted features (in retrieval, where no set
makes them drift) or the input of a baseline's head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.carrying import Motion
from lw2g.interfaces.context import TaskInfo

__all__ = ["ClosedForm", "Cosine", "factor"]

_ROWS = 2**16
"""Rows that enter the sums at once."""


class ClosedForm(nn.Module, ABC):
    """A classifier that is solved in closed form; a checkpoint holds its buffers.

    Attributes:
        count: Number of features of each class, ``[num_classes]`` int64.
        likelihood: Whether scores are log likelihoods up to a term that all classes share, so that their
            softmax is a posterior.
    """

    likelihood: ClassVar[bool] = False

    count: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(num_classes, dtype=torch.int64))
        self._targets = list(range(num_classes))
        self._solved: tuple[object, tuple[Tensor, ...]] | None = None

    def begin_task(self, task: TaskInfo) -> None:
        """Note which targets the classes of a task have: classes of one target are solved as one."""
        for position, target in zip(task.classes, task.targets, strict=True):
            self._targets[position] = target
        self._solved = None

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor, owner: int = 0) -> None:
        """Add features ``[n, dim]`` of images with labels ``[n]``, measured under the set ``owner``."""
        if not len(features):
            return
        # in parts: all rows of a very large task in float64 would take more memory than anything else
        for rows, own in zip(torch.split(features, _ROWS), torch.split(labels, _ROWS), strict=True):
            self._add(rows.double(), own, owner)
            self.count += torch.bincount(own, minlength=len(self.count))
        self._solved = None

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add all features of a task, and choose what is chosen once per task (by default nothing).

        Args:
            features: ``[n, dim]``.
            labels: ``[n]``.
            generator: On the CPU; draws the images that choose.
            owner: The set under which the features were measured, if classes of different sets are carried
                separately; else 0.
        """
        self.update(features, labels, owner)

    def logits(self, features: Tensor) -> Tensor:
        """Return scores of all classes of the stream, ``[B, num_classes]``; 0 for unseen ones."""
        shown = int((self.count > 0).sum())
        scores = self.scores(features, shown) if shown else features.new_zeros(len(features), 0)
        return functional.pad(scores, (0, len(self.count) - shown)).float()

    @torch.no_grad()
    def carry(self, motion: Motion, classes: Sequence[int], owner: int = 0) -> None:
        """Correct the sums of old classes for the drift of their features.

        Args:
            motion: The drift of their features.
            classes: All classes that were learned under ``owner``.
            owner: The set under which they were learned (:meth:`learn`).
        """
        if not motion.still:
            self._carry(motion, torch.as_tensor(classes, device=self.count.device), owner)
            self._solved = None

    @torch.no_grad()
    def scores(self, features: Tensor, seen: int) -> Tensor:
        """Return a score for each of the first ``seen`` classes, ``[n, seen]`` float64; the largest wins.

        Raises:
            ValueError: One of these classes has no features.
        """
        missing = (self.count[:seen] == 0).nonzero()
        if len(missing):
            raise ValueError(f"expected features of class {int(missing[0])} but got none; update with them")
        targets = self._targets[:seen]
        if self._solved is None or self._solved[0] != self._stamp(seen):
            self._solved = (self._stamp(seen), self._solve(seen))
        scores = self._score(features.double(), *self._solved[1])
        return scores if len(set(targets)) == seen else scores[:, targets]

    def bytes_of(self, classes: int) -> int:
        """Return the bytes that so many classes take; 0 if memory does not grow with classes."""
        return 0

    @property
    def targets(self) -> tuple[int, ...]:
        """The target of each class."""
        return tuple(self._targets)

    def lifted(self, features: Tensor) -> Tensor:
        """Return float64 features as the sums take them, ``[n, width]``."""
        return features

    def _pooled(self, sums: Tensor) -> Tensor:
        """Return sums of targets, given those of the first classes ``[seen, ...]``."""
        targets = self._targets[: len(sums)]
        if (size := len(set(targets))) == len(targets):
            return sums
        index = torch.tensor(targets, device=sums.device)
        return sums.new_zeros(size, *sums.shape[1:]).index_add_(0, index, sums)

    def _stamp(self, seen: int) -> object:
        return seen, self.count._version, self.count.data_ptr()

    def _of_owner(self, name: str, owner: int) -> Tensor:
        """Return the entry of an owner in a buffer ``[owners, w, w]``, a view; new owners start at zero."""
        if missing := max(owner + 1 - len(self.get_buffer(name)), 0):
            setattr(self, name, functional.pad(self.get_buffer(name), (0, 0, 0, 0, 0, missing)))
        return self.get_buffer(name)[owner]

    @abstractmethod
    def centres(self, classes: Tensor) -> Tensor:
        """Return the mean features of classes that have some, ``[n, dim]`` float64, as far as sums tell them.

        Raises:
            TypeError: Only means of random features are kept.
        """

    @abstractmethod
    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add to the sums; called before the counts are updated."""

    @abstractmethod
    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the sums of the classes of an owner."""

    @abstractmethod
    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return what :meth:`_score` needs, from the sums."""

    @abstractmethod
    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return the scores of float64 features."""


class Cosine(ClosedForm):
    """Nearest class mean by cosine; the means are those of unnormalised features.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
    """

    total: Tensor

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("total", torch.zeros(num_classes, dim, dtype=torch.float64))

    def centres(self, classes: Tensor) -> Tensor:
        """Return the means."""
        return self.total[classes] / self.count[classes, None]

    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        self.total.index_add_(0, labels, features)

    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        count = self.count[classes, None]
        self.total[classes] = motion(self.centres(classes)) * count

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        return (functional.normalize(self._pooled(self.total[:seen]), dim=-1),)

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return functional.normalize(features, dim=-1) @ solution[0].T


def factor(matrix: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix or a stack of matrices.

    Raises:
        ValueError: A matrix is singular in float64.
    """
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex((matrix + matrix.mT) / 2)
    if bool(failed.any()):
        raise ValueError(
            "expected a positive definite matrix but got a singular one; raise the shrinkage or the penalty"
        )
    return lower
