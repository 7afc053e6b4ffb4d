"""Which row of a table is ahead of each other one beyond chance: its final accuracy alone is bold."""

from __future__ import annotations

from collections.abc import Sequence

from lw2g.errors import counted
from lw2g.results.columns import COLUMNS, Column
from lw2g.results.row_means import printed
from lw2g.results.run_draws import unit_of
from lw2g.results.summaries import LEAST_TESTED, Difference
from lw2g.results.table import Row, Table

__all__ = ["ahead_in_words", "ahead_of_all"]

_FAA = COLUMNS["faa"]
_SMALL = 0.05
"""The p value below which a difference is a finding, as 0 is outside of an interval of 95 %."""


def ahead_of_all(table: Table) -> Row | None:
    """Return the finished row whose final accuracy is above each other one's beyond chance; None without one.

    Beyond chance is a paired 95 % interval without 0 over five class orders, or seeds of one, at least, and
    over test images (these alone where both rows answer alike in each order), and p below 0.05 after Holm's
    correction for the number of rows; and the two numbers differ as they are printed. Other columns have
    intervals that leave out test images, and no p: none of their numbers is a finding. Each other row counts,
    but a control is never the one.
    """
    rows = _compared(table)
    if len(rows) < 2:
        return None
    best, *others = rows
    if best.control:
        return None
    gaps = table.differences(best, _FAA)
    return best if all(_is_ahead(best, row, gaps[row.label]) for row in others) else None


def _compared(table: Table) -> list[Row]:
    """Return the finished rows that have a final accuracy, the best first; of equal ones controls last."""
    means = []
    for row in table.rows:
        mean = row.summary(_FAA).mean
        if row.finished and mean is not None:
            means.append((mean, row))
    return [row for _, row in sorted(means, key=lambda item: (-item[0], item[1].control))]


def _is_ahead(best: Row, row: Row, gap: Difference | None) -> bool:
    """Whether a difference of a row from the best one, which is above it, is a finding that a table shows."""
    if gap is None or gap.high is None or gap.p is None:
        return False
    shown = [printed(one.summary(_FAA), _FAA.digits)[0] for one in (best, row)]
    return gap.high < 0 and gap.p < _SMALL and shown[0] != shown[1]


def ahead_in_words(table: Table, columns: Sequence[Column]) -> str:
    """Return what bold means in a table, or that no row earns it and why; empty without what is compared."""
    rows = _compared(table)
    if len(rows) < 2 or not any(column.name == _FAA.name for column in columns):
        return ""
    if ahead_of_all(table):
        return (
            "bold: ahead of each other row in FAA beyond chance "
            "(paired interval, over test images too, without 0; p below 0.05)"
        )
    best, *others = rows
    if best.control:
        return "no FAA is bold: the best row is a control"
    gaps = table.differences(best, _FAA)
    level = []
    untested = []
    for row in others:
        gap = gaps[row.label]
        if gap is None or gap.p is None:
            untested.append(row)
        elif not _is_ahead(best, row, gap):
            level.append(row)
    if level:
        named = level[0].label
        if len(level) > 1:
            named += f" and {counted(len(level) - 1, 'more row')}"
        return f"in FAA no row is ahead of all others beyond chance: the best is not ahead of {named}"
    return f"not tested which row is ahead in FAA: {_untested(best, untested)}"


def _untested(best: Row, others: Sequence[Row]) -> str:
    """Return what the best row lacks for a p value of its differences from other rows."""
    if max(row.summary(_FAA).n for row in (best, *others)) < LEAST_TESTED:
        return "that takes five class orders or seeds"
    unpaired = 0
    unanswered = 0
    few = []
    for row in others:
        pairs = row.draws & best.draws
        orders = len({order for _, order in pairs})
        units = len(set(map(unit_of(pairs), pairs)))
        if units >= LEAST_TESTED:
            unanswered += 1
        elif units:
            few.append(counted(units, "class order" if orders > 1 else "seed"))
        else:
            unpaired += 1
    parts = []
    if unpaired:
        parts.append(f"no pair of equal seed and class order with {counted(unpaired, 'row')}")
    if few:
        over = f"only {few[0]}" if len(set(few)) == 1 else "fewer than five class orders or seeds"
        parts.append(f"pairs over {over} with {counted(len(few), 'row')}")
    if unanswered:
        parts.append(f"no predictions of common test images with {counted(unanswered, 'row')}")
    return f"the best has {' and '.join(parts)}"
