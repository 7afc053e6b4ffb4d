"""Which row of a table is ahead of each other one beyond chance: the only one whose number is bold."""

from __future__ import annotations

from collections.abc import Sequence

from lw2g.results.columns import Column
from lw2g.results.summaries import LEAST_TESTED, Difference
from lw2g.results.table import Row, Table

__all__ = ["ahead_in_words", "ahead_of_all"]

_SMALL = 0.05
"""The p value below which a difference is a finding, as 0 is outside of an interval of 95 %."""


def ahead_of_all(table: Table, column: Column) -> Row | None:
    """Return the finished row that is better than each other one beyond chance; None where there is none.

    Beyond chance is a paired 95 % interval without 0 over five class orders, or seeds of one, at least. Of
    final accuracy, whose interval is over test images, too, p is below 0.05 after Holm's correction for the
    number of rows. Each other row counts, but a control is never the one.
    """
    if not column.better:
        return None
    compared = []
    for row in table.rows:
        mean = row.summary(column).mean
        if row.finished and mean is not None:
            compared.append((column.better * mean, row))
    if len(compared) < 2:
        return None
    (most, best), (second, _) = sorted(compared, key=lambda item: item[0], reverse=True)[:2]
    if best.control or most == second:
        return None
    gaps = table.differences(best, column)
    others = [row for _, row in compared if row is not best]
    return best if all(_is_beyond_chance(gaps[row.label], column) for row in others) else None


def _is_beyond_chance(gap: Difference | None, column: Column) -> bool:
    """Whether a difference of a row from the best one is a finding."""
    if gap is None or gap.low is None or gap.high is None or gap.n < LEAST_TESTED:
        return False
    if column.name == "faa" and (gap.p is None or gap.p >= _SMALL):
        return False
    # the difference is that of the other row, which is worse
    return gap.high < 0 if column.better > 0 else gap.low > 0


def ahead_in_words(table: Table, columns: Sequence[Column]) -> str:
    """Return what bold means in a table, or that no row earns it; empty where there is nothing to compare."""
    finished = [row for row in table.rows if row.finished]
    compared = [column for column in columns if column.better]
    if len(finished) < 2 or not compared:
        return ""
    if any(ahead_of_all(table, column) for column in compared):
        return "bold: ahead of each other row beyond chance (paired interval without 0, p of FAA below 0.05)"
    number = max(row.summary(compared[0]).n for row in finished)
    few = ", which takes five class orders or seeds" if number < LEAST_TESTED else ""
    return f"no row is ahead of all others beyond chance{few}"
