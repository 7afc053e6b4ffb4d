"""From what a measure says to how a set stands: the one comparison that all rules by evidence make.

A set's *standing* is how far its measure lies beyond the threshold towards sharing, in the scale of the
comparison. By the reading ``affinity`` like tasks share; by ``hindrance`` unlike ones do (LW2G, API). The
burden of proof says for which decision noise speaks: under ``reuse`` a set is shared only if its standing
is positive by so many errors, under ``grow`` one is added only if every set's standing is negative by so
many. An unknown error proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
import numpy as np

from lw2g.interfaces.growth import Burden, CandidateEvidence, Evidence, Measured

__all__ = ["Reading", "Rule", "Scale", "Standing", "beyond", "probability_of_sharing"]

Reading = Literal["affinity", "hindrance"]
Scale = Literal["value", "chance", "position", "errors"]
"""What is held against the threshold: the value; less its null; its position between null (0) and what the
set's own tasks give (1), undefined where these lie within two errors; the value less its null in errors."""

_ALIKE = 2.0
_QUANTILE = 0.95
_DRAWN = 4000


@attrs.frozen(kw_only=True)
class Standing:
    """A set that can be reused and of which the measure is defined.

    Attributes:
        set: The set's id.
        value: How far beyond the threshold, towards sharing.
        slope: Its change per unit of the measure.
        error: Its standard error; None where it is unknown.
        replicates: Deviations of the value under resampling.
        evidence: All that was measured of the set.
    """

    set: int
    value: float
    slope: float
    error: float | None
    replicates: tuple[float, ...] = ()
    evidence: CandidateEvidence

    def held(self, margin: float) -> float:
        """Return what so many errors amount to, infinite where the error is unknown."""
        if margin <= 0:
            return 0.0
        return math.inf if self.error is None else margin * self.error


@attrs.frozen(kw_only=True)
class Rule:
    """How a measure is read.

    Attributes:
        measure: Its name.
        reading: Whether tasks alike share, or tasks unlike.
        scale: What is compared.
        threshold: With what, in that scale.
        margin: Standard errors that prove something.
        burden: What has to be proved.
        least_of_many: Whether the margin is at least that of the most extreme of all sets, found by
            resampling: the more there are, the farther out noise alone puts one of them.
    """

    measure: str = "hindrance"
    reading: Reading = "hindrance"
    scale: Scale = "value"
    threshold: float = 0.0
    margin: float = 0.0
    burden: Burden = "grow"
    least_of_many: bool = False

    def standings(self, evidence: Evidence) -> list[Standing]:
        """Return how the candidates stand, in the order of their ids, where anything is known."""
        found = []
        for candidate in sorted(evidence.eligible, key=lambda one: one.set):
            measured = candidate.measures.get(self.measure)
            if measured is None or measured.value is None:
                continue
            compared = self._compared(measured)
            if compared is None:
                continue
            value, per_unit, alike = compared
            sign = alike if self.reading == "affinity" else -alike
            found.append(
                Standing(
                    set=candidate.set,
                    value=sign * (value - self.threshold),
                    slope=sign * per_unit,
                    error=None if measured.error is None else measured.error * abs(per_unit),
                    replicates=tuple(sign * one * per_unit for one in measured.replicates),
                    evidence=candidate,
                )
            )
        return found

    def shareable(self, standings: Sequence[Standing]) -> list[Standing]:
        """Return the sets that may be shared by their standing, the margin and the burden of proof.

        Under the burden ``grow`` these are all sets, or none.
        """
        margin = self._margin(standings)
        if self.burden == "reuse":
            return [one for one in standings if one.value - one.held(margin) > 0]
        return list(standings) if any(one.value + one.held(margin) >= 0 for one in standings) else []

    def limits(self, standings: Sequence[Standing]) -> dict[int, float]:
        """Return by sets the value of the measure at which they begin to be shared, where that is finite."""
        found, margin = {}, self._margin(standings)
        for one in standings:
            # the standing that is needed, and from there back to the measure, which it is linear in
            needed = one.held(margin) if self.burden == "reuse" else -one.held(margin)
            value = one.evidence.measures[self.measure].value
            if value is not None and math.isfinite(needed):
                found[one.set] = value + (needed - one.value) / one.slope
        return found

    def _margin(self, standings: Sequence[Standing]) -> float:
        """Return the standard errors that prove something about these sets."""
        if self.least_of_many and self.margin > 0:
            return max(self.margin, _critical(standings))
        return self.margin

    def _compared(self, measured: Measured) -> tuple[float, float, int] | None:
        """Return what is compared, its change per unit of the measure, and what a large one means."""
        value, null, own, error = measured.value, measured.null, measured.own, measured.error or 0.0
        if value is None or self.scale == "value":
            return None if value is None else (value, 1.0, measured.alike)
        if null is None:
            return None
        if self.scale == "chance":
            return value - null, 1.0, measured.alike
        if self.scale == "errors":
            per = 1 / error if error else math.inf
            return ((value - null) * per, per, measured.alike) if per < math.inf else None
        if own is None or own == null or abs(own - null) < _ALIKE * error:
            return None
        return (value - null) / (own - null), 1 / (own - null), 1


def probability_of_sharing(standing: Standing) -> float | None:
    """Return the probability that the standing is positive, if errors are normal; None without an error."""
    if not standing.error:
        return None
    return 0.5 * (1 + math.erf(standing.value / standing.error / math.sqrt(2)))


def beyond(rule: Rule, measured: Measured, site: Mapping[str, float | None]) -> bool | None:
    """Return whether one site of a measure lies beyond a rule's threshold; None where it is undefined."""
    value, null = site.get("value"), site.get("null")
    if value is None or (rule.scale == "chance" and null is None):
        return None
    sign = measured.alike if rule.reading == "affinity" else -measured.alike
    return sign * (value - (null or 0.0 if rule.scale == "chance" else 0.0) - rule.threshold) > 0


def _critical(standings: Sequence[Standing]) -> float:
    """Return the margin that the most extreme of all sets exceeds by noise in one of twenty cases (max-t)."""
    errors = [one.error for one in standings]
    lengths = {len(one.replicates) for one in standings}
    if not standings or not all(errors) or len(lengths) != 1 or lengths == {0}:
        return 0.0
    table = np.array([one.replicates for one in standings]) / np.array(errors)[:, None]
    # normal deviations that are correlated as the sets' errors are (multiplier bootstrap)
    drawn = np.random.default_rng(0).normal(scale=table.shape[1] ** -0.5, size=(table.shape[1], _DRAWN))
    return float(np.quantile((table @ drawn).max(axis=0), _QUANTILE))
