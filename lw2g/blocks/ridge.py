"""Building block: regression of one-hot labels on features or random features.

With a penalty it is the classifier of RanPAC (McDonnell et al., NeurIPS 2023), of ACIL (Zhuang et al.,
NeurIPS 2022) and its relatives, and of Fly-CL (Zou et al., ICLR 2026); with a cut spectrum that of TSVD, also
LoRanPAC (Peng et al., ICLR 2025).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.carrying import Motion, take_shape
from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.discriminants import Discriminant, require_moments
from lw2g.blocks.random_maps import MapKind, RandomMap
from lw2g.blocks.spectrum import Spectrum
from lw2g.maths.few_rows import FewRows, Range, few_rows
from lw2g.maths.normal_equations import (
    ROWS_OF_WIDE,
    WIDE_SUMS,
    add_products,
    best_penalty,
    left_out_scores,
    require_factor,
    weights_of,
)

__all__ = ["PENALTIES", "PenaltyChoice", "Ridge", "held_out_errors"]

PenaltyChoice = Literal["running", "task", "gcv", "fixed"]

PENALTIES = tuple(10.0**power for power in range(-8, 9))
"""RanPAC's candidates for the ridge parameter."""

_FITTED = 0.8
"""Share of a task's images to which candidates are fitted; the others choose."""

_ROWS = 1024
"""Rows lifted at once: the lifted rows of a whole task would take as much memory as the sums."""


