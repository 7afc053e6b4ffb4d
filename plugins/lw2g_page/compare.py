"""Numbers that compare configurations: one line, bar or point per row of the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, permutations

import attrs

from lw2g.interfaces.defaults import FEATURES_BENCHMARK
from lw2g.results.columns import COLUMNS
from lw2g.results.found_runs import ReportedRun
from lw2g.results.run_draws import number_of_draws
from lw2g.results.table import Row
from lw2g_page.numbers import Numbers, Value, mean

__all__ = ["costs", "curves", "differences", "paper", "pareto", "times"]

_COMPARED = ("faa", "ffm", "pra")
"""Columns with drawn paired differences."""


def curves(rows: Sequence[Row]) -> Numbers:
    """Return mean accuracy over the seen tasks after each task: row, task, mean, low, high, n, control.

    A run that learned all tasks at once has a single value, drawn as a level line.
    """
    last = max((len(_curve(row.runs[0])) for row in rows), default=0)
    numbers: list[Sequence[Value]] = []
    labels_of_curve: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for row in rows:
        means = []
        lines = [_curve(run) for run in row.runs]
        if row.runs[0].tasks == 1:
            lines = [line * last for line in lines]
        for after, values in enumerate(zip(*lines, strict=True)):
            over = row.over(values)
            if over.mean is None:  # nothing was measured after this task
                continue
            half = over.std or 0.0
            middle = over.mean
            ends = (middle, middle - half, middle + half)
            numbers.append((row.label, after + 1, *ends, row.number, row.control))
            means.append(round(middle, 2))
        labels_of_curve[tuple(means)].append(row.label)
    # one hides the other: without a word a reader looks for it in vain
    facts = [f"{', '.join(labels)}: the same curve" for labels in labels_of_curve.values() if len(labels) > 1]
    return Numbers(rows=numbers, facts=facts)


def _curve(run: ReportedRun) -> list[float | None]:
    """Return the mean accuracy after each task over the seen ones that have test images; None without any."""
    matrix = run.record["accuracy_matrix"]
    curve = []
    for after in range(len(matrix)):
        known = [row[after] for row in matrix[: after + 1] if row[after] is not None]
        curve.append(mean(known) if known else None)
    return curve


# -- prices ----------------------------------------------------------------------------------------------


def _sum(run: ReportedRun, names: Sequence[str]) -> float | None:
    """Return the sum of columns of a run; None where one of them has no value."""
    total = 0.0
    for name in names:
        value = COLUMNS[name].of(run.record)
        if value is None:
            return None
        total += value
    return total


_SETS = "sets"

_PRICES: Mapping[str, Sequence[str]] = {
    _SETS: ("ssp",),
    "vectors kept (in all sets and bases)": ("prompt_vectors", "basis_vectors"),
    "numbers kept (parameters and statistics)": ("parameters", "statistics"),
    "seconds of the whole run": ("total_s",),
    "MFLOP of a prediction, per image": ("inference_mflop",),
}
"""The columns whose sum is a price."""


def pareto(rows: Sequence[Row]) -> Numbers:
    """Return FAA against prices: row, price, its mean, FAA, their deviations, n, best, control.

    A row is among the best if no other row dominates it in FAA and price; controls never are. Rows that have
    no sets, or whose records do not tell a price, are named.
    """
    numbers: list[Sequence[Value]] = []
    facts = []
    steps = []
    for price, names in _PRICES.items():
        priced = []
        rivals = []
        unknown = []
        for row in rows:
            point = _point(row, names)
            if point is None:
                unknown.append(row.label)
                continue
            priced.append(point)
            if not row.control:
                rivals.append(point)
        least = 1.0 if price == _SETS else 0.0
        # a price that one row alone has compares nothing, nor does one of which all rows have the least
        if len(priced) < 2 or not any(point.cost > least for point in priced):
            continue
        shown = {f"{point.cost:.3g}" for point in priced}
        if len(shown) == 1:  # an axis would have one number at every tick
            others = f" (not told of {'; '.join(unknown)})" if unknown else ""
            facts.append(f"all the same: {price} {float(shown.pop()):,g}{others}")
            continue
        if unknown:
            why = "without sets, so missing from that panel alone"
            if price != _SETS:
                why = f"not told of {price}, and left out there"
            facts.append(f"{why}: {'; '.join(unknown)}")
        for point in priced:
            best = not point.row.control and not any(_dominates(rival, point) for rival in rivals)
            numbers.append(
                (
                    point.row.label,
                    price,
                    point.cost,
                    point.faa,
                    point.cost_std,
                    point.faa_std,
                    point.row.number,
                    best,
                    point.row.control,
                )
            )
            if best:
                steps.append({"price": price, "cost": point.cost, "faa": point.faa})
    if len(rows) < 2 or not numbers:
        return Numbers(why="; ".join(facts) or "there are no two finished rows to compare")
    # a line has two points of one panel at least
    has_line = any(one["price"] == next_one["price"] and one != next_one for one, next_one in pairwise(steps))
    return Numbers(rows=numbers, facts=facts, extra={"best": steps}, has_line=has_line)


@attrs.frozen(kw_only=True)
class _Point:
    """A row at its mean price and FAA, with their deviations."""

    row: Row
    cost: float
    faa: float
    cost_std: float | None
    faa_std: float | None


def _point(row: Row, names: Sequence[str]) -> _Point | None:
    """Return where a row stands; None if a run has no price or FAA."""
    cost = row.over([_sum(run, names) for run in row.runs])
    faa = row.summary(COLUMNS["faa"])
    if cost.mean is None or faa.mean is None:
        return None
    return _Point(row=row, cost=cost.mean, faa=faa.mean, cost_std=cost.std, faa_std=faa.std)


def _dominates(point: _Point, other: _Point) -> bool:
    """Whether a point is no worse in price and FAA, and better in one of them."""
    if (point.cost, point.faa) == (other.cost, other.faa):
        return False
    return point.cost <= other.cost and point.faa >= other.faa


_COSTS = (
    ("vectors of the backbone's width", _SETS, "prompt_vectors"),
    ("vectors of the backbone's width", "bases", "basis_vectors"),
    ("numbers kept", "parameters", "parameters"),
    ("numbers kept", "statistics", "statistics"),
    ("MFLOP of a training step, per image", "training", "training_mflop"),
    ("MFLOP of a prediction, per image", "inference", "inference_mflop"),
)


def costs(rows: Sequence[Row]) -> Numbers:
    """Return storage and operations: row, kind, part, mean over runs, or what is said without a number."""
    values: list[Sequence[Value]] = []
    in_use = set()
    for row in rows:
        for kind, part, name in _COSTS:
            value = row.summary(COLUMNS[name]).mean
            values.append((row.label, kind, part, _uncounted(row, name) if value is None else value))
            if value:
                in_use.add((kind, part))
    values = [one for one in values if tuple(one[1:3]) in in_use]  # what no row has is no cost
    if not values:
        return Numbers(why="the records have neither storage nor operations")
    return Numbers(rows=values)


def _uncounted(row: Row, name: str) -> str | None:
    """Return what is said of operations that nobody counted for want of a training step; None if unknown."""
    if any(run.record.get("images_per_second", 0.0) is not None for run in row.runs):
        return None
    if name == "training_mflop":
        return "no training step"
    if name == "inference_mflop" and all(map(_predicts_by_one_forward, row.runs)):
        return "one forward of the backbone"
    return None


def _predicts_by_one_forward(run: ReportedRun) -> bool:
    """Whether a run that trained nothing forwards an image once: through no set, nor before the run."""
    is_stored = run.config["benchmark"]["name"] == FEATURES_BENCHMARK
    return COLUMNS["prompt_vectors"].of(run.record) == 0 and not is_stored


_CLOCKS: Mapping[str, str] = {
    "evidence": "evidence",
    "training": "learning",  # of a head alone it sums features up, and trains nothing
    "subspace": "subspace",
    "evaluation": "evaluation",
}
"""The clocks of a record, and what the figure calls their parts."""


def times(rows: Sequence[Row]) -> Numbers:
    """Return mean seconds of a run by part: row, part, seconds."""
    values: list[tuple[str, str, float]] = []
    for row in rows:
        total = _mean_seconds(row, "total", without=None)
        if total is None:
            continue
        named = 0.0
        for clock, part in _CLOCKS.items():
            seconds = _mean_seconds(row, clock, without=0.0) or 0.0
            named += seconds
            values.append((row.label, part, seconds))
        # clocks of parts that overlap may add up to more than the whole
        values.append((row.label, "other", max(total - named, 0.0)))
    if not values:
        return Numbers(why="the records have no times")
    taken = {part for _, part, seconds in values if round(seconds, 1)}  # what prints as 0.0 has no bar
    return Numbers(rows=[one for one in values if one[1] in taken])


def _mean_seconds(row: Row, part: str, without: float | None) -> float | None:
    """Return the mean over runs of a clock; ``without`` stands for one that a record does not have."""
    clocks = []
    for run in row.runs:
        seconds = run.record.get("seconds", {}).get(part, without)
        if seconds is None:
            return None
        clocks.append(seconds)
    return mean(clocks)


# -- comparisons -----------------------------------------------------------------------------------------


def paper(rows: Sequence[Row]) -> Numbers:
    """Return published values beside ours: row, metric, theirs, std, ours, std, n, source, differences."""
    values: list[Sequence[Value]] = []
    for row in rows:
        for name, printed in row.paper.items():
            ours = row.summary(COLUMNS[name])
            if ours.mean is None:
                continue
            values.append(
                (
                    row.label,
                    _title(name),
                    printed.value,
                    printed.std,
                    ours.mean,
                    ours.std,
                    row.number,
                    printed.citation,
                    "; ".join(printed.differs),
                )
            )
    if not values:
        return Numbers(why="no paper reports these configurations")
    return Numbers(rows=values)


def differences(rows: Sequence[Row]) -> Numbers:
    """Return paired differences of all rows: against, row, metric, mean, low, high, pairs."""
    values = list(_differences(rows))
    if not values:
        return Numbers(why="no two finished rows have runs of the same seed and class order")
    return Numbers(rows=values)


def _differences(rows: Sequence[Row]) -> Iterator[Sequence[Value]]:
    """Yield how far each row is above each other one, by metric; without an interval for a single pair."""
    for against, row in permutations(rows, 2):
        for name in _COMPARED:
            gap = row.difference(against, COLUMNS[name])
            if gap is None:
                continue
            pairs = number_of_draws(row.draws & against.draws)
            yield (against.label, row.label, _title(name), gap.mean, gap.low, gap.high, pairs)


def _title(name: str) -> str:
    return name.replace("_", " ").upper()
