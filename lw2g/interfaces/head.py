"""The contract of a head: a classifier in closed form, fitted from running sums over features.

Features and labels may come in any batches and any order: the sums are the same as for all of them at once,
up to rounding in float64. A class that comes again in a later task has sums of its own there, so that they
can be carried apart; the classifier is solved from both together. A head keeps no image, has no epochs, and
draws random numbers only from its own seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.errors import shown
from lw2g.interfaces.calibration import Temperature
from lw2g.interfaces.carry import Motion
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.declared import require_declared
from lw2g.maths.few_rows import FewRows

__all__ = ["GAUSSIAN_SHRINKAGE", "ClosedForm", "HeadContext", "heads_within"]

GAUSSIAN_SHRINKAGE = 0.01
"""Share a of the covariance S within classes in whose place distances take its mean variance v: they are by
``(1 - a) S + a v I``, with S the scatter divided by the number of images less that of classes."""

_ROWS = 2**16
"""Rows that enter the sums at once."""
_DECLARED = ("likelihood", "nearest_gaussian", "exact", "carried", "class_rows")
"""What a class declares by attributes."""


@attrs.frozen(kw_only=True)
class HeadContext:
    """What a head knows when it is built.

    Attributes:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        seed: Of everything that the head draws; the same whenever it is built again.
        features: Width that the method asks of random features (``baseline.head_features``).
        carried: Whether a carry will move its sums.
        layers: Of how many of the backbone's layers the features are joined.
        own: The columns of the features, from and up to, where the class tokens of the last layer stand; None
            for all of them.
    """

    dim: int
    num_classes: int
    seed: int
    features: int = 0
    carried: bool = False
    layers: int = 1
    own: tuple[int, int] | None = None


class ClosedForm(nn.Module, ABC):
    """A classifier that is solved in closed form; a checkpoint holds its buffers.

    A head implements :meth:`add`, :meth:`solve` and :meth:`score`, and for drifting features
    :meth:`centres` and :meth:`move`. What it declares, the framework relies on and the contract kit checks.

    Attributes:
        count: Number of features of each class, ``[num_classes]`` int64.
        likelihood: Whether scores are log likelihoods up to a term that all classes share, so that their
            softmax is a posterior.
        nearest_gaussian: Whether scores are minus half the squared distances of an image to the Gaussians of
            :meth:`class_gaussians`, up to a term that all classes share. The distances are lw2g's, by
            ``(1 - a) S + a v I``: S is the scatter divided by (images - classes), v its mean variance, and
            a = 0.01 (``GAUSSIAN_SHRINKAGE``). The temperature of probabilities is fitted to them, so a head
            that shrinks otherwise leaves it False and writes :meth:`without_each`.
        exact: Whether scores are the same to 1e-8, however the images are cut into tasks and batches.
        carried: Whether a carry can move its sums.
        class_rows: Whether every buffer has one row per class, which depends on that class alone: without
            its row a class is as if it had never been learned.
        temperature: Divides scores before a softmax, fitted to images as they come; None where nobody has
            asked for it (:meth:`fit_temperature`).
    """

    likelihood: ClassVar[bool] = False
    nearest_gaussian: bool = False
    exact: bool = False
    carried: ClassVar[bool] = False
    class_rows: ClassVar[bool] = False

    count: Tensor
    temperature: Temperature | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class that misspells what it declares."""
        super().__init_subclass__(**options)
        require_declared(cls, _DECLARED)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_module("temperature", None)
        self.register_buffer("count", torch.zeros(num_classes, dtype=torch.int64))
        self._targets = list(range(num_classes))
        self._solved: tuple[object, tuple[Tensor, ...]] | None = None

    def begin_task(self, task: TaskInfo) -> None:
        """Note which targets the classes of a task have: classes of one target are solved as one."""
        for entry in task.class_map:
            self._targets[entry.position] = entry.target
        self._solved = None

    def require(self, task: TaskInfo) -> None:
        """Refuse a run in one line where something is missing for one of its tasks (by default nothing is).

        It is asked for every task of the run before anything is written, and changes nothing.
        """

    def expect(self, task: TaskInfo) -> None:
        """Prepare for a task that is about to be learned, before any of its images is looked at.

        It raises an error of one line if anything is missing for its classes (by default nothing is).
        """

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor, owner: int = 0) -> None:
        """Add features ``[n, dim]`` of images with labels ``[n]``, measured under the set ``owner``."""
        if not len(features):
            return
        # added in parts: all rows of a large task in float64 would take more memory than anything else
        for rows, part_labels in zip(torch.split(features, _ROWS), torch.split(labels, _ROWS), strict=True):
            self.add(rows.double(), part_labels, owner)
            self.count += torch.bincount(part_labels, minlength=len(self.count))
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
        # classes come in the order of their positions, so those that were seen stand in front
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
            self.move(motion, torch.as_tensor(classes, device=self.count.device), owner)
            self._solved = None

    @torch.no_grad()
    def scores(self, features: Tensor, seen: int) -> Tensor:
        """Return a score for each of the first ``seen`` classes, ``[n, seen]`` float64; the largest wins.

        Raises:
            ValueError: One of these classes has no features.
            TypeError: :meth:`score` returned something else.
        """
        missing = (self.count[:seen] == 0).nonzero()
        if len(missing):
            raise ValueError(f"expected features of class {int(missing[0])} but got none; update with them")
        targets = self._targets[:seen]
        distinct = len(set(targets))
        returned: Any = self.score(features.double(), *self.solution(seen))
        shape = [len(features), distinct]
        found = list(returned.shape) if isinstance(returned, Tensor) else shown(returned)
        if found != shape:  # too few would be filled up as if classes were unseen
            raise TypeError(f"expected scores {shape} from score, one per image and target, but got {found}")
        scores: Tensor = returned
        if distinct == seen:
            return scores
        # a class that came again answers with the score of its target
        return scores[:, targets]

    def solution(self, seen: int) -> tuple[Tensor, ...]:
        """Return what :meth:`solve` returns; it is solved again only where the sums have changed.

        Raises:
            TypeError: It is no tuple.
        """
        stamp = self._stamp(seen)
        if self._solved is None or self._solved[0] != stamp:
            solved: Any = self.solve(seen)
            if not isinstance(solved, tuple):
                raise TypeError(f"expected a tuple of tensors from solve but got {shown(solved)}")
            self._solved = (stamp, solved)
        return self._solved[1]

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor | None:
        """Return scores of images that the sums hold, by the head without each of them alone.

        The temperature of its probabilities is fitted to them. None where no formula is known.

        Args:
            features: Some of the rows that the sums hold, ``[n, dim]`` float64.
            labels: The classes of these, ``[n]``, each of several images.
            seen: Number of classes that have features.

        Returns:
            ``[n, targets]`` float64.
        """
        return None

    def fit_temperature(self) -> None:
        """Keep a temperature from now on."""
        self.temperature = Temperature(1.0)

    @torch.no_grad()
    def observe(self, features: Tensor, labels: Tensor) -> None:
        """Fit the temperature to the rows of a task that the sums hold, each left out of them.

        Losses of earlier tasks are kept as sums, among the classes that were known by then; no row is.

        Args:
            features: ``[n, dim]``.
            labels: ``[n]``.
        """
        if self.temperature is None:
            return
        seen, targets, telling = self.telling(labels)
        if not len(telling):
            return
        scores = self.without_each(features[telling].double(), labels[telling], seen)
        if scores is not None:
            self.temperature.observe(scores, targets)

    def telling(self, labels: Tensor) -> tuple[int, Tensor, Tensor]:
        """Return how many classes have features, and of the images that can be left out targets and places.

        An image cannot be left out that is alone in its class, and says nothing where there is no other one.

        Args:
            labels: The classes of images that the sums hold, ``[n]``.
        """
        seen = int((self.count > 0).sum())
        targets = torch.tensor(self._targets[:seen], device=labels.device)
        if not len(labels) or len(torch.unique(targets)) < 2:
            return seen, labels[:0], labels[:0]
        of_images = targets[labels]
        several = (self.pooled(self.count[:seen])[of_images] > 1).nonzero()[:, 0]
        return seen, of_images[several], several

    def findings(self) -> Mapping[str, Any]:
        """Return what a run's record should hold about the head: JSON values by name; by default nothing."""
        return {}

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

    def pooled(self, sums: Tensor) -> Tensor:
        """Return sums of targets, given those of the first classes ``[seen, ...]``."""
        targets = self._targets[: len(sums)]
        distinct = len(set(targets))
        if distinct == len(targets):
            return sums
        index = torch.tensor(targets, device=sums.device)
        return sums.new_zeros(distinct, *sums.shape[1:]).index_add_(0, index, sums)

    def _stamp(self, seen: int) -> object:
        """Return what differs whenever a solution is stale.

        Loading a state dict writes into ``count``, and moving the module makes another tensor of it: either
        leaves ``_solved`` as it was.
        """
        return seen, self.count._version, self.count.data_ptr()

    def of_owner(self, name: str, owner: int) -> Tensor:
        """Return the entry of an owner in a buffer ``[owners, w, w]``, a view; new owners start at zero."""
        owners = self.get_buffer(name)
        missing = owner + 1 - len(owners)
        if missing > 0:
            # the last pair is that of the first axis
            owners = functional.pad(owners, (0, 0, 0, 0, 0, missing))
            setattr(self, name, owners)
        return owners[owner]

    def centres(self, classes: Tensor) -> Tensor:
        """Return the mean features of classes that have some, ``[n, dim]`` float64, as far as sums tell them.

        Raises:
            TypeError: They do not tell.
        """
        raise TypeError(f"{type(self).__name__} keeps no means of features")

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor] | None:
        """Return the Gaussians in the sums, of :meth:`lifted` features; None where they hold none.

        Args:
            classes: How many classes there are features of.
            widest: Width beyond which a covariance would take too long: None then, too.

        Returns:
            The means of the classes, ``[classes, width]`` float64, and the scatter within them, ``[width,
            width]``: the sum over all images of ``(z - m)(z - m)'``, m the mean of the image's class. It is
            divided by no count: a covariance in its place puts every threshold of a rejection out.
        """
        return None

    def rows_in_range(self) -> FewRows | None:
        """Return the rows of :meth:`lifted` features that stand in place of sums as long as they are few.

        None where there are sums.
        """
        return None

    @abstractmethod
    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add float64 features to the sums; called before the counts are updated."""

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the sums of the classes of an owner; only asked for if :attr:`carried`."""
        raise TypeError(f"{type(self).__name__} cannot be carried")

    @abstractmethod
    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return what :meth:`score` needs, from the sums of the first ``seen`` classes.

        It is kept until the sums change. Where several classes have one target, it has one column for them
        together (:meth:`pooled`).
        """

    @abstractmethod
    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return the scores of float64 features, ``[n, targets]`` float64; the largest wins."""


def heads_within(module: nn.Module) -> Iterator[ClosedForm]:
    """Yield the heads in closed form anywhere in a module: a method's own, an expert's, a retrieval's."""
    for part in module.modules():
        if isinstance(part, ClosedForm):
            yield part
