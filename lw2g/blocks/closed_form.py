"""Building block: closed-form classifiers, fitted from running sums over features.

Features and labels may come in any batches and any order: the classifier is the same as for all of them at
once, up to rounding in float64. A class that comes again in a later task has sums of its own there, so that
they can be carried apart; the classifier is solved from both together. It keeps no image, has no epochs, and
draws random numbers only from its own seed. Its input is un-prompted features (in retrieval, where no set
makes them drift) or the input of a baseline's head.

Sources: class means and LDA are textbook; ``Mahalanobis`` is FeCAM's (Goswami et al., NeurIPS 2023);
``Ridge`` is RanPAC's (McDonnell et al., NeurIPS 2023); ``KernelDiscriminant`` is KLDA (Momeni et al., 2024).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.carrying import Motion, take_shape
from lw2g.interfaces.context import TaskInfo

__all__ = [
    "PENALTIES",
    "ClosedForm",
    "Cosine",
    "Discriminant",
    "KernelDiscriminant",
    "Mahalanobis",
    "Ridge",
    "held_out_errors",
]

PENALTIES = tuple(10.0**power for power in range(-8, 9))
"""RanPAC's candidates for the ridge parameter."""

_FITTED = 0.8
"""Share of a task's images to which candidates are fitted; the others choose."""

_ROWS = 1024
"""Rows lifted at once: the lifted rows of a whole task would take as much memory as the sums."""
_CLASSES = 64
"""Classes scored at once: all classes of a long stream would take as much memory as their covariances."""


class ClosedForm(nn.Module, ABC):
    """A classifier that is solved in closed form; a checkpoint holds its buffers.

    Attributes:
        count: Number of features of each class, ``[num_classes]`` int64.
    """

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
        if len(features):
            self._add(features.double(), labels, owner)
            self.count += torch.bincount(labels, minlength=len(self.count))
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

    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        self.total.index_add_(0, labels, features)

    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        count = self.count[classes, None]
        self.total[classes] = motion(self.total[classes] / count) * count

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        return (functional.normalize(self._pooled(self.total[:seen]), dim=-1),)

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return functional.normalize(features, dim=-1) @ solution[0].T


