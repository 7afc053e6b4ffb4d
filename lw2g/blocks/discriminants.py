"""Building block: classifiers in closed form from class means and covariances.

LDA is textbook; ``Mahalanobis`` is FeCAM's (Goswami et al., NeurIPS 2023); ``KernelDiscriminant`` is KLDA
(Momeni et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.carrying import Motion, median_apart, take_shape
from lw2g.blocks.closed_form import ClosedForm, factor

__all__ = ["Discriminant", "KernelDiscriminant", "Mahalanobis", "require_moments"]

_CLASSES = 64
"""Classes scored at once: all classes of a long stream would take as much memory as their covariances."""


class _Moments(ClosedForm):
    """Class means and the scatter about them, of each class or pooled over the classes of each set."""

    carried = True

    mean: Tensor
    scatter: Tensor

    def __init__(self, dim: int, num_classes: int, scatters: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("mean", torch.zeros(num_classes, dim, dtype=torch.float64))
        self.register_buffer("scatter", torch.zeros(scatters, dim, dim, dtype=torch.float64))

    def centres(self, classes: Tensor) -> Tensor:
        """Return the means of classes, ``[n, dim]``."""
        return self.mean[classes]

    def _scatter_of(self, label: int, owner: int) -> Tensor:
        """Return the scatter ``[dim, dim]`` that a class adds to, a view."""
        return self.scatter[label]

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Merge the means and scatters of features into those of their classes."""
        for label in torch.unique(labels).tolist():
            rows = features[labels == label]
            centre = rows.mean(0)
            old = int(self.count[label])  # without these rows: counts are raised after sums
            step = centre - self.mean[label]
            scatter = self._scatter_of(label, owner)
            # the scatter of the rows about their own mean, then that of both means about the common one
            scatter += (rows - centre).T @ (rows - centre)
            scatter += torch.outer(step, step) * (old * len(rows) / (old + len(rows)))
            self.mean[label] += step * (len(rows) / (old + len(rows)))

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor]:
        """Return the means ``[classes, dim]`` and the pooled scatter ``[dim, dim]``.

        They may be of any width, because the head solves a covariance anyway.
        """
        return self.mean[:classes], self.scatter.sum(0)

    def _means(self, seen: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return counts ``[targets]`` and means ``[targets, dim]``, and differences of means ``[seen, dim]``.

        The last are of each class's mean from its target's, scaled by the square root of the class's
        count: their outer products are scatter. There is no row where each class is a target of its own.
        """
        counts = self.count[:seen]
        means = self.mean[:seen]
        pooled = self.pooled(counts)
        if len(pooled) == seen:
            return counts, means, means.new_zeros(0, means.shape[1])
        centres = self.pooled(means * counts[:, None]) / pooled[:, None]
        return pooled, centres, (means - centres[self._targets[:seen]]) * counts[:, None].double().sqrt()


class Discriminant(_Moments):
    """Linear discriminant analysis: class means and one covariance, equal priors.

    The score of class c is ``m_c P z - m_c P m_c / 2`` with P the inverse of the shrunk covariance: its log
    likelihood up to a term that all classes share. There is one scatter per owner of classes, so that each
    can be carried exactly; their sum gives the covariance.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        shrinkage: Share of the covariance that a multiple of the identity with equal trace replaces.
    """

    likelihood = True
    nearest_gaussian = True
    exact = True

    def __init__(self, dim: int, num_classes: int, shrinkage: float = 0.01) -> None:
        super().__init__(dim, num_classes, 1)
        self.shrinkage = shrinkage

    def _scatter_of(self, label: int, owner: int) -> Tensor:
        return self.of_owner("scatter", owner)

    def covariance(self, classes: Tensor, owner: int) -> Tensor:
        """Return the unbiased covariance ``[dim, dim]`` within the classes of an owner."""
        return self.scatter[owner] / (self.count[classes].sum() - len(classes)).clamp(min=1)

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the means of classes, and the scatter of their owner."""
        self.mean[classes] = motion(self.mean[classes])
        self.scatter[owner] = motion.scatter(self.scatter[owner], self.count[classes].sum())

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "scatter", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)

    def within(self, seen: int) -> tuple[Tensor, Tensor]:
        """Return the means of targets ``[targets, dim]`` and the shrunk covariance in them ``[dim, dim]``.

        Args:
            seen: Number of classes that have features; the first ones.
        """
        counts, means, away = self._means(seen)
        # each target has spent one image on its mean
        freedom = max(int(counts.sum()) - len(counts), 1)
        scatter = self.scatter.sum(0)
        if len(away):
            scatter = scatter + away.T @ away
        return means, _shrunk(scatter / freedom, self.shrinkage)

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return weights ``[dim, targets]`` and biases ``[targets]`` from one shrunk covariance."""
        means, covariance = self.within(seen)
        weight = torch.cholesky_solve(means.T, factor(covariance))
        return weight, -0.5 * (means * weight.T).sum(1)

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor:
        """Return minus half the squared distances by means and covariance without each row, ``[n, targets]``.

        Let z be a row of a target of n images, d = z - m, and f the degrees of freedom of the covariance S.
        Without z the target's mean is ``n / (n - 1) d`` away from it, and the covariance is
        ``f / (f - 1) (S - w d d')`` with ``w = n / (n - 1) (1 - shrinkage) / f``. By Sherman and Morrison
        x' S^-1 x then grows by ``w (x' S^-1 d)^2 / (1 - w d' S^-1 d)``. The added diagonal stays.
        """
        counts, _, _ = self._means(seen)
        means, covariance = self.within(seen)
        lower = factor(covariance)
        targets = torch.tensor(self._targets[:seen], device=labels.device)[labels]
        # about one of the means: differences alone count, and numbers stay small
        rows = self.lifted(features) - means[0]
        white = torch.linalg.solve_triangular(lower, rows.T, upper=False).T
        centres = torch.linalg.solve_triangular(lower, (means - means[0]).T, upper=False).T
        to_own = white - centres[targets]  # L^-1 d with S = L L'
        own_square = to_own.square().sum(1)
        # of z - m_c for all targets c: squared distances, and products with d
        squares = white.square().sum(1)[:, None] - 2 * white @ centres.T + centres.square().sum(1)
        products = (white * to_own).sum(1)[:, None] - to_own @ centres.T
        freedom = max(int(counts.sum()) - len(counts), 1)
        farther = (counts[targets] / (counts[targets] - 1)).to(own_square)  # n / (n - 1)
        weight = farther * (1 - self.shrinkage) / freedom
        denominator = (1 - weight * own_square).clamp(min=torch.finfo(torch.float64).eps)
        squares = squares + (weight / denominator)[:, None] * products.square()
        # to the own mean d' S^-1 d becomes d' S^-1 d / denominator, and d is longer
        squares.scatter_(1, targets[:, None], (farther.square() * own_square / denominator)[:, None])
        scores: Tensor = -squares * ((freedom - 1) / freedom) / 2
        return scores

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return log likelihoods up to a term that all classes share."""
        weight, bias = solution
        return features @ weight + bias


class KernelDiscriminant(Discriminant):
    """Linear discriminant analysis on random Fourier features of a Gaussian kernel (KLDA).

    The features ``sqrt(2 / D) cos(sqrt(2 s) z O + b)``, O ~ N(0, 1) and b ~ U(0, 2 pi), have inner products
    near ``exp(-s |x - y|^2)``. The first task (:meth:`learn`) fixes the bandwidth s: the inverse of the
    median squared distance between its features. Nothing can be added before.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        features: Number D of random features. The state is D x D.
        seed: Draws O and b, which are not part of the state.
        shrinkage: As for :class:`Discriminant`.
        carried: Whether the moments of the features themselves are kept, from which a carry computes those
            of random features.
    """

    likelihood = False  # Gaussians of random features are far too sure of themselves
    exact = False  # the first task fixes the bandwidth

    bandwidth: Tensor
    raw: Discriminant | None

    def __init__(
        self,
        dim: int,
        num_classes: int,
        features: int,
        seed: int,
        shrinkage: float = 0.01,
        *,
        carried: bool = False,
    ) -> None:
        super().__init__(features, num_classes, shrinkage)
        raw = None
        if carried:
            # the moments of the features themselves, which a motion moves; random features have no motion
            raw = Discriminant(dim, num_classes)
        self.register_module("raw", raw)
        # drawn on the CPU and in float64, so that every device has the same map
        draw = torch.Generator().manual_seed(seed)
        directions = torch.randn(dim, features, generator=draw, dtype=torch.float64)
        turns = torch.rand(features, generator=draw, dtype=torch.float64)
        self.register_buffer("directions", directions, persistent=False)
        self.register_buffer("phases", 2 * torch.pi * turns, persistent=False)
        self.register_buffer("bandwidth", torch.zeros((), dtype=torch.float64))

    def lifted(self, features: Tensor) -> Tensor:
        """Return random Fourier features ``[n, D]``."""
        turned = (2 * self.bandwidth).sqrt() * (features @ self.get_buffer("directions"))
        turned += self.get_buffer("phases")
        return turned.cos_().mul_((2 / turned.shape[1]) ** 0.5)

    def centres(self, classes: Tensor) -> Tensor:
        """Return the means of the features themselves."""
        return require_moments(self.raw).centres(classes)

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add all features of a task; those of the first task fix the bandwidth."""
        if not self.bandwidth:
            # features that are all equal have no distance, and any bandwidth will do
            self.bandwidth.fill_(1 / (median_apart(features) or 1.0))
        super().learn(features, labels, generator, owner)

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add random features, once a bandwidth is fixed."""
        if not self.bandwidth:
            raise ValueError("expected a bandwidth but got none; learn a whole task first")
        super().add(self.lifted(features), labels, owner)
        if self.raw is not None:
            self.raw.update(features, labels, owner)

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Set the moments to those of random features of Gaussian classes, by the characteristic function.

        Random features of x are ``sqrt(2 / D) cos(x O' + b)`` with O' = sqrt(2 s) O. Of a Gaussian with the
        mean m and the covariance S the angle has the mean t = m O' + b and the covariance K = O'^T S O'. So
        ``E cos_i = exp(-K_ii / 2) cos t_i``, and a product of two cosines is half the sum of
        cos(t_i - t_j) and cos(t_i + t_j), whose variances are K_ii + K_jj -/+ 2 K_ij.
        """
        raw = require_moments(self.raw)
        # their own moments move first: those of random features follow from where the classes have gone
        raw.carry(motion, classes.tolist(), owner)
        directions = (2 * self.bandwidth).sqrt() * self.get_buffer("directions")
        angles = raw.mean[classes] @ directions + self.get_buffer("phases")
        spread = directions.T @ raw.covariance(classes, owner) @ directions
        variance = spread.diagonal()
        weight = self.count[classes, None].double()
        cosines = angles.cos()
        sines = angles.sin()
        self.mean[classes] = (2 / len(variance)) ** 0.5 * (-variance / 2).exp() * cosines
        # over all images: cos(t_i - t_j) sums up to even + odd, cos(t_i + t_j) to even - odd
        even = cosines.T @ (weight * cosines)
        odd = sines.T @ (weight * sines)
        own = -(variance[:, None] + variance) / 2
        # the factor 2 / D of a product, times the half
        products = ((own + spread).exp() * (even + odd) + (own - spread).exp() * (even - odd)) / len(variance)
        within = products - self.mean[classes].T @ (weight * self.mean[classes])
        # kept as a scatter about estimated means, whose covariance divides by images minus classes
        freedom = 1 - len(classes) / weight.sum()
        self.of_owner("scatter", owner).copy_(freedom * within)

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return scores of random features."""
        return super().score(self.lifted(features), *solution)


class Mahalanobis(_Moments):
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


def require_moments(raw: Discriminant | None) -> Discriminant:
    """Return ``raw``, the moments of features before they were lifted, which a classifier keeps if carried.

    Raises:
        TypeError: It is None: the classifier keeps moments of random features alone.
    """
    if raw is None:
        raise TypeError("expected a classifier with moments to carry; make it with carried=True")
    return raw


def _shrunk(covariance: Tensor, share: float) -> Tensor:
    level = covariance.diagonal().mean()
    # classes of one image each have no covariance: the identity leaves the Euclidean distance
    level = torch.where(level > 0, level.clamp(min=torch.finfo(torch.float64).tiny), torch.ones_like(level))
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - share) * covariance + share * level * eye
