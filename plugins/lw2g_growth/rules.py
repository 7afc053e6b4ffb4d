"""From a measure to the standing of a set: the comparison behind all rules by evidence.

A set's *standing* is how far its measure lies beyond the threshold towards sharing, in the scale of the
comparison. By the reading ``affinity`` like tasks share; by ``hindrance`` unlike ones do (LW2G, API). The
burden of proof says which decision noise favours: under ``reuse`` a set is shared only if its standing
is positive by so many errors, under ``grow`` one is added only if every set's standing is negative by so
many. An unknown error proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from lw2g.plugin import Burden, CandidateEvidence, Evidence, Measurement

__all__ = ["Reading", "Rule", "Scale", "Standing", "beyond", "probability_of_sharing"]

Reading = Literal["affinity", "hindrance"]
Scale = Literal["value", "chance", "position", "errors"]
"""What is compared with the threshold: the value; less its null; its position between null (0) and what the
set's own tasks give (1), undefined where these lie within two errors; the value less its null in errors."""

_ALIKE = 2.0
"""Errors within which two values count as one: a position between them would be noise."""


@attrs.frozen(kw_only=True)
class Standing:
    """A set that can be reused and has a defined measure.

    Attributes:
        set: The set's id.
        value: How far beyond the threshold, towards sharing.
        slope: Its change per unit of the measure.
        error: Its standard error; None where it is unknown.
        evidence: All that was measured of the set.
    """

    set: int
    value: float
    slope: float
    error: float | None
    evidence: CandidateEvidence

    def margin_of(self, errors: float) -> float:
        """Return so many standard errors in units of ``value``, infinite where the error is unknown."""
        if errors <= 0:
            return 0.0
        if self.error is None:
            return math.inf
        return errors * self.error


@attrs.frozen(kw_only=True)
class Rule:
    """How a measure is read.

    Attributes:
        measure: Its name.
        reading: Whether tasks alike share, or tasks unlike.
        scale: What is compared.
        threshold: What it is compared with, in that scale.
        margin: Standard errors that prove something.
        burden: The decision that has to be proved.
    """

    measure: str = "hindrance"
    reading: Reading = "hindrance"
    scale: Scale = "value"
    threshold: float = 0.0
    margin: float = 0.0
    burden: Burden = "grow"

    @classmethod
    def of(cls, config: Any, begin: Mapping[str, float] | None = None, **fixed: Any) -> Rule:
        """Return the rule of a policy.

        Args:
            config: The policy's options; those called like an attribute of a rule set it.
            begin: Scale -> threshold where the option is empty; 0 in other scales.
            **fixed: Attributes that no option sets.
        """
        rule = dict(fixed)
        for name in attrs.fields_dict(cls):
            if hasattr(config, name):
                rule[name] = getattr(config, name)
        # None is an empty option: the published threshold, which only the published scale has
        if rule.get("threshold", 0.0) is None:
            rule["threshold"] = (begin or {}).get(rule["scale"], 0.0)
        return cls(**rule)

    def standings(self, evidence: Evidence) -> list[Standing]:
        """Return how the candidates stand, in the order of their ids, where anything is known."""
        standings = []
        for candidate in sorted(evidence.eligible, key=lambda candidate: candidate.set):
            measured = candidate.measures.get(self.measure)
            if measured is None or measured.value is None:
                continue
            compared = self._compared(measured)
            if compared is None:
                continue
            value, per_unit, alike = compared
            sign = alike if self.reading == "affinity" else -alike
            error = None
            if measured.error is not None:
                # all scales are linear in the measure
                error = measured.error * abs(per_unit)
            standings.append(
                Standing(
                    set=candidate.set,
                    value=sign * (value - self.threshold),
                    slope=sign * per_unit,
                    error=error,
                    evidence=candidate,
                )
            )
        return standings

    def shareable(self, standings: Sequence[Standing]) -> list[Standing]:
        """Return the sets that may be shared by their standing, the margin and the burden of proof.

        Under the burden ``grow`` these are all sets, or none.
        """
        if self.burden == "reuse":
            proved = []
            for standing in standings:
                if standing.value - standing.margin_of(self.margin) > 0:
                    proved.append(standing)
            return proved
        # LW2G grows iff min Z > 0: one set that does not prove to hinder is enough to share, and then the
        # policy may pick among all. At Z = 0 it shares.
        for standing in standings:
            if standing.value + standing.margin_of(self.margin) >= 0:
                return list(standings)
        return []

    def limits(self, standings: Sequence[Standing]) -> dict[int, float]:
        """Return by set the value of the measure from which the set may be shared, where that is finite."""
        limits = {}
        for standing in standings:
            needed = standing.margin_of(self.margin)
            if self.burden == "grow":  # noise speaks for sharing: less than the threshold is enough
                needed = -needed
            # the standing is linear in the measure
            value = standing.evidence.measures[self.measure].value
            if value is not None and math.isfinite(needed):
                limits[standing.set] = value + (needed - standing.value) / standing.slope
        return limits

    def _compared(self, measured: Measurement) -> tuple[float, float, int] | None:
        """Return the compared value, its change per unit of the measure, and its sign towards likeness."""
        value = measured.value
        null = measured.null
        own = measured.own
        error = measured.error or 0.0
        if value is None:
            return None
        if self.scale == "value":
            return value, 1.0, measured.alike
        if null is None:
            return None
        if self.scale == "chance":
            return value - null, 1.0, measured.alike
        if self.scale == "errors":
            per_unit = 1 / error if error else math.inf
            if math.isinf(per_unit):  # no error to count in
                return None
            return (value - null) * per_unit, per_unit, measured.alike
        if own is None or own == null or abs(own - null) < _ALIKE * error:
            return None
        # its own tasks lie at 1, so a large position is always likeness, whatever the sign of the measure
        return (value - null) / (own - null), 1 / (own - null), 1


def probability_of_sharing(standing: Standing) -> float | None:
    """Return the probability that the standing is positive, if errors are normal; None without an error."""
    if not standing.error:
        return None
    return 0.5 * (1 + math.erf(standing.value / standing.error / math.sqrt(2)))


def beyond(rule: Rule, measured: Measurement, site: Mapping[str, float | None]) -> bool | None:
    """Return whether one site of a measure lies beyond a rule's threshold; None where it is undefined."""
    value = site.get("value")
    if value is None:
        return None
    if rule.scale == "chance":
        null = site.get("null")
        if null is None:
            return None
        value -= null
    sign = measured.alike if rule.reading == "affinity" else -measured.alike
    return sign * (value - rule.threshold) > 0
