"""AnaCP, a projection in closed form before a head in closed form.

Momeni, Xiao and Liu, NeurIPS 2025. Where we cannot tell the paper from its released code, the code is
followed. What it does wrong is not: its merge of covariances counts a batch twice, and a vector of rounding
becomes a direction.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import ClosedForm, Discriminant, RandomMap, TaskInfo, derive_seed, factor

__all__ = ["AnaCP", "MapBack", "spread_means"]

MapBack = Literal["inverse-root", "root"]

_ROWS = 1024
"""Rows lifted at once: the lifted rows of a whole task would take as much memory as the sums."""


class AnaCP(ClosedForm):
    """Ridge regression towards spread class means, then a ridge classifier of what it projects.

    Features x have length 1. Each member e lifts them, ``g_e(x) = gelu(x R_e)``, and regresses the target of
    their class by ridge; the projection ``o(x)`` is the mean of the members' answers, each of length 1.
    Targets are the class means spread apart (:func:`spread_means`). The classifier is ridge regression of
    one-hot labels on ``gelu(o R_0)``. No old image is left for it, so it is fitted to Gaussian features of
    each class, with the class's mean and the common covariance.

    All sums are exact in a stream. The classifier is random, but a function of them: the Gaussian draws
    follow from the seed and the name of a class alone, so neither the order of classes nor the cut into tasks
    changes it.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        features: Number D of random features of a member. The state is ``members`` times D x D.
        seed: Draws the random maps and the Gaussian features, which are not part of the state.
        members: Number of members.
        penalty: The penalty of both regressions.
        draws: Gaussian features of each class.
        map_back: How spread means go back to the features (:func:`spread_means`).

    Attributes:
        moments: Class means and covariance of features of length 1.
        gram: Sums of products of each member's rows, ``[members, D, D]`` float64.
        cross: Sums of each member's rows of each class, ``[num_classes, members, D]`` float64.
        draw_seeds: Seeds of the draws of targets, ``[num_classes]`` int64.
    """

    exact = True

    moments: Discriminant
    gram: Tensor
    cross: Tensor
    draw_seeds: Tensor

    def __init__(
        self,
        dim: int,
        num_classes: int,
        features: int,
        seed: int,
        *,
        members: int = 3,
        penalty: float = 100.0,
        draws: int = 100,
        map_back: MapBack = "inverse-root",
    ) -> None:
        super().__init__(num_classes)
        self.seed = seed
        self.penalty = penalty
        self.draws = draws
        self.map_back = map_back
        self.moments = Discriminant(dim, num_classes)
        # a seed for each map: one map says nothing about the draws of another
        self.maps = nn.ModuleList()
        for member in range(members):
            self.maps.append(RandomMap(dim, features, derive_seed(seed, "member", member), "gelu"))
        self.last_map = RandomMap(dim, features, derive_seed(seed, "classifier"), "gelu")
        # float64: sums of all images, which are solved at the end
        self.register_buffer("gram", torch.zeros(members, features, features, dtype=torch.float64))
        self.register_buffer("cross", torch.zeros(num_classes, members, features, dtype=torch.float64))
        seeds = [derive_seed(seed, "draws", str(position)) for position in range(num_classes)]
        self.register_buffer("draw_seeds", torch.tensor(seeds, dtype=torch.int64))

    def begin_task(self, task: TaskInfo) -> None:
        """Note which targets the classes of a task have, and their names, which seed their draws."""
        super().begin_task(task)
        self.moments.begin_task(task)
        for entry in task.class_map:
            # by name and not by position, which depends on the order of classes
            self.draw_seeds[entry.target] = derive_seed(self.seed, "draws", entry.name)

    def lifted(self, features: Tensor) -> Tensor:
        """Return features of length 1."""
        return functional.normalize(features, dim=-1)

    def projected(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return ``o(x)``, ``[n, dim]``.

        Args:
            rows: Features of length 1, ``[n, dim]`` float64.
            weights: The members' projections, ``[members, D, dim]``.
        """
        answers = []
        for lift, weight in zip(self.maps, weights, strict=True):
            # rows have length 1 before the mean: no member counts more than another
            answers.append(functional.normalize(lift(rows) @ weight, dim=-1))
        return torch.stack(answers).mean(0)

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add to the sums."""
        unit = self.lifted(features)
        self.moments.update(unit, labels)
        for part, classes in zip(torch.split(unit, _ROWS), torch.split(labels, _ROWS), strict=True):
            of_class = functional.one_hot(classes, len(self.cross)).to(part)
            for member, lift in enumerate(self.maps):
                rows = lift(part)
                self.gram[member] += rows.T @ rows
                self.cross[:, member] += of_class.T @ rows

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return the members' projections, ``[members, D, dim]``, and the classifier, ``[D, targets]``.

        All is solved anew after each task: new classes move the targets of old ones, and so their projection.
        """
        means, covariance = self.moments.within(seen)
        targets = spread_means(means, covariance, self.map_back)
        weights = self._projections(self.pooled(self.cross[:seen]), targets)
        return weights, self._classifier(means, covariance, weights)

    def _classifier(self, means: Tensor, covariance: Tensor, weights: Tensor) -> Tensor:
        """Return ridge regression of one-hot labels on projected Gaussian draws, ``[D, targets]``.

        Args:
            means: Means of targets, ``[targets, dim]``.
            covariance: Their common covariance, ``[dim, dim]``.
            weights: The members' projections, ``[members, D, dim]``.
        """
        lower = factor(covariance)
        drawn_gram = torch.zeros_like(self.gram[0])
        drawn_cross = drawn_gram.new_zeros(len(means), len(drawn_gram))
        for target, mean in enumerate(means):
            # L of S = L L' makes standard normal draws those of N(m, S)
            drawn = mean + self._noise(target) @ lower.T
            rows = self.last_map(self.projected(drawn, weights))
            drawn_gram += rows.T @ rows
            drawn_cross[target] = rows.sum(0)
        drawn_gram.diagonal().add_(self.penalty)
        return torch.cholesky_solve(drawn_cross.T, factor(drawn_gram))

    def _projections(self, sums: Tensor, targets: Tensor) -> Tensor:
        """Return each member's ridge regression of the spread class means, ``[members, D, dim]``.

        ``(A + r I)^-1 sum_c s_c t_c'``, with A the member's gram, r the penalty, and s_c the sum of its rows
        of target c.

        Args:
            sums: Sums of each member's rows of each target, ``[targets, members, D]``.
            targets: Spread class means t_c, ``[targets, dim]``.
        """
        weights = []
        for member, gram in enumerate(self.gram):
            # a copy: the sums go on growing without the penalty
            penalised = gram.clone()
            penalised.diagonal().add_(self.penalty)
            weights.append(torch.cholesky_solve(sums[:, member].T @ targets, factor(penalised)))
        return torch.stack(weights)

    def _noise(self, target: int) -> Tensor:
        """Return the standard normal draws of a class, ``[draws, dim]``."""
        # drawn on the CPU, so that the draw does not depend on the device
        generator = torch.Generator().manual_seed(int(self.draw_seeds[target]))
        dim = self.moments.mean.shape[1]
        return torch.randn(self.draws, dim, generator=generator, dtype=torch.float64).to(self.gram)

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return the scores of targets, ``[n, targets]``, by what :meth:`solve` returned."""
        weights, classifier = solution
        rows: Tensor = self.last_map(self.projected(self.lifted(features), weights))
        return rows @ classifier


def spread_means(means: Tensor, covariance: Tensor, map_back: MapBack) -> Tensor:
    """Return class means spread apart, of length 1, ``[C, dim]``: AnaCP's targets.

    Whitened means about their centre, ``X = (m - mean(m)) S^(-1/2)``, get every singular value raised by 1,
    go back, and get the centre again. They have at most C - 1 directions; others are rounding and stay as
    they are.

    Args:
        means: ``[C, dim]`` float64.
        covariance: Covariance S within classes, positive definite, ``[dim, dim]``.
        map_back: ``root`` goes back by ``S^(1/2)``; ``inverse-root`` whitens a second time, as released.
    """
    values, vectors = torch.linalg.eigh(covariance)
    whitening = vectors @ (values.rsqrt()[:, None] * vectors.mT)
    centre = means.mean(0)
    left, sizes, right = torch.linalg.svd((means - centre) @ whitening, full_matrices=False)
    # C means about their centre span C - 1 directions; the last one is rounding, and 1 would make it one
    real = sizes > 1e-9 * sizes[0]  # in float64, rounding is far below this share of the largest
    real[len(means) - 1 :] = False
    spread = left @ ((sizes + real)[:, None] * right)
    back = whitening
    if map_back == "root":
        back = vectors @ (values.sqrt()[:, None] * vectors.mT)
    return functional.normalize(spread @ back + centre, dim=-1)
