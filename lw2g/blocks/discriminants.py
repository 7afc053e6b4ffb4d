"""Building block: classifiers in closed form from class means and covariances.

LDA is textbook; ``KernelDiscriminant`` is KLDA (Momeni et al., 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from lw2g.blocks.carrying import Motion, median_apart, take_shape
from lw2g.blocks.closed_form import ClosedForm, factor
from lw2g.interfaces.head import GAUSSIAN_SHRINKAGE
from lw2g.maths.few_rows import FewRows, Range, few_rows
from lw2g.maths.normal_equations import ROWS_OF_WIDE, WIDE_SUMS, add_products, products

__all__ = ["ClassMoments", "Discriminant", "KernelDiscriminant", "require_moments"]


class ClassMoments(ClosedForm):
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

    def _scatter_of(self, label: int, owner: int) -> Tensor | None:
        """Return the scatter ``[dim, dim]`` that a class adds to, a view; None where rows stand for it."""
        return self.scatter[label]

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Merge the means and scatters of features into those of their classes."""
        for label in torch.unique(labels).tolist():
            rows = features[labels == label]
            centre = rows.mean(0)
            old = int(self.count[label])  # without these rows: counts are raised after sums
            step = centre - self.mean[label]
            scatter = self._scatter_of(label, owner)
            if scatter is not None:
                # of the rows about their own mean, then of both means about the common one
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


