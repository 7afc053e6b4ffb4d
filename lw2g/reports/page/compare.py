"""Numbers that compare configurations: one line, bar or point per row of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lw2g.reports.columns import COLUMNS
from lw2g.reports.page.numbers import Numbers, Value, mean
from lw2g.reports.runs import ReportedRun
from lw2g.reports.statistics import summary
from lw2g.reports.table import Row

__all__ = ["costs", "curves", "differences", "paper", "pareto", "times"]

_COMPARED = ("faa", "ffm", "bwt", "pra", "total_s")
"""Columns with drawn paired differences."""


def curves(rows: Sequence[Row]) -> Numbers:
    """Return mean accuracy over the seen tasks after each task: row, task, mean, low, high, n, control.

    A run that learned all tasks at once has a single value, drawn as a level line.
    """
    last = max((len(_curve(row.runs[0])) for row in rows), default=0)
    numbers: list[Sequence[Value]] = []
    for row in rows:
        lines = [_curve(run) for run in row.runs]
        level = row.runs[0].tasks == 1
        for after in range(last if level else len(lines[0])):
            over = summary([curve[0 if level else after] for curve in lines])
            if over.mean is None:  # nothing was measured after this task
                continue
            half = over.std or 0.0
            middle = over.mean
            numbers.append((row.label, after + 1, middle, middle - half, middle + half, over.n, row.control))
    return Numbers(rows=numbers)


def _curve(run: ReportedRun) -> list[float | None]:
    matrix = run.record["accuracy_matrix"]
    course = []
    for after in range(len(matrix)):
        known = [row[after] for row in matrix[: after + 1] if row[after] is not None]
        course.append(mean(known) if known else None)  # nothing was measured after this task
    return course


# -- prices ----------------------------------------------------------------------------------------------


def _vectors(run: ReportedRun) -> float | None:
    prompts, bases = (COLUMNS[f"{name}_vectors"].of(run.record) for name in ("prompt", "basis"))
    return None if prompts is None or bases is None else prompts + bases


def _numbers(run: ReportedRun) -> float | None:
    added, beside = (COLUMNS[name].of(run.record) for name in ("parameters", "statistics"))
    return None if added is None or beside is None else added + beside


def _column(name: str) -> Callable[[ReportedRun], float | None]:
    return lambda run: COLUMNS[name].of(run.record)


_PRICES: Mapping[str, Callable[[ReportedRun], float | None]] = {
    "sets": _column("ssp"),
    "vectors kept (prompts and bases)": _vectors,
    "numbers kept (parameters and statistics)": _numbers,
    "seconds of the whole run": _column("total_s"),
    "milliseconds a test image": _column("test_ms"),
}


def pareto(rows: Sequence[Row]) -> Numbers:
    """Return FAA against prices: row, price, its mean, FAA, their deviations, n, best, control.

    A row is among the best if no other row dominates it in FAA and price; controls never are.
    """
    points: list[Sequence[Value]] = []
    steps = []
    for price, of in _PRICES.items():
        priced = [
            (row, summary([of(run) for run in row.runs]), row.summary(COLUMNS["faa"]))
            for row in rows
            if any(map(of, row.runs))
        ]
        complete = [
            (row, cost, faa) for row, cost, faa in priced if cost.mean is not None and faa.mean is not None
        ]
        rivals = [(cost.mean or 0.0, faa.mean or 0.0) for row, cost, faa in complete if not row.control]
        for row, cost, faa in complete:
            point = (cost.mean or 0.0, faa.mean or 0.0)
            best = not row.control and not any(_dominates(other, point) for other in rivals)
            points.append((row.label, price, *point, cost.std, faa.std, len(row.runs), best, row.control))
            if best:
                steps.append({"price": price, "cost": point[0], "faa": point[1]})
    why = "" if len({row[0] for row in points}) > 1 else "there are no two finished rows to compare"
    return Numbers(rows=points, extra={"best": steps}, why=why)


def _dominates(point: tuple[float, float], other: tuple[float, float]) -> bool:
    return point != other and point[0] <= other[0] and point[1] >= other[1]


_COSTS = (
    ("vectors of the backbone's width", "prompts", "prompt_vectors"),
    ("vectors of the backbone's width", "bases", "basis_vectors"),
    ("numbers kept", "parameters", "parameters"),
    ("numbers kept", "statistics", "statistics"),
    ("MFLOP of a training step, per image", "training", "training_mflop"),
    ("MFLOP of a prediction, per image", "inference", "inference_mflop"),
)


def costs(rows: Sequence[Row]) -> Numbers:
    """Return storage and operations: row, kind, part, mean over runs."""
    values = [
        (row.label, kind, part, value)
        for row in rows
        for kind, part, name in _COSTS
        if (value := row.summary(COLUMNS[name]).mean) is not None
    ]
    return Numbers(rows=values, why="" if values else "the records have neither storage nor operations")


def times(rows: Sequence[Row]) -> Numbers:
    """Return mean seconds of a run by part: row, part, seconds."""
    parts = ("evidence", "training", "subspace", "evaluation")
    values: list[Sequence[Value]] = []
    for row in rows:
        clocks = [run.record.get("seconds", {}) for run in row.runs]
        if not all("total" in clock for clock in clocks):
            continue
        seconds = {part: mean(clock.get(part, 0.0) for clock in clocks) for part in parts}
        rest = mean(clock["total"] for clock in clocks) - sum(seconds.values())
        values += [(row.label, part, value) for part, value in {**seconds, "other": max(rest, 0.0)}.items()]
    return Numbers(rows=values, why="" if values else "the records have no times")


# -- comparisons -----------------------------------------------------------------------------------------


def paper(rows: Sequence[Row]) -> Numbers:
    """Return published values beside ours: row, metric, theirs, std, ours, std, n, source, differences."""
    values: list[Sequence[Value]] = []
    for row in rows:
        for name, printed in row.paper.items():
            ours = row.summary(COLUMNS[name])
            if ours.mean is not None:
                theirs = (printed.value, printed.std, ours.mean, ours.std, ours.n, printed.told)
                values.append((row.label, _title(name), *theirs, "; ".join(printed.differs)))
    return Numbers(rows=values, why="" if values else "no paper reports these configurations")


def differences(rows: Sequence[Row]) -> Numbers:
    """Return paired differences of all rows: against, row, metric, mean, low, high, pairs."""
    values = list(_differences(rows))
    why = "" if values else "no two finished rows have runs of the same seed and class order"
    return Numbers(rows=values, why=why)


def _differences(rows: Sequence[Row]) -> Iterator[Sequence[Value]]:
    for other in rows:
        for row in rows:
            if row is other:
                continue
            for name in _COMPARED:
                gap = row.difference(other, COLUMNS[name])
                if gap is not None:
                    ends = (None, None) if gap.half is None else (gap.mean - gap.half, gap.mean + gap.half)
                    yield (other.label, row.label, _title(name), gap.mean, *ends, gap.n)


def _title(name: str) -> str:
    return {"total_s": "seconds"}.get(name, name.replace("_", " ").upper())
