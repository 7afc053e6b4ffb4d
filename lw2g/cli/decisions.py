"""The decisions of a run as rows of tables: a row per candidate and measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lw2g.errors import counted
from lw2g.runtime.console import number

if TYPE_CHECKING:
    from lw2g.api.recorded import Recorded

__all__ = ["DECISION_COLUMNS", "PART_MEANINGS", "decision_rows", "digits", "part_rows", "rank_line"]

Record = Mapping[str, Any]

DECISION_COLUMNS = {
    "task": "counts from 1",
    "decision": "grow: a new set was added; reuse: the task trains an old set",
    "set": "the set that the task got (#0 is the first)",
    "sure": "probability, given the standard error, that without error it would grow or share as it did; of "
    "which set it says nothing",
    "candidate": "a set that was measured for the task",
    "measure": "the measure; `lw2g plugins NAME` describes it",
    "value": "the measure, in its unit",
    "error": "its standard error over images and draws; over draws alone if all images were measured",
    "null": "the value by chance, such as for a random space of the same rank",
    "own": "the value for the set's own tasks, on images that it has not seen",
    "alike": "+: a large value means that the task is similar to the set's; -: that it is dissimilar",
    "n": "images it was computed from",
    "rank": "dimensions of the old space over all sites",
    "excluded": "why a set is not a candidate, or a measure is undefined",
}
_DECIDED = 4
"""The number of columns that describe the decision; the others describe a candidate."""
_ALIKE = 3
"""Up to so many sets without a measure get their own row; more with the same reason share one."""

PART_MEANINGS = {
    "hfc": "hindrance: angle in degrees between the task's gradient and its part outside the set's old "
    "space; 0 if the gradient is orthogonal to it, 90 if it lies in it",
    "hfc_pre": "the same against the space of the task's own pre-trained activations; Z is their difference",
    "null_hfc": "HFC of a random space of the same rank",
    "energy_null_hfc": "HFC of a random combination of the task's activations",
    "above #N": "difference from the value of the reused set (after growth: of the lowest one), and its "
    "standard error, which is smaller since all sets share most of the error",
}


def decision_rows(entry: Record) -> Iterator[tuple[str, ...]]:
    """Yield a row per candidate and measure; only the first shows the task and its decision."""
    decision = str(entry["decision"])
    if entry.get("weight") is not None:
        decision += f" {entry['weight']:.2g}"
    if entry.get("held"):
        decision += " as it is"
    if entry.get("lost"):
        decision += f", loses {entry['lost']:.1%}"
    sure = entry.get("confidence")
    head: tuple[str, ...] = (
        str(entry["task"] + 1),
        decision,
        _set(entry["set"]),
        "-" if sure is None else f"{sure:.0%}",
    )
    several, others = _grouped(entry["candidates"])
    rows: list[tuple[str, ...]] = []
    for candidate in several:
        rows += _candidate(candidate)
    # between the first of these columns, which counts, and the last, which says why
    dashes = ("-",) * (len(DECISION_COLUMNS) - _DECIDED - 2)
    for reason, count in others.items():
        rows.append((counted(count, "other"), *dashes, reason))
    for row in rows or _candidate({}):
        yield (*head, *row)
        head = ("",) * _DECIDED


def _grouped(candidates: Sequence[Record]) -> tuple[list[Record], dict[str, int]]:
    """Return the candidates that get rows, and the number of the others by reason for exclusion.

    In a long stream most sets are full or screened out.
    """
    unmeasured = [candidate for candidate in candidates if not candidate.get("measures")]
    reasons = Counter(_reason(candidate) for candidate in unmeasured)
    others = {reason: count for reason, count in reasons.items() if count > _ALIKE}
    alone = []
    for candidate in candidates:
        if candidate.get("measures") or _reason(candidate) not in others:
            alone.append(candidate)
    return alone, others


def _reason(candidate: Record) -> str:
    """Return why a set was not measured, without numbers."""
    return str(candidate.get("excluded") or "").partition(":")[0]


def _candidate(candidate: Record) -> Iterator[tuple[str, ...]]:
    """Yield a row per measure of a candidate, or a single row without measures."""
    rank = candidate.get("rank")
    last = ("-" if rank is None else str(rank),)
    excluded = candidate.get("excluded") or ""
    name = _set(candidate.get("set"))
    measures = candidate.get("measures", {})
    if not measures:
        # one for each of: measure, four numbers, sign and count
        yield (name, *("-",) * 7, *last, excluded)
    for measure, result in measures.items():
        signs = {1: "+", -1: "-"}
        numbers = (digits(result[key]) for key in ("value", "error", "null", "own"))
        yield (
            name,
            measure,
            *numbers,
            signs[result["alike"]],
            str(result["n"]),
            *last,
            excluded or result["why"] or "",
        )
        # further rows of the candidate repeat neither its name nor its rank
        name = ""
        last = ("",)
        excluded = ""


def rank_line(results: Recorded) -> str:
    """Return which decisions follow from the ranks of spaces alone, in a line; empty for none."""
    tasks = results.decided_by_ranks
    if not tasks:
        return ""
    named = ", ".join(str(task + 1) for task in tasks)
    one = len(tasks) == 1
    return (
        f"the decision{'' if one else 's'} for task{'' if one else 's'} {named} count{'s' if one else ''} "
        f"directions and compare{'s' if one else ''} no tasks: random spaces of the same ranks would have "
        "decided alike"
    )


def part_rows(results: Recorded) -> Iterator[tuple[str, ...]]:
    """Yield the further numbers of each measure: a row per task, candidate and measure."""
    for entry in results.content["decisions"]:
        differences = results.differences(entry)
        for candidate in entry["candidates"]:
            for measure, result in candidate.get("measures", {}).items():
                values = [f"{name} {digits(value)}" for name, value in result["parts"].items()]
                gap = differences.get((candidate["set"], measure))
                if gap is not None:
                    other, difference, error = gap
                    values.append(f"above #{other} {digits(difference)} ± {digits(error)}")
                if values:
                    yield str(entry["task"] + 1), _set(candidate["set"]), measure, ", ".join(values)


def digits(value: float | None) -> str:
    """Return a value with three digits, or with two decimals if it is large."""
    if value is None or abs(value) >= 10:
        return number(value)
    return f"{value:.3g}"


def _set(set_id: int | None) -> str:
    return "-" if set_id is None else f"#{set_id}"
