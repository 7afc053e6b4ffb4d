"""What was measured before a decision, out of a record: the one place that knows how records hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

__all__ = ["Measured", "measured"]


@attrs.frozen(kw_only=True)
class Measured:
    """A measure of one candidate for one decision.

    Attributes:
        task: The task that arrived, from 0.
        set: The candidate.
        name: The measure, with its unit.
        value: What was found; None where the candidate could not be measured.
        error: Its standard error; None where it is not known.
        threshold: What the value was held against; None where no rule reads it.
        nulls: What chance would give, by what is meant with chance.
        reused: Whether the task got this set.
        excluded: Why it was no candidate; empty if it was one.
    """

    task: int
    set: int
    name: str
    value: float | None
    error: float | None
    threshold: float | None
    nulls: Mapping[str, float]
    reused: bool
    excluded: str


def measured(record: Mapping[str, Any]) -> Iterator[Measured]:
    """Yield every measure of every candidate of every decision, in their order."""
    threshold = float(record["config"]["policy"].get("threshold") or 0.0)
    for entry in record.get("decisions", ()):
        for candidate in entry["candidates"]:
            for name, value, error, limit, nulls in _measures(candidate, entry.get("margin", 0.0), threshold):
                yield Measured(
                    task=entry["task"],
                    set=candidate["set"],
                    name=name,
                    value=value,
                    error=error,
                    threshold=limit,
                    nulls={kind: null for kind, null in nulls.items() if null is not None},
                    reused=entry["decision"] == "reuse" and entry["set"] == candidate["set"],
                    excluded=candidate.get("excluded") or "",
                )


def _measures(
    candidate: Mapping[str, Any], margin: float, threshold: float
) -> Iterator[tuple[str, float | None, float | None, float | None, dict[str, float | None]]]:
    """Yield name, value, error, threshold and nulls of what was measured for a candidate."""
    error = candidate.get("z_error")
    yield "Z (degrees)", candidate.get("z"), error, threshold + margin * (error or 0.0), {}
    nulls = {
        "pre-trained space": candidate.get("hfc_pre"),
        "null by rank": candidate.get("null_hfc"),
        "null by energy": candidate.get("energy_null_hfc"),
    }
    yield "HFC (degrees)", candidate.get("hfc"), None, None, nulls
    share = candidate.get("captured")
    if share is not None:
        yield "captured energy (percent)", 100 * share, None, None, {}
