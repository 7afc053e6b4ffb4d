"""What is said of differences between rows, on a terminal and on the page: over what their intervals are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lw2g.results.columns import Column
from lw2g.results.row_choice import fitting
from lw2g.results.run_draws import EITHER, Draw, named_draws, unit_of, varied_in_words, varied_units
from lw2g.results.summaries import LEAST_TESTED
from lw2g.results.table import Row, Table

__all__ = [
    "SAME",
    "few_in_words",
    "few_of_draws",
    "few_of_rows",
    "narrow_of_rows",
    "no_reference",
    "on_differences",
    "over_in_words",
    "over_of_rows",
    "p_in_words",
    "uncorrected",
    "varying_pairs",
]

_AMPLE = 10
"""The smallest number of class orders, or seeds, whose intervals need no word on how narrow they are."""
_MISSES = "in about one case of seven"
SAME = "the same: equal in each pair (FAA: right on the same images)"
"""What the cell of a difference means that has no interval, as nothing differs."""


def p_in_words(p: float) -> str:
    """Return a p value as it is printed."""
    # draws tell no smaller one, and no p value is zero
    return "p<0.001" if p < 0.001 else f"p={p:.3f}"


def uncorrected(rows: int) -> str:
    """Return, to stand behind intervals of the differences of rows, that only p counts the rows."""
    return f", not corrected for {rows} rows" if rows > 1 else ""


def over_in_words(pairs: Collection[Draw]) -> str:
    """Return what an interval of final accuracy is over: test images, and draws if there are several."""
    return " and ".join(filter(None, (varied_in_words(pairs), "test images")))


def over_of_rows(of_rows: Iterable[Collection[Draw]]) -> str:
    """Return what intervals of the final accuracies of rows are over, true of each row of several runs.

    >>> over_of_rows([{(0, (1, 2)), (0, (2, 1))}, {(0, (1, 2)), (1, (1, 2))}])
    'class orders, or the seeds of one, and test images'
    """
    several = [draws for draws in of_rows if len(draws) > 1]
    if len(set(map(varied_in_words, several))) < 2:
        return over_in_words(several[0] if several else ())
    units = varied_units(several)  # how many there are, the table tells of each row
    varied = f"{EITHER}," if len(units) > 1 else units.pop()
    return f"{varied} and test images"


def varying_pairs(row: Row, other: Row) -> set[Draw]:
    """Return the draws over which the difference of two rows varies: none where neither row sees them."""
    return set() if row.alike and other.alike else row.draws & other.draws


def no_reference(table: Table, against: str | None) -> str:
    """Return why a table has no differences from the wanted row; empty where it has some."""
    if against is None or not table.rows or table.reference(against) is not None:
        return ""
    if fitting(table.rows, against):
        return "none, as there is no other row here"
    return f"none, as no row here is called {against!r}"


def on_differences(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return what differences and intervals are, a statement each, and which rows have none, and why.

    Args:
        table: The table.
        columns: Its columns.
        against: Label of the row that differences refer to, or a unique part of it; None for no differences.
    """
    reference = table.reference(against)
    if reference is None:
        return list(filter(None, [no_reference(table, against)]))
    parts = []
    paired: list[Row] = []
    unpaired: list[Row] = []
    for row in table.rows:
        if row is not reference:
            (paired if row.draws & reference.draws else unpaired).append(row)
    if unpaired:
        each = "; ".join(f"{row.label} has {named_draws(row.runs)}" for row in (reference, *unpaired))
        parts.append(f"none without a pair of equal seed and class order: {each}")
    if paired:
        parts += _intervals(paired, columns, reference)
    return parts


def _units_of(pairs: Collection[Draw]) -> str:
    return "class orders" if len({order for _, order in pairs}) > 1 else "seeds"


def few_in_words(row: Row, other: Row) -> str:
    """Return what a difference over so few orders or seeds does not tell; empty where they are not few."""
    pairs = varying_pairs(row, other)
    if _number_of_units(pairs) == 1:
        return "a single pair tells nothing of other seeds and orders"
    return few_of_draws(pairs)


def few_of_draws(draws: Collection[Draw]) -> str:
    """Return that so few class orders, or seeds of one, tell little; empty where they are not few.

    >>> few_of_draws({(0, (1, 2)), (1, (1, 2))})
    '2 seeds tell little of others'
    """
    number = _number_of_units(draws)
    return f"{number} {_units_of(draws)} tell little of others" if 0 < number < LEAST_TESTED else ""


def few_of_rows(of_rows: Iterable[Collection[Draw]]) -> str:
    """Return that the few class orders or seeds of some rows tell little; empty where none has few."""
    several = [draws for draws in of_rows if len(draws) > 1]
    few = {few_of_draws(draws) for draws in several} - {""}
    told = "fewer than five tell little of others" if len(few) > 1 else "".join(few)
    return "; ".join(filter(None, [told, narrow_of_rows(several)]))


def narrow_of_rows(of_rows: Iterable[Collection[Draw]]) -> str:
    """Return how often intervals over so many class orders, or seeds of one, miss the true value.

    Empty where no row has from five to nine of them. The share is that of intervals over orders alone, as a
    test draws them: percentiles of a bootstrap have thinner tails than t.

    >>> narrow_of_rows([{(seed, (1, 2)) for seed in range(5)}])
    'where seeds alone vary, an interval over five misses the true value in about one case of seven'
    """
    units = {_units_of(draws) for draws in of_rows if LEAST_TESTED <= _number_of_units(draws) < _AMPLE}
    if not units:
        return ""
    varying = " or ".join(sorted(units))
    return f"where {varying} alone vary, an interval over five misses the true value {_MISSES}"


def _number_of_units(pairs: Collection[Draw]) -> int:
    """Return how many class orders pairs have, or seeds where they have one order."""
    return len(set(map(unit_of(pairs), pairs)))


def _intervals(rows: Sequence[Row], columns: Sequence[Column], reference: Row) -> list[str]:
    """Return what intervals and p values of the differences of rows from one are."""
    common = [row.draws & reference.draws for row in rows]
    over = over_of_rows(varying_pairs(row, reference) for row in rows)
    numbers = [_number_of_units(pairs) for pairs in common]
    least_known = min(rows, key=lambda row: _number_of_units(varying_pairs(row, reference)) or LEAST_TESTED)
    few = few_in_words(least_known, reference) or narrow_of_rows(
        varying_pairs(row, reference) for row in rows
    )
    several = [pairs for pairs in common if len(pairs) > 1] or common
    units = " or ".join(sorted(set(map(_units_of, several))))
    of_faa = [f"intervals of FAA over {over}{f' ({few})' if few else ''}, paired bootstrap"]
    tested = [row for row, number in zip(rows, numbers, strict=True) if number >= LEAST_TESTED]
    if tested:
        varying = [bool(varying_pairs(row, reference)) for row in tested]
        test = "paired t test" if any(varying) else "McNemar's exact test over images"
        if len(set(varying)) > 1:
            test += " (between alike rows McNemar's exact test over images)"
        of_faa.append(f"p, the larger of bootstrap and {test}, corrected for the rows (Holm)")
    if min(numbers) < LEAST_TESTED:
        of_faa.append(f"no p below five {units}")
    told = [f"mean [95 % interval{uncorrected(len(rows))}]"]
    names = {column.name for column in columns if not column.is_time}
    if "faa" in names:
        told.append("; ".join(of_faa))
    if names - {"faa"}:
        told.append(
            f"intervals of other columns: t over three or more {units}, none where all gaps are equal"
        )
    return told
