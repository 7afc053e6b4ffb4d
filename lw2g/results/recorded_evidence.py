"""The evidence of decisions, read from a record: the one place that knows its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from lw2g.interfaces.growth import error_of_difference

__all__ = ["MeasureRow", "apart", "measured"]

Entry = Mapping[str, Any]
_Differences = Mapping[tuple[int, str], tuple[int, float, float | None]]


@attrs.frozen(kw_only=True)
class MeasureRow:
    """A measure of one candidate for one decision.

    Attributes:
        name: The measure, with its unit.
        value: Its value; None if the candidate could not be measured.
        error: Its standard error; None if unknown.
        apart: The reference set, the difference from its value, and that difference's standard error
            (:func:`apart`).
        threshold: The threshold of the policy's rule; None if no rule reads the measure.
        nulls: Values by chance and other values to compare with, by name.
        task: The new task, from 0.
        set: The candidate.
        reused: Whether the task got this set.
        excluded: Why it was not a candidate, or could not be measured; empty otherwise.
    """

    name: str
    value: float | None
    error: float | None = None
    apart: tuple[int, float, float | None] | None = None
    threshold: float | None = None
    nulls: Mapping[str, float | None] = attrs.field(factory=dict)
    task: int = 0
    set: int = 0
    reused: bool = False
    excluded: str = ""


def measured(record: Mapping[str, Any]) -> Iterator[MeasureRow]:
    """Yield every measure of every candidate of every decision, in order."""
    entries = record.get("decisions", ())
    # a candidate without a measure has a row as well, among those of the first measure: the page says why
    unmeasured = MeasureRow(name=_first_name(entries), value=None)
    for entry in entries:
        differences = apart(entry)
        for candidate in entry["candidates"]:
            for measure in _measures(candidate, entry, differences) or [unmeasured]:
                yield attrs.evolve(
                    measure,
                    task=entry["task"],
                    set=candidate["set"],
                    nulls={kind: null for kind, null in measure.nulls.items() if null is not None},
                    reused=entry["decision"] != "grow" and entry["set"] == candidate["set"],
                    excluded=candidate.get("excluded") or measure.excluded,
                )


def _first_name(entries: Sequence[Entry]) -> str:
    """Return the name of the first measure in a run's decisions."""
    for entry in entries:
        for candidate in entry["candidates"]:
            for name, measure in candidate.get("measures", {}).items():
                return _with_unit(name, measure)
    return "nothing"


def _with_unit(name: str, measure: Entry) -> str:
    if not measure["unit"]:
        return name
    return f"{name} ({measure['unit']})"


def _measures(candidate: Entry, entry: Entry, differences: _Differences) -> list[MeasureRow]:
    """Return the measures of a candidate."""
    results = []
    for name, measure in candidate.get("measures", {}).items():
        nulls = {"null": measure["null"], "own tasks": measure["own"], "permuted labels": measure["shuffled"]}
        results.append(
            MeasureRow(
                name=_with_unit(name, measure),
                value=measure["value"],
                error=measure["error"],
                apart=differences.get((candidate["set"], name)),
                threshold=entry.get("limits", {}).get(name, {}).get(str(candidate["set"])),
                nulls=nulls,
                excluded=measure["why"] or "",
            )
        )
        if "hfc" in measure["parts"]:
            results.append(_angles(measure["parts"]))
    if candidate.get("captured") is not None:
        results.append(MeasureRow(name="captured energy (percent)", value=100 * candidate["captured"]))
    return results


def apart(entry: Entry) -> _Differences:
    """Return the differences of a decision's measures from those of a reference set.

    The reference is the reused set or, if that was not measured or the pool grew, the set of lowest value.

    Returns:
        By set and measure: the reference, the difference, and its standard error.
    """
    differences = {}
    for name, measured in _measured(entry["candidates"]).items():
        reference = entry["set"]
        if reference not in measured:
            reference = min(measured, key=lambda set_id: measured[set_id]["value"])
        of_reference = measured[reference]
        for set_id, of_set in measured.items():
            if set_id == reference:
                continue
            difference = of_set["value"] - of_reference["value"]
            # the error of paired differences, because both were measured on the same samples
            error = error_of_difference(of_set.get("replicates", ()), of_reference.get("replicates", ()))
            differences[set_id, name] = (reference, difference, error)
    return differences


def _measured(candidates: Sequence[Entry]) -> dict[str, dict[int, Entry]]:
    """Return by measure and set what was measured; nothing of sets without a value."""
    by_name: dict[str, dict[int, Entry]] = {}
    for candidate in candidates:
        for name, measure in candidate.get("measures", {}).items():
            if measure["value"] is not None:
                by_name.setdefault(name, {})[candidate["set"]] = measure
    return by_name


def _angles(parts: Entry) -> MeasureRow:
    """Return the angle behind Z, with its own nulls."""
    return MeasureRow(
        name="HFC (degrees)",
        value=parts["hfc"],
        nulls={
            "pre-trained space": parts["hfc_pre"],
            "null by rank": parts["null_hfc"],
            "null by energy": parts["energy_null_hfc"],
        },
    )
