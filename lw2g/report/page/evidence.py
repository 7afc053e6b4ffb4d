"""What was measured before a decision, out of a record: the one place that knows how records hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from lw2g.interfaces.growth import error_of_difference

__all__ = ["Measured", "apart", "measured"]

Said = Mapping[str, Any]
_Differences = Mapping[tuple[int, str], tuple[int, float, float | None]]


@attrs.frozen(kw_only=True)
class Measured:
    """A measure of one candidate for one decision.

    Attributes:
        name: The measure, with its unit.
        value: What was found; None where the candidate could not be measured.
        error: Its standard error; None where it is not known.
        apart: With which set it is compared, how far it lies above that, and the standard error of the
            difference (:func:`apart`).
        threshold: What the value was held against; None where no rule reads it.
        nulls: What chance would give, and others to compare with, by what they are.
        task: The task that arrived, from 0.
        set: The candidate.
        reused: Whether the task got this set.
        excluded: Why it was no candidate, or could not be measured; empty otherwise.
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


def measured(record: Mapping[str, Any]) -> Iterator[Measured]:
    """Yield every measure of every candidate of every decision, in their order."""
    made = record.get("decisions", ())
    names = [name for entry in made for candidate in entry["candidates"] for name in _names(candidate)]
    for entry in made:
        differences = apart(entry)
        for candidate in entry["candidates"]:
            found = _measures(candidate, entry, record["config"]["policy"], differences)
            for one in found or [Measured(name=names[0] if names else "nothing", value=None)]:
                yield attrs.evolve(
                    one,
                    task=entry["task"],
                    set=candidate["set"],
                    nulls={kind: null for kind, null in one.nulls.items() if null is not None},
                    reused=entry["decision"] == "reuse" and entry["set"] == candidate["set"],
                    excluded=candidate.get("excluded") or one.excluded,
                )


def _names(candidate: Said) -> Iterator[str]:
    """Yield what the measures of a candidate are called, with their units."""
    for name, said in candidate.get("measures", {}).items():
        yield f"{name} ({said['unit']})" if said["unit"] else name


def _measures(candidate: Said, entry: Said, policy: Said, differences: _Differences) -> list[Measured]:
    """Return what was measured of a candidate."""
    measures = candidate.get("measures")
    found = _before_measures(candidate, entry, policy) if measures is None else []
    for title, (name, said) in zip(_names(candidate), (measures or {}).items(), strict=True):
        nulls = {"null": said["null"], "own tasks": said["own"], "permuted labels": said["shuffled"]}
        found.append(
            Measured(
                name=title,
                value=said["value"],
                error=said["error"],
                apart=differences.get((candidate["set"], name)),
                threshold=entry.get("limits", {}).get(name, {}).get(str(candidate["set"])),
                nulls=nulls,
                excluded=said["why"] or "",
            )
        )
        if "hfc" in said["parts"]:
            found.append(_angles(said["parts"]))
    if candidate.get("captured") is not None:
        found.append(Measured(name="captured energy (percent)", value=100 * candidate["captured"]))
    return found


def apart(entry: Said) -> _Differences:
    """Return of a decision how far the measures of its sets lie above that of one of them.

    That one was reused or, where it was not measured or none was, it is the one of the least value.

    Returns:
        By set and measure: the set that it is compared with, the difference, and its standard error.
    """
    known: dict[str, dict[int, Said]] = {}
    for candidate in entry["candidates"]:
        for name, said in candidate.get("measures", {}).items():
            if said["value"] is not None:
                known.setdefault(name, {})[candidate["set"]] = said
    found = {}
    for name, sets in known.items():
        other = entry["set"] if entry["set"] in sets else min(sets, key=lambda one: sets[one]["value"])
        for number, said in sets.items():
            if number != other:
                pair = (one.get("replicates", ()) for one in (said, sets[other]))
                found[number, name] = other, said["value"] - sets[other]["value"], error_of_difference(*pair)
    return found


def _angles(parts: Said) -> Measured:
    """Return the angle behind Z with its own nulls."""
    return Measured(
        name="HFC (degrees)",
        value=parts["hfc"],
        nulls={
            "pre-trained space": parts["hfc_pre"],
            "null by rank": parts["null_hfc"],
            "null by energy": parts["energy_null_hfc"],
        },
    )


def _before_measures(candidate: Said, entry: Said, policy: Said) -> list[Measured]:
    """Return Z and its angle out of a record that was written when there was no other evidence."""
    error, limit = candidate.get("z_error"), float(policy.get("threshold") or 0.0)
    return [
        Measured(
            name="hindrance (degrees)",
            value=candidate.get("z"),
            error=error,
            threshold=limit + entry.get("margin", 0.0) * (error or 0.0),
        ),
        _angles(candidate),
    ]
