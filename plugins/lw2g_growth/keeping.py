"""Keep or drop: train a new set first, then ask whether it was worth it.

``gain = error(new) - error(m)``, in percent of ``error(new)``, on training images set apart; ``error(m)`` is
the lesser of an old set as it is and, of the newest one, trained on under the run's constraints. Each image
is asked by a regression from features to classes that was fitted to the other ones, so that errors are
paired. A positive gain means that the old set does better without a new one. It says nothing about retrieval
and forgetting. To train first and to ask then is LiteLoRA's order (arXiv 2606.28117); its price of a set,
tuned for each data set, is no part of this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lw2g.plugin import Decision, Evidence, Grow, Measure, Measurement, Reuse, Sample
from lw2g_growth.policies import RulePolicy
from lw2g_growth.rules import Standing, probability_of_sharing

__all__ = ["KeepPolicy", "Outcome"]

_AS_IT_IS, _TRAINED = "as it is", "trained on"
"""What may be done with an old set: parts of the measure, each the mean error."""
_LEAST = 1e-12
"""An error to divide by."""


class Outcome(Measure):
    """The error on images set apart that a set saves over a new one, which is trained to the end."""

    needs = frozenset(("outcome",))

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the gain of every candidate."""
        if not sample.candidates:
            return {}
        new = sample.outcome(None, True)  # of a new set, trained
        percent = 100 / max(float(new.mean()), _LEAST)
        newest = max(sample.task_to_set)
        by_set = {}
        for candidate in sample.candidates:
            errors = {_AS_IT_IS: sample.outcome(candidate.set, False)}
            # of an older set only what it is: to train each on the task would be as dear as the run
            if candidate.set == newest:
                errors[_TRAINED] = sample.outcome(candidate.set, True)
            means = {name: float(each.mean()) for name, each in errors.items()}
            better = min(means, key=means.__getitem__)
            gains = percent * (new - errors[better])  # [images], paired
            error = float(gains.std()) / math.sqrt(len(gains)) if len(gains) > 1 else None
            by_set[candidate.set] = Measurement(
                value=float(gains.mean()),
                error=error,
                null=0.0,  # as good as the new set
                n=len(gains),
                unit="% of the new set's error",
                parts={"new": float(new.mean())} | means,
            )
        return by_set


class KeepPolicy(RulePolicy):
    """Keep the new set if it beats the best old one by a margin; else drop it, and that one gets the task."""

    def __init__(self, config: Any) -> None:
        """Compare outcomes: what has to be proved is that the new set is worth keeping."""
        super().__init__(config, measure="outcome", reading="affinity", burden="grow")

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; where an old set is as good as it is, nothing trains it."""
        best = self._best(evidence)
        if best is None:
            return Grow()
        probability = probability_of_sharing(best)
        # a new set has to be better by more than the margin
        if best.value + best.margin_of(self.margin) < 0:
            return Grow(confidence=None if probability is None else 1 - probability)
        means = best.evidence.measures["outcome"].parts
        as_it_is, trained = means.get(_AS_IT_IS), means.get(_TRAINED)
        held = as_it_is is not None and (trained is None or as_it_is <= trained)
        return Reuse(best.set, held=held, confidence=probability)

    def limits(self, evidence: Evidence) -> dict[str, dict[int, float]]:
        """Return the limit of the best set, which decides alone."""
        best = self._best(evidence)
        return {self.rule.measure: {} if best is None else self.rule.limits([best])}

    def _best(self, evidence: Evidence) -> Standing | None:
        """Return the old set of greatest gain, of equals that of lowest id; None where nothing is known."""
        return max(self.rule.standings(evidence), key=lambda standing: standing.value, default=None)
