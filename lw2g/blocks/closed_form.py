"""Building block: classifiers in closed form, fitted from sums over features as they come.

A classifier is told features and labels in any batches and any order, and is the one that all of them at
once would give, up to rounding in float64. No image is kept, nothing is drawn but by its own seed, and there
are no epochs. They classify what they are fed: un-prompted features (for retrieval: no set can move
them) or those of a baseline's head.

Sources: LDA is textbook; ``Mahalanobis`` is FeCAM's (Goswami et al., NeurIPS 2023); ``Ridge`` is RanPAC's
(McDonnell et al., NeurIPS 2023).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ClosedForm", "Discriminant", "Mahalanobis", "Ridge"]


class ClosedForm(nn.Module, ABC):
    """A classifier that is solved for, not trained; its buffers are what a checkpoint holds.

    Attributes:
        count: Features seen of each class, ``[num_classes]`` int64.
    """

    count: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(num_classes, dtype=torch.int64))
        self._solved: tuple[object, tuple[Tensor, ...]] | None = None

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor) -> None:
        """Take in features ``[n, dim]`` of images with labels ``[n]``."""
        if len(features):
            self._add(features.double(), labels)
            self.count += torch.bincount(labels, minlength=len(self.count))
            self._solved = None

    @torch.no_grad()
    def scores(self, features: Tensor, seen: int) -> Tensor:
        """Return a score for each of the first ``seen`` classes, ``[n, seen]`` float64; the largest wins.

        Raises:
            ValueError: One of these classes was never shown.
        """
        missing = (self.count[:seen] == 0).nonzero()
        if len(missing):
            raise ValueError(f"expected features of class {int(missing[0])} but got none; update with them")
        if self._solved is None or self._solved[0] != self._stamp(seen):
            self._solved = (self._stamp(seen), self._solve(seen))
        return self._score(features.double(), *self._solved[1])

    def _stamp(self, seen: int) -> object:
        return seen, self.count._version, self.count.data_ptr()

    @abstractmethod
    def _add(self, features: Tensor, labels: Tensor) -> None:
        """Add to the sums; called before the count is."""

    @abstractmethod
    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return what :meth:`_score` needs, from the sums."""

    @abstractmethod
    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return the scores of float64 features."""


class _Moments(ClosedForm):
    """Class means, and scatter about them: of all classes together, or of each."""

    mean: Tensor
    scatter: Tensor

    def __init__(self, dim: int, num_classes: int, scatters: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("mean", torch.zeros(num_classes, dim, dtype=torch.float64))
        self.register_buffer("scatter", torch.zeros(scatters, dim, dim, dtype=torch.float64))

    def _add(self, features: Tensor, labels: Tensor) -> None:
        shared = len(self.scatter) == 1
        for label in torch.unique(labels).tolist():
            rows = features[labels == label]
            centre, old = rows.mean(0), int(self.count[label])
            away = centre - self.mean[label]
            scatter = self.scatter[0 if shared else label]
            # what both have about their own mean, and what the two means have about the common one
            scatter += (rows - centre).T @ (rows - centre)
            scatter += torch.outer(away, away) * (old * len(rows) / (old + len(rows)))
            self.mean[label] += away * (len(rows) / (old + len(rows)))


class Discriminant(_Moments):
    """Linear discriminant analysis: class means and one covariance, equal priors.

    The score of class c is ``m_c P z - m_c P m_c / 2`` with P the inverse of the shrunk covariance: its log
    likelihood but for what all classes share.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        shrinkage: Share of the covariance that gives way to a multiple of the identity of equal trace.
    """

    def __init__(self, dim: int, num_classes: int, shrinkage: float = 0.01) -> None:
        super().__init__(dim, num_classes, 1)
        self.shrinkage = shrinkage

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        means = self.mean[:seen]
        freedom = max(int(self.count[:seen].sum()) - seen, 1)
        factor = _factor(_shrunk(self.scatter[0] / freedom, self.shrinkage))
        weight = torch.cholesky_solve(means.T, factor)
        return weight, -0.5 * (means * weight.T).sum(1)

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        weight, bias = solution
        return features @ weight + bias


class Mahalanobis(_Moments):
    """The nearest class mean under each class's own covariance, shrunk and scaled to a correlation (FeCAM).

    Features are normalised to length 1, means are means of those. There is no determinant and no prior: the
    score is ``-(z - m_c) R_c^-1 (z - m_c)``.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        diagonal: Multiple of the mean variance that is added to the diagonal.
    """

    def __init__(self, dim: int, num_classes: int, diagonal: float = 1.0) -> None:
        super().__init__(dim, num_classes, num_classes)
        self.diagonal = diagonal

    def _add(self, features: Tensor, labels: Tensor) -> None:
        super()._add(functional.normalize(features, dim=-1), labels)

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        freedom = (self.count[:seen] - 1).clamp(min=1)
        covariance = self.scatter[:seen] / freedom[:, None, None]
        variance = covariance.diagonal(dim1=1, dim2=2)
        # a class of one image has no covariance: the plain distance is left
        added = self.diagonal * variance.mean(1).clamp(min=torch.finfo(torch.float64).tiny)
        covariance = covariance + torch.diag_embed(added[:, None].expand_as(variance))
        scale = covariance.diagonal(dim1=1, dim2=2).rsqrt()
        return self.mean[:seen], _factor(covariance * scale[:, :, None] * scale[:, None, :])

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        means, factors = solution
        rows = functional.normalize(features, dim=-1)
        found = [
            torch.linalg.solve_triangular(factor, (rows - mean).T, upper=False).square().sum(0)
            for mean, factor in zip(means, factors, strict=True)
        ]
        return -torch.stack(found, dim=1)


class Ridge(ClosedForm):
    """Ridge regression of one-hot labels on random features ``relu(z R)``, or on the features themselves.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        features: Width M of the random projection R ~ N(0, 1); 0 for none. The state is M x M.
        seed: Draws R, which is not part of the state.
        penalty: The ridge parameter lambda.
    """

    gram: Tensor
    cross: Tensor
    penalty: Tensor

    def __init__(self, dim: int, num_classes: int, features: int, seed: int, penalty: float = 1.0) -> None:
        super().__init__(num_classes)
        width = features or dim
        draw = torch.randn(dim, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.register_buffer("projection", draw if features else None, persistent=False)
        self.register_buffer("gram", torch.zeros(width, width, dtype=torch.float64))
        self.register_buffer("cross", torch.zeros(num_classes, width, dtype=torch.float64))
        self.register_buffer("penalty", torch.tensor(penalty, dtype=torch.float64))

    def _lifted(self, features: Tensor) -> Tensor:
        projection = self.get_buffer("projection")
        return features if projection is None else (features @ projection).relu_()

    def _add(self, features: Tensor, labels: Tensor) -> None:
        rows = self._lifted(features)
        self.gram += rows.T @ rows
        self.cross += functional.one_hot(labels, len(self.cross)).to(rows).T @ rows

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        return (self._weight(seen, float(self.penalty)),)

    def _weight(self, seen: int, penalty: float) -> Tensor:
        eye = torch.eye(len(self.gram), dtype=torch.float64, device=self.gram.device)
        return torch.cholesky_solve(self.cross[:seen].T, _factor(self.gram + penalty * eye))

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return self._lifted(features) @ solution[0]

    @torch.no_grad()
    def choose(self, features: Tensor, labels: Tensor, seen: int, penalties: Sequence[float]) -> None:
        """Take the penalty with the least squared error on features that were not shown.

        Args:
            features: Held-back features, ``[n, dim]``.
            labels: Their labels, ``[n]``.
            seen: Number of classes seen.
            penalties: The candidates; of equals the first.
        """
        rows = self._lifted(features.double())
        wanted = functional.one_hot(labels, seen).to(rows)
        errors = [(rows @ self._weight(seen, one) - wanted).square().sum() for one in penalties]
        self.penalty.fill_(penalties[int(torch.stack(errors).argmin())])
        self._solved = None


def _shrunk(covariance: Tensor, share: float) -> Tensor:
    level = covariance.diagonal().mean().clamp(min=torch.finfo(torch.float64).tiny)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - share) * covariance + share * level * eye


def _factor(matrix: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix, or of a stack of them.

    Raises:
        ValueError: One is singular in float64.
    """
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex((matrix + matrix.mT) / 2)
    if bool(failed.any()):
        raise ValueError(
            "expected a positive definite matrix but got a singular one; raise the shrinkage or the penalty"
        )
    return factor
