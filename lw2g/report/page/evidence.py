"""What was measured before a decision, out of a record: the one place that knows how records hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

__all__ = ["Measured", "measured"]

Said = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Measured:
    """A measure of one candidate for one decision.

    Attributes:
        name: The measure, with its unit.
        value: What was found; None where the candidate could not be measured.
        error: Its standard error; None where it is not known.
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
        for candidate in entry["candidates"]:
            found = _measures(candidate, entry, record["config"]["policy"])
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


def _measures(candidate: Said, entry: Said, policy: Said) -> list[Measured]:
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