class _Moments(ClosedForm):
    """Class means and the scatter about them, of each class or pooled over the classes of each set."""

    mean: Tensor
    scatter: Tensor

    def __init__(self, dim: int, num_classes: int, scatters: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("mean", torch.zeros(num_classes, dim, dtype=torch.float64))
        self.register_buffer("scatter", torch.zeros(scatters, dim, dim, dtype=torch.float64))

    def _scatter_of(self, label: int, owner: int) -> Tensor:
        """Return the scatter ``[dim, dim]`` that a class adds to, a view."""
        return self.scatter[label]

    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        for label in torch.unique(labels).tolist():
            rows = features[labels == label]
            centre, old = rows.mean(0), int(self.count[label])
            away = centre - self.mean[label]
            scatter = self._scatter_of(label, owner)
            # the scatter of the rows about their own mean, then that of both means about the common one
            scatter += (rows - centre).T @ (rows - centre)
            scatter += torch.outer(away, away) * (old * len(rows) / (old + len(rows)))
            self.mean[label] += away * (len(rows) / (old + len(rows)))

    def _means(self, seen: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return counts and means of targets, and what the mean of each class is away from its target's.

        The last is scaled by the square root of the class's count: its outer products are scatter.
        """
        counts, means = self.count[:seen], self.mean[:seen]
        pooled = self._pooled(counts)
        if len(pooled) == seen:
            return counts, means, means.new_zeros(0, means.shape[1])
        centres = self._pooled(means * counts[:, None]) / pooled[:, None]
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

    def __init__(self, dim: int, num_classes: int, shrinkage: float = 0.01) -> None:
        super().__init__(dim, num_classes, 1)
        self.shrinkage = shrinkage

    def _scatter_of(self, label: int, owner: int) -> Tensor:
        return self._of_owner("scatter", owner)

    def covariance(self, classes: Tensor, owner: int) -> Tensor:
        """Return the unbiased covariance ``[dim, dim]`` within the classes of an owner."""
        return self.scatter[owner] / (self.count[classes].sum() - len(classes)).clamp(min=1)

    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        self.mean[classes] = motion(self.mean[classes])
        self.scatter[owner] = motion.scatter(self.scatter[owner], self.count[classes].sum())

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "scatter", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        counts, means, away = self._means(seen)
        freedom = max(int(counts.sum()) - len(counts), 1)
        scatter = self.scatter.sum(0)
        if len(away):
            scatter = scatter + away.T @ away
        factor = _factor(_shrunk(scatter / freedom, self.shrinkage))
        weight = torch.cholesky_solve(means.T, factor)
        return weight, -0.5 * (means * weight.T).sum(1)

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
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
        self.register_module("raw", Discriminant(dim, num_classes) if carried else None)
        draw = torch.Generator().manual_seed(seed)
        directions = torch.randn(dim, features, generator=draw, dtype=torch.float64)
        turns = torch.rand(features, generator=draw, dtype=torch.float64)
        self.register_buffer("directions", directions, persistent=False)
        self.register_buffer("phases", 2 * torch.pi * turns, persistent=False)
        self.register_buffer("bandwidth", torch.zeros((), dtype=torch.float64))

    def _lifted(self, features: Tensor) -> Tensor:
        turned = (2 * self.bandwidth).sqrt() * (features @ self.get_buffer("directions"))
        turned += self.get_buffer("phases")
        return turned.cos_().mul_((2 / turned.shape[1]) ** 0.5)

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add all features of a task; those of the first task fix the bandwidth."""
        if not self.bandwidth:
            apart = torch.pdist(features[:: -(-len(features) // _ROWS)].double()).square()
            apart = apart[apart > 0]
            self.bandwidth.fill_(1 / float(apart.median()) if len(apart) else 1.0)
        super().learn(features, labels, generator, owner)

    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        if not self.bandwidth:
            raise ValueError("expected a bandwidth but got none; learn a whole task first")
        super()._add(self._lifted(features), labels, owner)
        if self.raw is not None:
            self.raw.update(features, labels, owner)

    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Set the moments to those of random features of Gaussian classes, by the characteristic function.

        With t = m O' + b for the mean m of a class, O' = sqrt(2 s) O, and K = O'^T S O' for the covariance S,
        ``E cos t_i = exp(-K_ii / 2) cos t_i``, and products are sums of cosines.
        """
        raw = _kept(self.raw)
        raw.carry(motion, classes.tolist(), owner)
        directions = (2 * self.bandwidth).sqrt() * self.get_buffer("directions")
        angles = raw.mean[classes] @ directions + self.get_buffer("phases")
        spread = directions.T @ raw.covariance(classes, owner) @ directions
        variance = spread.diagonal()
        weight = self.count[classes, None].double()
        self.mean[classes] = (2 / len(variance)) ** 0.5 * (-variance / 2).exp() * angles.cos()
        even, odd = (part.T @ (weight * part) for part in (angles.cos(), angles.sin()))
        own = -(variance[:, None] + variance) / 2
        second = ((own + spread).exp() * (even + odd) + (own - spread).exp() * (even - odd)) / len(variance)
        within = second - self.mean[classes].T @ (weight * self.mean[classes])
        freedom = 1 - len(classes) / weight.sum()
        self._of_owner("scatter", owner).copy_(freedom * within)

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return super()._score(self._lifted(features), *solution)


class Mahalanobis(_Moments):
    """Nearest class mean by Mahalanobis distance, with one shrunk correlation matrix per class (FeCAM).

    Features are normalised to length 1 before their means are taken. There is no determinant and no prior:
    the score is ``-(z - m_c) R_c^-1 (z - m_c)``.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        diagonal: Multiple of the mean variance to add to the diagonal.
    """

    length: Tensor

    def __init__(self, dim: int, num_classes: int, diagonal: float = 1.0) -> None:
        super().__init__(dim, num_classes, num_classes)
        self.register_buffer("length", torch.zeros(num_classes, dtype=torch.float64))
        self.diagonal = diagonal

    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        self.length.index_add_(0, labels, features.norm(dim=-1))
        super()._add(functional.normalize(features, dim=-1), labels, owner)

    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move means and scatters of normalised features at the mean length of their class.

        Exact where a drift turns or scales all features; else to first order about the mean.
        """
        count = self.count[classes, None]
        length = self.length[classes, None] / count
        mean = motion(length * self.mean[classes])
        now = mean.norm(dim=-1, keepdim=True) / self.mean[classes].norm(dim=-1, keepdim=True)
        self.mean[classes] = mean / now
        self.length[classes] = (count * now).squeeze(1)
        raw = self.scatter[classes] * length.square()[..., None]
        self.scatter[classes] = motion.scatter(raw, count[..., None]) / now.square()[..., None]

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        counts, means, away = self._means(seen)
        scatter = self._pooled(self.scatter[:seen])
        for target, row in zip(self._targets, away, strict=False):
            scatter[target] += torch.outer(row, row)
        freedom = (counts - 1).clamp(min=1)
        covariance = scatter / freedom[:, None, None]
        variance = covariance.diagonal(dim1=1, dim2=2)
        # a class of one image has no covariance: the added diagonal leaves the Euclidean distance
        added = self.diagonal * variance.mean(1).clamp(min=torch.finfo(torch.float64).tiny)
        covariance = covariance + torch.diag_embed(added[:, None].expand_as(variance))
        scale = covariance.diagonal(dim1=1, dim2=2).rsqrt()
        return means, _factor(covariance * scale[:, :, None] * scale[:, None, :])

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        means, factors = solution
        rows = functional.normalize(features, dim=-1)
        distances = [
            torch.linalg.solve_triangular(factor, (rows - mean[:, None]).mT, upper=False).square().sum(1)
            for mean, factor in zip(torch.split(means, _CLASSES), torch.split(factors, _CLASSES), strict=True)
        ]
        return -torch.cat(distances).T


class Ridge(ClosedForm):
    """Ridge regression of one-hot labels on random features ``relu(z R)``, or on the features themselves.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        features: Width M of the random projection R ~ N(0, 1); 0 for none. The state is M x M.
        seed: Draws R, which is not part of the state.
        penalty: The ridge parameter lambda until :meth:`learn` chooses one.
        running: Whether :meth:`learn` chooses by the errors of all tasks so far, or by those of the last task
            alone (RanPAC).
        carried: Whether the moments of the features themselves are kept beside those of random features, from
            which a carry draws again.
    """

    raw: Discriminant | None
    gram: Tensor
    cross: Tensor
    penalty: Tensor
    errors: Tensor | None

    def __init__(
        self,
        dim: int,
        num_classes: int,
        features: int,
        seed: int,
        penalty: float = 1.0,
        *,
        running: bool = True,
        carried: bool = False,
    ) -> None:
        super().__init__(num_classes)
        self.seed, width = seed, features or dim
        self.register_module("raw", Discriminant(dim, num_classes) if carried and features else None)
        draw = torch.randn(dim, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.register_buffer("projection", draw if features else None, persistent=False)
        self.register_buffer("gram", torch.zeros(1, width, width, dtype=torch.float64))
        self.register_buffer("cross", torch.zeros(num_classes, width, dtype=torch.float64))
        self.register_buffer("penalty", torch.tensor(penalty, dtype=torch.float64))
        self.register_buffer("errors", torch.zeros(len(PENALTIES), dtype=torch.float64) if running else None)

    def _lifted(self, features: Tensor) -> Tensor:
        projection = self.get_buffer("projection")
        return features if projection is None else (features @ projection).relu_()

    def _add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        gram = self._of_owner("gram", owner)
        for part, classes in zip(torch.split(features, _ROWS), torch.split(labels, _ROWS), strict=True):
            rows = self._lifted(part)
            gram += rows.T @ rows
            self.cross += functional.one_hot(classes, len(self.cross)).to(rows).T @ rows
        if self.raw is not None:
            self.raw.update(features, labels, owner)

    def _carry(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the sums exactly, or draw the random features of Gaussian classes again."""
        count, gram = self.count[classes, None].double(), self._of_owner("gram", owner)
        if self.get_buffer("projection") is None:
            mean = self.cross[classes] / count
            within = gram - mean.T @ (count * mean)
            mean = motion(mean)
            gram.copy_(motion.scatter(within, count.sum()) + mean.T @ (count * mean))
            self.cross[classes] = count * mean
            return
        raw = _kept(self.raw)
        raw.carry(motion, classes.tolist(), owner)
        values, vectors = torch.linalg.eigh(raw.covariance(classes, owner))
        draws = torch.Generator().manual_seed(self.seed)
        noise = torch.randn(max(2 * len(values), 256), len(values), generator=draws, dtype=torch.float64)
        away = noise.to(vectors) @ (vectors * values.clamp(min=0).sqrt()).T
        gram.zero_()
        for label, images in zip(classes.tolist(), count.flatten().tolist(), strict=True):
            rows = self._lifted(raw.mean[label] + away)
            gram += images / len(rows) * (rows.T @ rows)
            self.cross[label] = images * rows.mean(0)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "gram", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add all features of a task, and choose the penalty on a fifth of them (RanPAC).

        The candidates are fitted to the other four fifths of this task alone; the chosen penalty then applies
        to the sums of all tasks. A task with a single class chooses nothing, because its labels are constant.
        """
        self.update(features, labels, owner)
        fitted = int(_FITTED * len(labels))
        if not 0 < fitted < len(labels) or len(torch.unique(labels)) == 1:
            return
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        rows = self._lifted(features[order].double())
        targets = functional.one_hot(torch.unique(labels[order], return_inverse=True)[1]).to(rows)
        errors = held_out_errors(rows, targets, fitted, PENALTIES)
        if self.errors is not None:
            errors = self.errors.add_(errors)
        # smaller penalties are lost in rounding when the sums are solved; the least of the others fits alike
        lost = torch.finfo(rows.dtype).eps * float(self.gram.sum(0).trace())
        usable = [place for place, penalty in enumerate(PENALTIES) if penalty > lost] or [len(PENALTIES) - 1]
        self.penalty.fill_(PENALTIES[usable[int(errors[usable].argmin())]])
        self._solved = None

    def _solve(self, seen: int) -> tuple[Tensor, ...]:
        raised = self.gram.sum(0)
        raised.diagonal().add_(self.penalty)
        return (torch.cholesky_solve(self._pooled(self.cross[:seen]).T, _factor(raised)),)

    def _score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return self._lifted(features) @ solution[0]


@torch.no_grad()
def held_out_errors(rows: Tensor, targets: Tensor, fitted: int, penalties: Sequence[float]) -> Tensor:
    """Return the squared error of ridge regression on held-out rows for each penalty, ``[penalties]``.

    One eigendecomposition, of the smaller of the two matrices of inner products, serves all penalties.

    Args:
        rows: ``[n, width]`` float64.
        targets: Targets of the regression, ``[n, k]``.
        fitted: Number of leading rows to fit; the others are held out.
        penalties: The candidates.
    """
    own, held = rows[:fitted], rows[fitted:]
    if len(own) < rows.shape[1]:
        product, left, right = own @ own.T, held @ own.T, targets[:fitted]
    else:
        product, left, right = own.T @ own, held, own.T @ targets[:fitted]
    values, vectors = torch.linalg.eigh(product)
    left, right, values = left @ vectors, vectors.T @ right, values.clamp(min=0)[:, None]
    residuals = [left @ (right / (values + penalty)) - targets[fitted:] for penalty in penalties]
    return torch.stack([residual.square().sum() for residual in residuals])


def _kept(raw: Discriminant | None) -> Discriminant:
    """Return the moments of the features themselves.

    Raises:
        TypeError: The classifier keeps random features alone.
    """
    if raw is None:
        raise TypeError("expected a classifier with moments to carry; make it with carried=True")
    return raw


def _shrunk(covariance: Tensor, share: float) -> Tensor:
    level = covariance.diagonal().mean().clamp(min=torch.finfo(torch.float64).tiny)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - share) * covariance + share * level * eye


def _factor(matrix: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix or a stack of matrices.

    Raises:
        ValueError: A matrix is singular in float64.
    """
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex((matrix + matrix.mT) / 2)
    if bool(failed.any()):
        raise ValueError(
            "expected a positive definite matrix but got a singular one; raise the shrinkage or the penalty"
        )
    return factor
