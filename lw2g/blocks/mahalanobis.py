"""Building block: nearest class mean by the covariance of each class.

It is FeCAM's (Goswami et al., NeurIPS 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.carrying import Motion, take_shape
from lw2g.blocks.closed_form import factor
from lw2g.blocks.discriminants import ClassMoments

__all__ = ["Mahalanobis"]

_CLASSES = 64
"""Classes scored at once: all classes of a long stream would take as much memory as their covariances."""


class Mahalanobis(ClassMoments):
    """Nearest class mean by Mahalanobis distance, with one shrunk correlation matrix per class (FeCAM).

    Features are normalised to length 1 before their means are taken. There is no determinant and no prior:
    the score is ``-(z - m_c) R_c^-1 (z - m_c)``. A class is solved when it is first asked for, and again only
    if its own sums have changed since: a stream of C classes takes C factorisations, not their number summed
    over its tasks.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        diagonal: Multiple of the mean variance to add to the diagonal.
        off_diagonal: Multiple of the mean covariance between two features to add to all other entries; FeCAM
            has 10 for both on ImageNet-R.

    Attributes:
        scatter: ``[classes so far, dim, dim]`` float64; it grows as classes come. States that an earlier
            lw2g wrote have room for all classes of the stream, and are read as they are.
        length: Sum of the lengths of each class's features, ``[num_classes]`` float64.
    """

    exact = True
    class_rows = True

    length: Tensor

    def __init__(self, dim: int, num_classes: int, diagonal: float = 1.0, off_diagonal: float = 0.0) -> None:
        super().__init__(dim, num_classes, 0)
        self.register_buffer("length", torch.zeros(num_classes, dtype=torch.float64))
        self.diagonal = diagonal
        self.off_diagonal = off_diagonal
        # Cholesky factors of targets, in blocks of _CLASSES, and the classes that each one was solved from
        self._factors: list[Tensor] = []
        self._solved_from: dict[int, tuple[int, ...]] = {}

    def bytes_of(self, classes: int) -> int:
        """Return the bytes of the scatters and of the factors solved from them for so many classes."""
        dim = self.mean.shape[1]
        return 2 * classes * dim * dim * self.mean.element_size()

    def lifted(self, features: Tensor) -> Tensor:
        """Return features of length 1."""
        return functional.normalize(features, dim=-1)

    def centres(self, classes: Tensor) -> Tensor:
        """Return the means of normalised features at the mean length of their class."""
        return self.length[classes, None] / self.count[classes, None] * self.mean[classes]

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add normalised features and their lengths."""
        self.of_owner("scatter", int(labels.max()))  # room for all classes that come, at once
        self._forget(labels.tolist())
        self.length.index_add_(0, labels, features.norm(dim=-1))
        super().add(self.lifted(features), labels, owner)

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move means and scatters of normalised features at the mean length of their class.

        Exact where a drift turns or scales all features; else to first order about the mean.
        """
        self._forget(classes.tolist())
        count = self.count[classes, None]
        length = self.length[classes, None] / count
        mean = motion(self.centres(classes))
        # the mean length that images of the class have now: what is kept are means of rows of length 1
        growth = mean.norm(dim=-1, keepdim=True) / self.mean[classes].norm(dim=-1, keepdim=True)
        self.mean[classes] = mean / growth
        self.length[classes] = (count * growth).squeeze(1)
        raw = self.scatter[classes] * length.square()[..., None]
        self.scatter[classes] = motion.scatter(raw, count[..., None]) / growth.square()[..., None]

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return the means of targets, ``[targets, dim]``, and blocks of factors, ``[_CLASSES, dim, dim]``.

        Factors are Cholesky's, of correlation matrices; what has not changed is not factored again.
        """
        counts, means, away = self._means(seen)
        classes_of: dict[int, list[int]] = {}
        for label, target in enumerate(self._targets[:seen]):
            classes_of.setdefault(target, []).append(label)
        for target, classes in classes_of.items():
            if self._solved_from.get(target) == tuple(classes):
                continue
            scatter = self.scatter[classes].sum(0)
            if len(away):
                scatter += away[classes].T @ away[classes]
            covariance = scatter / (counts[target] - 1).clamp(min=1)
            self._room_for(target).copy_(self._factor_of(covariance))
            self._solved_from[target] = tuple(classes)
        return (means, *self._factors)

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor:
        """Return scores ``[n, targets]``, in which a row does not count for its own target.

        A target of n images has the mean m, the covariance S and the correlation ``R = s S s`` (s a
        diagonal). Without the row z, and with ``d = z - m``, the others' mean is ``n / (n - 1) d`` away from
        z, and ``R' = R - n / (n - 1)^2 (s d)(s d)'``. The divisor n - 1 of S, its shrinkage and s stay as
        they are.
        """
        scores = self.score(features, *self.solution(seen))
        rows = self.lifted(features)
        counts, means, away = self._means(seen)
        of_class = torch.tensor(self._targets[:seen], device=labels.device)
        targets = of_class[labels]
        for target in torch.unique(targets).tolist():
            classes = of_class == target
            scatters = self.scatter[:seen][classes]
            scale = self._correlation_scale(scatters, away[classes] if len(away) else away, counts[target])
            members = (targets == target).nonzero()[:, 0]
            to_mean = rows[members] - means[target]  # d, [members, dim]
            # with R = L L', x' R^-1 y is the product of L^-1 x and L^-1 y
            lower = self._room_for(target)
            white = torch.linalg.solve_triangular(lower, to_mean.T, upper=False)
            scaled = torch.linalg.solve_triangular(lower, (to_mean * scale).T, upper=False)
            farther = float(counts[target]) / float(counts[target] - 1)  # n / (n - 1)
            weight = farther / float(counts[target] - 1)  # n / (n - 1)^2
            # (R - w v v')^-1 = R^-1 + w R^-1 v v' R^-1 / (1 - w v' R^-1 v), Sherman and Morrison
            denominator = (1 - weight * scaled.square().sum(0)).clamp(min=torch.finfo(torch.float64).eps)
            distances = white.square().sum(0) + weight * (white * scaled).sum(0).square() / denominator
            scores[members, target] = -(farther**2) * distances
        return scores

    def _correlation_scale(self, scatters: Tensor, away: Tensor, count: Tensor) -> Tensor:
        """Return s ``[dim]``, by which the shrunk covariance S of a target becomes a correlation s S s.

        Args:
            scatters: Scatter of each of its classes about its mean, ``[classes, dim, dim]``.
            away: Scaled differences of their means, as of :meth:`_means`, ``[classes, dim]``; no row where
                a target has one class.
            count: Number of its images.
        """
        variance = scatters.diagonal(dim1=1, dim2=2).sum(0)
        if len(away):
            variance = variance + away.square().sum(0)
        variance = variance / (count - 1).clamp(min=1)
        return (variance + self._added_to(variance)).rsqrt()

    def _added_to(self, variance: Tensor) -> Tensor:
        """Return what is added to each variance of a class; one of one image keeps Euclidean distances."""
        return self.diagonal * variance.mean().clamp(min=torch.finfo(torch.float64).tiny)

    def _factor_of(self, covariance: Tensor) -> Tensor:
        """Return the Cholesky factor of the correlation matrix of a shrunk covariance, ``[dim, dim]``.

        FeCAM's shrinkage adds a multiple of the mean variance to the diagonal, and a multiple of the mean of
        all other entries to these.
        """
        variance = covariance.diagonal()
        shrunk = covariance + torch.diag(self._added_to(variance).expand_as(variance))
        if self.off_diagonal and len(variance) > 1:
            mean_of_others = (covariance.sum() - variance.sum()) / (len(variance) * (len(variance) - 1))
            # added everywhere, and taken off the diagonal again
            shrunk = shrunk + self.off_diagonal * mean_of_others
            shrunk.diagonal().sub_(self.off_diagonal * mean_of_others)
        scale = shrunk.diagonal().rsqrt()
        return factor(shrunk * scale[:, None] * scale)

    def _room_for(self, target: int) -> Tensor:
        """Return the place of a target's factor, a view ``[dim, dim]``."""
        block, place_in_block = divmod(target, _CLASSES)
        dim = self.mean.shape[1]
        while len(self._factors) <= block:
            # a block is touched, and takes memory, only as far as it is filled
            self._factors.append(self.mean.new_empty(_CLASSES, dim, dim))
        return self._factors[block][place_in_block]

    def _forget(self, classes: Iterable[int]) -> None:
        """Drop what was solved for the targets of some classes."""
        for label in set(classes):
            self._solved_from.pop(self._targets[label], None)

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return negated Mahalanobis distances."""
        means = solution[0]
        factors = solution[1:]
        rows = self.lifted(features)
        distances = []
        # not strict: blocks may be solved of more classes than are asked for
        for mean, block in zip(torch.split(means, _CLASSES), factors, strict=False):
            differences = (rows - mean[:, None]).mT  # [classes, dim, n]
            white = torch.linalg.solve_triangular(block[: len(mean)], differences, upper=False)
            distances.append(white.square().sum(1))
        return -torch.cat(distances).T

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "scatter", state, prefix)
        self._solved_from.clear()
        super()._load_from_state_dict(state, prefix, *others)

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> Self:
        """Drop what was solved, too: it may lie on another device now."""
        self._factors.clear()
        self._solved_from.clear()
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved
