"""Building block: one of a few heads, chosen by left-out images of each task as it comes.

The candidates are LDA on the last layer's class token, ridge regression on all features, and LDA on these.
They are solved from the same sums, so that none of them costs memory. Where random units are asked for, ridge
regression on half of the layers with units beside these is a fourth, with sums of its own.

Old images are gone in a run: the images of a task are left out, one by one, of the sums of all tasks so far,
and what was found right of earlier tasks is kept as counts. After each task the first candidate within one
standard error of the best is taken; it answers until the next task. Nothing is chosen where a model learns
without tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.calibration import Temperature
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.defaults import CHOSEN_HEADS
from lw2g.maths.choosing import choice_of, first_within_error
from lw2g.maths.few_rows import FewRows

__all__ = ["UNIT_SHARE", "ChosenHead"]

_REGRESSION, _DISCRIMINANT = CHOSEN_HEADS
UNIT_SHARE = 0.3
"""Squared length of random units over that of the features beside them (:class:`~lw2g.blocks.ridge.Ridge`).

Of left-out images of 21 traffic signs, six kinds of waste and 40 classes of Caltech-101, six layers of
ViT-Tiny beside 2,304 units had in per cent 81.2, 85.1, 94.0 right at 0.1; 81.3, 85.4, 94.4 at 0.3; 81.0,
85.8, 94.8 at 1; 80.6, 85.6, 94.6 at 3. These are alike, and at a small share the penalty is near that of the
features alone (docs/frozen.md).
"""
_MOST = 2000
"""Images of a task that are left out: more of them tell little, and their rows take memory."""


@attrs.frozen
class _Candidate:
    """A way to answer.

    Attributes:
        head: Its name.
        layers: Of how many layers it reads features.
        first: The first column that it reads.
        last: Where its columns end.
        units: Random units beside these columns.
    """

    head: str
    layers: int
    first: int
    last: int
    units: int = 0


class ChosenHead(ClosedForm):
    """LDA or ridge regression, on one layer or on several.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        seed: Draws the random units.
        layers: Of how many layers the features are.
        own: The columns of the last layer's class tokens, from and up to; None for all.
        units: Random units beside half of the layers; 0 for none.

    Attributes:
        sums: Those of all candidates without units.
        with_units: Those of the candidate with units; None without.
        taken: The candidate that answers, int64.
        right: Left-out images of all tasks that each candidate has found, ``[candidates]`` int64.
        judged: Left-out images of all tasks, int64.
        temperatures: One for each candidate, whose scores are of different scales; None where none is asked.
    """

    with_units: Ridge | None
    taken: Tensor
    right: Tensor
    judged: Tensor
    temperatures: Any

    def __init__(
        self,
        dim: int,
        num_classes: int,
        seed: int,
        *,
        layers: int = 1,
        own: tuple[int, int] | None = None,
        units: int = 0,
    ) -> None:
        super().__init__(num_classes)
        self.candidates = _candidates(dim, layers, own, units)
        self.sums = Ridge(dim, num_classes, 0, seed, choice="gcv")
        with_units = None
        if units:
            last = self.candidates[-1]
            read = last.last - last.first
            with_units = Ridge(read, num_classes, units, seed, choice="gcv", share=UNIT_SHARE)
        self.register_module("with_units", with_units)
        self.register_buffer("taken", torch.zeros((), dtype=torch.int64))
        self.register_buffer("right", torch.zeros(len(self.candidates), dtype=torch.int64))
        self.register_buffer("judged", torch.zeros((), dtype=torch.int64))
        self.register_module("temperatures", None)

    def begin_task(self, task: TaskInfo) -> None:
        """Note which targets the classes of a task have."""
        super().begin_task(task)
        for sums in self._all_sums():
            sums.begin_task(task)

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add to the sums of all candidates."""
        for candidate, sums in zip(self._holders(), self._all_sums(), strict=True):
            sums.update(features[:, candidate.first : candidate.last], labels)

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor] | None:
        """Return means and scatter of all features, whichever candidate answers."""
        return self.sums.class_gaussians(classes, widest)

    def rows_in_range(self) -> FewRows | None:
        """Return the rows of all features that stand in place of sums."""
        return self.sums.rows_in_range()

    # -- choosing --------------------------------------------------------------------------------------

    def fit_temperature(self) -> None:
        """Keep a temperature of each candidate from now on."""
        super().fit_temperature()
        self.temperatures = nn.ModuleList(Temperature(1.0) for _ in self.candidates)

    @torch.no_grad()
    def observe(self, features: Tensor, labels: Tensor) -> None:
        """Count which images of a task each candidate finds without them, and take one; fit temperatures."""
        seen, targets, telling = self.telling(labels)
        if len(telling) > _MOST:
            # of every class, wherever its images lie
            chosen = torch.linspace(0, len(telling) - 1, _MOST).long().to(telling.device)
            telling = telling[chosen]
            targets = targets[chosen]
        if not len(telling):
            return
        rows = features[telling].double()
        for place, candidate in enumerate(self.candidates):
            scores = self._without_each(candidate, rows, labels[telling], seen)
            self.right[place] += (scores.argmax(1) == targets).sum()
            if self.temperatures is not None:
                self.temperatures[place].observe(scores, targets)
        self.judged += len(telling)
        self.taken.fill_(first_within_error(self._found(), int(self.judged)))
        self._solved = None  # the sums are as they were, who answers may not be
        if self.temperature is not None and self.temperatures is not None:
            self.temperature.loss.copy_(self.temperatures[int(self.taken)].loss)

    def findings(self) -> Mapping[str, Any]:
        """Return the choice, and what was tried."""
        tried = []
        for candidate, accuracy in zip(self.candidates, self._found(), strict=True):
            entry: dict[str, Any] = {"head": candidate.head, "layers": candidate.layers}
            if candidate.units:
                entry["units"] = candidate.units
            tried.append({**entry, "accuracy": accuracy, "images": int(self.judged)})
        return {"choice": choice_of(tried, int(self.taken))}

    def _found(self) -> list[float | None]:
        """Return the accuracy of each candidate in per cent; None of all before an image was left out."""
        judged = int(self.judged)
        return [100 * right / judged if judged else None for right in self.right.tolist()]

    # -- answering -------------------------------------------------------------------------------------

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return what the candidate that was taken needs."""
        candidate = self._answering()
        return self._solver(candidate).solution(seen)

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return its scores."""
        candidate = self._answering()
        columns = features[:, candidate.first : candidate.last]
        if candidate.head == _DISCRIMINANT:
            weight, bias = solution
            return columns @ weight + bias
        return self._solver(candidate).score(columns, *solution)

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor:
        """Return its scores of rows without each of them alone."""
        return self._without_each(self._answering(), features, labels, seen)

    def _without_each(self, candidate: _Candidate, features: Tensor, labels: Tensor, seen: int) -> Tensor:
        columns = features[:, candidate.first : candidate.last]
        scores = self._solver(candidate).without_each(columns, labels, seen)
        assert scores is not None
        return scores

    def _answering(self) -> _Candidate:
        return self.candidates[int(self.taken)]

    def _holders(self) -> list[_Candidate]:
        """Return a candidate for each of the sums, which reads the columns that these hold."""
        whole = next(one for one in self.candidates if one.head == _REGRESSION)
        return [whole] if self.with_units is None else [whole, self.candidates[-1]]

    def _all_sums(self) -> list[Ridge]:
        return [self.sums] if self.with_units is None else [self.sums, self.with_units]

    def _solver(self, candidate: _Candidate) -> ClosedForm:
        """Return the head that answers as a candidate."""
        if candidate.units:
            assert self.with_units is not None
            return self.with_units
        if candidate.head == _REGRESSION:
            return self.sums
        # a discriminant about the means that the same sums hold
        columns = slice(candidate.first, candidate.last)
        cross = self.sums.cross[:, columns]
        means = cross / self.count.clamp(min=1)[:, None]
        solver = Discriminant(means.shape[1], len(means))
        solver.mean = means
        solver.count = self.count
        few = self.sums.rows_in_range()
        if few is None:
            solver.scatter = (self.sums.gram[0, columns, columns] - cross.T @ means)[None]
        elif means.shape == self.sums.cross.shape:
            solver.few = few
        else:
            away = few.rows[:, columns] - means[few.labels]
            solver.scatter = (away.T @ away)[None]
        solver._targets = self._targets
        return solver


def _candidates(dim: int, layers: int, own: tuple[int, int] | None, units: int) -> list[_Candidate]:
    """Return the candidates, from the one of fewest numbers to the one of most."""
    ridge = _Candidate(_REGRESSION, layers, 0, dim)
    lda = _Candidate(_DISCRIMINANT, layers, 0, dim)
    if own is None or own == (0, dim):
        candidates = [lda, ridge]
    else:
        candidates = [_Candidate(_DISCRIMINANT, 1, *own), ridge, lda]
    if units:
        half = max(layers // 2, 1)
        # the last layers stand last, and all are of one width
        candidates.append(_Candidate(_REGRESSION, half, dim - dim // layers * half, dim, units))
    return candidates