class Ridge(ClosedForm):
    """Regression of one-hot labels on random features, or on the features themselves.

    The weights are exact for all features so far. What chooses the penalty may depend on how the features
    came: ``gcv`` and ``fixed`` do not, ``task`` and ``running`` depend on the cut into tasks.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        features: Number M of random features; 0 for none. The state is M x M.
        seed: Draws the random map, which is not part of the state.
        penalty: The penalty lambda; where it is chosen, the one until then.
        choice: What chooses the penalty: held-out errors summed over all tasks so far (``running``) or of the
            last one alone (``task``, RanPAC), generalised cross-validation on the sums (``gcv``, Fly-CL's on
            the last task), or nothing (``fixed``, ACIL).
        cut: Share of the spectrum to cut off, from its small end (TSVD: 0.25); 0 for none. Of n images and M
            features the largest ``round((1 - cut) min(n, M))`` eigenvalues stay.
        lift: What stands behind the random matrix (:class:`~lw2g.blocks.random_maps.RandomMap`).
        row_nonzeros: As there.
        kept: As there.
        share: Squared length of a row's random features over that of its features, beside which they stand,
            on average over random maps; 0 where they stand in place of the features. The penalty is the same
            for all, so that it is the units' share in it.
        carried: Whether the moments of the features themselves are kept in addition to those of random
            features: a carry draws the latter again from them.

    Attributes:
        few: The rows whose products ``gram`` has not, as long as they are few; None where M is small.
        gram: ``[owners, M, M]`` float64; no owner as long as all rows are in ``few``.
        cross: ``[num_classes, M]`` float64.
        penalty: The penalty that was chosen last.
        errors: Of ``running``, the held-out error of each candidate; else None.
        chosen_at: Of ``gcv``, the number of rows in the sums for which the penalty was chosen, 0 if they have
            changed since; else None.
    """

    carried = True

    raw: Discriminant | None
    lift: RandomMap | None
    few: FewRows | None
    gram: Tensor
    cross: Tensor
    penalty: Tensor
    errors: Tensor | None
    chosen_at: Tensor | None

    def __init__(
        self,
        dim: int,
        num_classes: int,
        features: int,
        seed: int,
        penalty: float = 1.0,
        *,
        choice: PenaltyChoice = "running",
        cut: float = 0.0,
        lift: MapKind = "relu",
        row_nonzeros: int = 0,
        kept: float = 0.3,
        share: float = 0.0,
        carried: bool = False,
    ) -> None:
        super().__init__(num_classes)
        self.seed = seed
        width = features or dim
        self.beside = 0.0
        if share and features:
            width += dim
            # of features of length z a unit is N(0, z^2), of which relu leaves half of the square
            self.beside = math.sqrt(2 * share / features)
        self.moves = carried
        self.choice = choice
        self.exact = choice in ("gcv", "fixed")
        self.cut = cut
        raw = None
        if carried and features:
            # without random features the sums themselves can be carried
            raw = Discriminant(dim, num_classes)
        self.register_module("raw", raw)
        self.register_module("lift", None)
        if features:
            self.lift = RandomMap(dim, features, seed, lift, row_nonzeros=row_nonzeros, kept=kept)
        few = few_rows(width)
        self.register_module("few", few)
        owners = 1 if few is None else 0
        self.register_buffer("gram", torch.zeros(owners, width, width, dtype=torch.float64))
        self.register_buffer("cross", torch.zeros(num_classes, width, dtype=torch.float64))
        self.register_buffer("penalty", torch.tensor(penalty, dtype=torch.float64))
        errors = None
        if choice == "running":
            errors = torch.zeros(len(PENALTIES), dtype=torch.float64)
        self.register_buffer("errors", errors)
        chosen_at = None
        if choice == "gcv":
            # a model that is opened again need not choose again, which takes seconds at 2,000 features
            chosen_at = torch.zeros((), dtype=torch.int64)
        self.register_buffer("chosen_at", chosen_at)

    def lifted(self, features: Tensor) -> Tensor:
        """Return random features ``[n, M]``, alone or beside the features; without a random map these."""
        if self.lift is None:
            return features
        rows: Tensor = self.lift(features)
        if self.beside:
            return torch.cat([features, rows * self.beside], dim=1)
        return rows

    def centres(self, classes: Tensor) -> Tensor:
        """Return the means of the features of classes ``[k]``, not of their random features: ``[k, dim]``."""
        # with a random map, the sums of the regression are of random features
        if self.lift is not None:
            return require_moments(self.raw).centres(classes)
        return self.cross[classes] / self.count[classes, None].double()

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor] | None:
        """Return means ``[classes, D]`` and scatter ``[D, D]`` of random features, which both sums hold."""
        if self.cross.shape[1] > widest:
            return None
        counts = self.count[:classes, None]
        means = self.cross[:classes] / counts
        kept = self.rows_in_range()
        gram = self.gram.sum(0) if kept is None else kept.rows.T @ kept.rows
        return means, gram - (means * counts).T @ means

    def rows_in_range(self) -> FewRows | None:
        """Return the rows that stand in place of sums."""
        return None if len(self.gram) else self.few

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add products of random features, with themselves and with labels."""
        self._choose_again()
        if self._takes_few(features, labels, owner):
            return
        gram = self.of_owner("gram", owner)
        if len(gram) > WIDE_SUMS:
            add_products(gram, self._lifted_parts(features, labels))
        else:
            for part, classes in zip(torch.split(features, _ROWS), torch.split(labels, _ROWS), strict=True):
                rows = self.lifted(part)
                gram += rows.T @ rows
                self.cross += functional.one_hot(classes, len(self.cross)).to(rows).T @ rows
        if self.raw is not None:
            self.raw.update(features, labels, owner)

    def _lifted_parts(self, features: Tensor, labels: Tensor) -> Iterator[Tensor]:
        """Yield lifted rows in parts, once each is in the products with labels."""
        parts = zip(torch.split(features, ROWS_OF_WIDE), torch.split(labels, ROWS_OF_WIDE), strict=True)
        for part, classes in parts:
            rows = self.lifted(part)
            # a tenth of the time of a product with one-hot labels, and other last bits
            self.cross.index_add_(0, classes, rows)
            yield rows

    def _takes_few(self, features: Tensor, labels: Tensor, owner: int) -> bool:
        """Keep features as rows if they are few, and return whether they are; else form the sums."""
        few = self.rows_in_range()
        if few is None or owner or not few.has_room(len(features)):
            return False
        rows = self.lifted(features)
        few.add(rows, labels)
        self.cross += functional.one_hot(labels, len(self.cross)).to(rows).T @ rows
        if self.raw is not None:
            self.raw.update(features, labels, owner)
        return True

    def of_owner(self, name: str, owner: int) -> Tensor:
        """Return the sums of an owner, once they are formed of the rows in their place."""
        few = self.rows_in_range()
        sums = super().of_owner(name, owner)
        if few is not None:
            add_products(self.gram[0], [few.rows])
            few.clear()
        return sums

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the sums exactly, or draw the random features of Gaussian classes again."""
        self._choose_again()
        count = self.count[classes, None].double()
        gram = self.of_owner("gram", owner)  # a view: what is written there is kept
        if self.lift is None:
            mean = self.centres(classes)
            # the sums are about zero; a motion moves means, and the scatter about them
            within = gram - mean.T @ (count * mean)
            mean = motion(mean)
            gram.copy_(motion.scatter(within, count.sum()) + mean.T @ (count * mean))
            self.cross[classes] = count * mean
            return
        raw = require_moments(self.raw)
        raw.carry(motion, classes.tolist(), owner)
        values, vectors = torch.linalg.eigh(raw.covariance(classes, owner))
        # the head's own seed: no draw of the run moves, and a resumed one draws the same
        draws = torch.Generator().manual_seed(self.seed)
        # twice as many rows as features, so that the drawn scatter has full rank
        noise = torch.randn(max(2 * len(values), 256), len(values), generator=draws, dtype=torch.float64)
        # with S = V diag(v) V', noise times (V sqrt(v))' has the covariance S; rounding takes v below zero
        deviations = noise.to(vectors) @ (vectors * values.clamp(min=0).sqrt()).T
        gram.zero_()
        for label, images in zip(classes.tolist(), count.flatten().tolist(), strict=True):
            rows = self.lifted(raw.mean[label] + deviations)
            gram += images / len(rows) * (rows.T @ rows)
            self.cross[label] = images * rows.mean(0)

    def _choose_again(self) -> None:
        """Forget the penalty that was chosen for the sums as they were."""
        if self.chosen_at is not None:
            self.chosen_at.zero_()

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "gram", state, prefix)
        if self.chosen_at is not None:
            # states that an earlier lw2g wrote do not say for which sums a penalty was chosen
            state.setdefault(f"{prefix}chosen_at", torch.zeros_like(self.chosen_at))
        super()._load_from_state_dict(state, prefix, *others)

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add all features of a task; where held-out errors choose, choose on a fifth of them (RanPAC).

        The candidates are fitted to the other four fifths of this task alone; the chosen penalty then applies
        to the sums of all tasks. A task with a single class chooses nothing, because its labels are constant.
        """
        self.update(features, labels, owner)
        if self.choice in ("gcv", "fixed"):
            return
        fitted = int(_FITTED * len(labels))
        if not 0 < fitted < len(labels) or len(torch.unique(labels)) == 1:
            return
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        rows = self.lifted(features[order].double())
        targets = functional.one_hot(torch.unique(labels[order], return_inverse=True)[1]).to(rows)
        errors = held_out_errors(rows, targets, fitted, PENALTIES)
        if self.errors is not None:
            errors = self.errors.add_(errors)
        # smaller penalties are lost in rounding when the sums are solved; the least of the others fits alike
        lost = torch.finfo(rows.dtype).eps * self._trace()
        usable = [number for number, penalty in enumerate(PENALTIES) if penalty > lost]
        if not usable:
            usable = [len(PENALTIES) - 1]
        self.penalty.fill_(PENALTIES[usable[int(errors[usable].argmin())]])
        self._solved = None  # the sums are as they were, their solution is not

    def chosen_penalty(self, seen: int) -> float:
        """Return the penalty at which the sums of the first ``seen`` classes are solved."""
        if self.chosen_at is None:
            return float(self.penalty)
        rows = int(self.count.sum())
        if int(self.chosen_at) == rows:
            return float(self.penalty)
        gram, cross_of_targets, _ = self._system(seen)
        norm = float(self.count[:seen].sum())  # of one-hot labels, each of length 1
        penalty = best_penalty(gram, cross_of_targets, rows, norm, width=self.cross.shape[1])
        if norm == rows:  # of all classes that it has seen
            self.penalty.fill_(penalty)
            self.chosen_at.fill_(rows)
        return penalty

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return the weights of targets, ``[D, targets]``, and the penalty that they were solved at, ``[]``.

        They rest on the whole spectrum of the sums, or on its kept part.
        """
        penalty = self.chosen_penalty(seen)
        solved_at = torch.tensor(penalty, dtype=torch.float64)
        few = self.rows_in_range()
        if few is not None and not self.cut:
            return self._of_rows(few.range(), penalty, seen), solved_at
        gram, cross_of_targets, known = self._system(seen)
        if self.cut:
            # the sums have at most as many directions as images, or as features
            rank = round((1 - self.cut) * min(int(self.count.sum()), self.cross.shape[1]))
            weights = Spectrum(gram, cross_of_targets).cut(max(rank, 1), penalty)
        else:
            weights = weights_of(gram, cross_of_targets, penalty)
        return weights if known is None else known.spread(weights), solved_at

    def _of_rows(self, known: Range, penalty: float, seen: int) -> Tensor:
        """Return the weights of targets ``[D, targets]`` by products of rows, ``H^T (H H^T + p I)^-1 Y``.

        These alone are needed by a model that is opened to answer, and no coordinates.
        """
        assert self.few is not None
        of_classes = functional.one_hot(self.few.labels, len(self.cross)).T[:seen].to(known.rows)
        return known.rows.T @ weights_of(known.between, self.pooled(of_classes).T, penalty)

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor | None:
        """Return what the regression without each row alone predicts for it, at the penalty of all rows.

        A cut spectrum has no such formula.
        """
        if self.cut:
            return None
        penalty = self.chosen_penalty(seen)
        gram, cross_of_targets, known = self._system(seen)
        lower = require_factor(gram, penalty)
        weights = torch.cholesky_solve(cross_of_targets, lower)
        stamp = self._stamp(seen)
        if self._solved is None or self._solved[0] != stamp:
            # a factor of wide sums takes a second, and the solution needs the same one
            whole = weights if known is None else self._of_rows(known, penalty, seen)
            self._solved = (stamp, (whole, torch.tensor(penalty, dtype=torch.float64)))
        target_of_class = torch.tensor(self.targets[:seen], device=labels.device)
        targets = target_of_class[labels]
        if known is not None:
            return left_out_scores(lower, weights, known.coordinates(self.lifted(features)), targets)
        parts = []
        for part, part_targets in zip(torch.split(features, _ROWS), torch.split(targets, _ROWS), strict=True):
            parts.append(left_out_scores(lower, weights, self.lifted(part), part_targets))
        return torch.cat(parts)

    def _system(self, seen: int) -> tuple[Tensor, Tensor, Range | None]:
        """Return the sums ``[D, D]`` and ``[D, targets]`` of the regression, and the range that they are in.

        Of few rows D is their number; else the last is None.
        """
        cross_of_targets = self.pooled(self.cross[:seen]).T
        few = self.rows_in_range()
        if few is not None:
            known = few.range()
            return known.gram, known.coordinates(cross_of_targets.T).T, known
        # of one owner no copy
        gram = self.gram[0] if len(self.gram) == 1 else self.gram.sum(0)
        return gram, cross_of_targets, None

    def _trace(self) -> float:
        """Return the sum of the squares of all rows."""
        few = self.rows_in_range()
        if few is not None:
            return float(few.rows.square().sum())
        return float(self.gram.sum(0).trace())

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return the regressed labels, ``[n, targets]``."""
        return self.lifted(features) @ solution[0]


@torch.no_grad()
def held_out_errors(rows: Tensor, targets: Tensor, fitted: int, penalties: Sequence[float]) -> Tensor:
    """Return the squared error of ridge regression on held-out rows for each penalty, ``[penalties]``.

    With H the fitted rows, K the held-out ones and Y the fitted targets, predictions are
    ``K H' V diag(1 / (s + penalty)) V' Y`` for ``H H' = V diag(s) V'``, or equally
    ``K V diag(1 / (s + penalty)) V' H' Y`` for ``H' H = V diag(s) V'``. So one eigendecomposition, of the
    smaller of the two matrices, serves all penalties.

    Args:
        rows: ``[n, width]`` float64.
        targets: Targets of the regression, ``[n, k]``.
        fitted: Number of leading rows to fit; the others are held out.
        penalties: The candidates.
    """
    fitted_rows = rows[:fitted]
    held_out = rows[fitted:]
    if len(fitted_rows) < rows.shape[1]:
        product = fitted_rows @ fitted_rows.T
        left = held_out @ fitted_rows.T
        right = targets[:fitted]
    else:
        product = fitted_rows.T @ fitted_rows
        left = held_out
        right = fitted_rows.T @ targets[:fitted]
    values, vectors = torch.linalg.eigh(product)
    left = left @ vectors
    right = vectors.T @ right
    values = values.clamp(min=0)[:, None]
    residuals = [left @ (right / (values + penalty)) - targets[fitted:] for penalty in penalties]
    return torch.stack([residual.square().sum() for residual in residuals])