class Discriminant(ClassMoments):
    """Linear discriminant analysis: class means and one covariance, equal priors.

    The score of class c is ``m_c P z - m_c P m_c / 2`` with P the inverse of the shrunk covariance: its log
    likelihood up to a term that all classes share. There is one scatter per owner of classes, so that each
    can be carried exactly; their sum gives the covariance.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        shrinkage: Share of the covariance that a multiple of the identity with equal trace replaces.

    Attributes:
        few: The rows whose scatter ``scatter`` has not, as long as they are few; None where ``dim`` is small.
        scatter: ``[owners, dim, dim]`` float64; no owner as long as all rows are in ``few``.
    """

    likelihood = True
    exact = True

    few: FewRows | None

    def __init__(self, dim: int, num_classes: int, shrinkage: float = GAUSSIAN_SHRINKAGE) -> None:
        few = few_rows(dim)
        super().__init__(dim, num_classes, 1 if few is None else 0)
        self.register_module("few", few)
        self.shrinkage = shrinkage
        # of another share, scores are not the distances that lw2g computes: without_each has the share
        self.nearest_gaussian = shrinkage == GAUSSIAN_SHRINKAGE

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Merge means and scatters of features into those of their classes; keep few wide ones as rows."""
        few = self.rows_in_range()
        if few is not None and (owner or not few.has_room(len(features))):
            self.of_owner("scatter", owner)
        if len(self.scatter) and self.mean.shape[1] > WIDE_SUMS:
            self._add_wide(features, labels, owner)
        else:
            super().add(features, labels, owner)
        # with the means that they have moved: a scatter is formed about these
        if few is not None and not len(self.scatter):
            few.add(features, labels)

    def _add_wide(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Merge the scatters of all classes at once: one product for each would be of the width squared."""
        counts = torch.bincount(labels, minlength=len(self.count)).double()
        sums = torch.zeros_like(self.mean).index_add_(0, labels, features)
        centres = sums / counts.clamp(min=1)[:, None]
        share = counts / (self.count + counts).clamp(min=1)
        step = (centres - self.mean) * (counts > 0)[:, None]
        # of the rows about their own mean, then of both means about the common one
        between = step * (self.count * share).sqrt()[:, None]
        own = zip(torch.split(features, ROWS_OF_WIDE), torch.split(labels, ROWS_OF_WIDE), strict=True)
        away = (rows - centres[classes] for rows, classes in own)
        known = (self.count > 0) & (counts > 0)
        add_products(self.of_owner("scatter", owner), chain(away, [between[known]]))
        self.mean += step * share[:, None]

    def _scatter_of(self, label: int, owner: int) -> Tensor | None:
        return self.of_owner("scatter", owner) if self.rows_in_range() is None else None

    def rows_in_range(self) -> FewRows | None:
        """Return the rows that stand in place of a scatter."""
        return None if len(self.scatter) else self.few

    def of_owner(self, name: str, owner: int) -> Tensor:
        """Return the scatter of an owner, once it is formed of the rows in its place."""
        few = self.rows_in_range()
        scatter = super().of_owner(name, owner)
        if few is not None:
            add_products(self.scatter[0], [few.rows - self.mean[few.labels]])
            few.clear()
        return scatter

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor]:
        """Return the means ``[classes, dim]`` and the pooled scatter ``[dim, dim]``."""
        return self.mean[:classes], self._whole_scatter()

    def _whole_scatter(self) -> Tensor:
        """Return the scatter of the classes of all owners, ``[dim, dim]``."""
        few = self.rows_in_range()
        if few is None:
            return self.scatter.sum(0)
        return products(few.rows - self.mean[few.labels])

    def covariance(self, classes: Tensor, owner: int) -> Tensor:
        """Return the unbiased covariance ``[dim, dim]`` within the classes of an owner."""
        freedom = (self.count[classes].sum() - len(classes)).clamp(min=1)
        return self.of_owner("scatter", owner) / freedom

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the means of classes, and the scatter of their owner."""
        scatter = self.of_owner("scatter", owner)  # about the means as they were; a view
        self.mean[classes] = motion(self.mean[classes])
        scatter.copy_(motion.scatter(scatter, self.count[classes].sum()))

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "scatter", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)

    def within(self, seen: int) -> tuple[Tensor, Tensor]:
        """Return the means of targets ``[targets, dim]`` and the shrunk covariance in them ``[dim, dim]``.

        Args:
            seen: Number of classes that have features; the first ones.
        """
        _, means, away = self._means(seen)
        scatter = self._whole_scatter()
        if len(away):
            scatter = scatter + away.T @ away
        return means, _shrunk(scatter / self._freedom(seen), self.shrinkage)

    def _freedom(self, seen: int) -> int:
        """Return the degrees of freedom of the covariance: each target has spent one image on its mean."""
        counts = self.pooled(self.count[:seen])
        return max(int(counts.sum()) - len(counts), 1)

    def _system(self, seen: int) -> tuple[Tensor, Tensor, Range | None]:
        """Return means ``[targets, D]``, shrunk covariance ``[D, D]``, and the range that they are in.

        Of few rows D is their number; else the last is None, and the others are those of :meth:`within`.
        """
        few = self.rows_in_range()
        if few is None:
            return *self.within(seen), None
        known = few.range()
        _, means, away = self._means(seen)
        inner_means = known.coordinates(self.mean)
        differences = torch.cat([known.inner - inner_means[few.labels], known.coordinates(away)])
        covariance = products(differences) / self._freedom(seen)
        return known.coordinates(means), _shrunk(covariance, self.shrinkage, self.mean.shape[1]), known

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return weights ``[dim, targets]`` and biases ``[targets]`` from one shrunk covariance."""
        means, covariance, known = self._system(seen)
        weight = torch.cholesky_solve(means.T, factor(covariance))
        bias = -0.5 * (means * weight.T).sum(1)
        return weight if known is None else known.spread(weight), bias

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor:
        """Return minus half the squared distances by means and covariance without each row, ``[n, targets]``.

        Let z be a row of a target of n images, d = z - m, and f the degrees of freedom of the covariance S.
        Without z the target's mean is ``n / (n - 1) d`` away from it, and the covariance is
        ``f / (f - 1) (S - w d d')`` with ``w = n / (n - 1) (1 - shrinkage) / f``. By Sherman and Morrison
        x' S^-1 x then grows by ``w (x' S^-1 d)^2 / (1 - w d' S^-1 d)``. The added diagonal stays.
        """
        counts, _, _ = self._means(seen)
        means, covariance, known = self._system(seen)
        lower = factor(covariance)
        targets = torch.tensor(self._targets[:seen], device=labels.device)[labels]
        # about one of the means: differences alone count, and numbers stay small
        rows = self.lifted(features)
        if known is not None:
            rows = known.coordinates(rows)
        rows = rows - means[0]
        white = torch.linalg.solve_triangular(lower, rows.T, upper=False).T
        centres = torch.linalg.solve_triangular(lower, (means - means[0]).T, upper=False).T
        to_own = white - centres[targets]  # L^-1 d with S = L L'
        own_square = to_own.square().sum(1)
        # of z - m_c for all targets c: squared distances, and products with d
        squares = white.square().sum(1)[:, None] - 2 * white @ centres.T + centres.square().sum(1)
        products = (white * to_own).sum(1)[:, None] - to_own @ centres.T
        freedom = self._freedom(seen)
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
        shrinkage: float = GAUSSIAN_SHRINKAGE,
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


def require_moments(raw: Discriminant | None) -> Discriminant:
    """Return ``raw``, the moments of features before they were lifted, which a classifier keeps if carried.

    Raises:
        TypeError: It is None: the classifier keeps moments of random features alone.
    """
    if raw is None:
        raise TypeError("expected a classifier with moments to carry; make it with carried=True")
    return raw


def _shrunk(covariance: Tensor, share: float, width: int | None = None) -> Tensor:
    """Return a covariance whose share is replaced by a multiple of the identity with equal trace.

    Args:
        covariance: ``[D, D]``.
        share: The share.
        width: Width of the features where D are coordinates in the range of the rows; None for D.
    """
    level = covariance.diagonal().mean() * (len(covariance) / (width or len(covariance)))
    # classes of one image each have no covariance: the identity leaves the Euclidean distance
    level = torch.where(level > 0, level.clamp(min=torch.finfo(torch.float64).tiny), torch.ones_like(level))
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - share) * covariance + share * level * eye
