"""The table of results on a page: columns in which rows differ; what is the same in all rows is said once."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lw2g.errors import counted
from lw2g.results.cells import ALIKE, INTERVAL, Cell, heading_of, mean_cells, omits_equal
from lw2g.results.columns import COLUMNS, Column
from lw2g.results.difference_words import p_in_words
from lw2g.results.table import Row, Table
from lw2g_page.page_head import SECTIONS_ABOVE

__all__ = ["Heading", "Line", "ResultCell", "Results", "results_of"]

_UNITS = ("s", "ms", "mflop")
"""Units at the end of columns' titles."""
_LISTED = 8
"""The largest number of unfinished runs that are listed."""
_FIXED = "\N{NO-BREAK SPACE}"
_MIXED = "mixed"
"""The column that tells in what rows are not comparable."""
_CONTROL = "control"
"""What a row is that counts for no best value."""
_STAYS = "FAA"
"""The column that stands there even where all rows have the same."""
_LOST = "FFM"
"""The column of points that were lost, where what was gained has a minus."""
_DIFFERENCE = "FAA minus reference"
"""The column of differences of that one."""
_WORDS = {
    "n": "runs",
    "FAA": f"right, %, mean over tasks; {INTERVAL.replace(' ', _FIXED)}",
    _DIFFERENCE: "points",
    "CAA": "mean over time, %",
    "FFM": "lost, points",
    "PRA": "set found, %",
    "chance PRA": "by guessing, %",
    "SSP": "sets",
    "evidence s": "deciding on growth",
    "total s": "whole run",
    "ARI": "sets as planted, up to 1",
}
"""What stands small below the titles of columns, for readers who know none of the abbreviations."""


@attrs.frozen(kw_only=True)
class Heading:
    """The head of a column: its title, which of an option is its key, words below, and whether it is text."""

    title: str
    words: str = ""
    text: bool = False


@attrs.frozen
class ResultCell:
    """A cell: the title of its column, its content, what stands small below it, and whether it is text."""

    title: str
    content: Cell | str
    below: str = ""
    text: bool = False


@attrs.frozen(kw_only=True)
class Line:
    """The line of a row: its name, what it is beside a method, and its cells."""

    label: str
    roles: Sequence[str]
    cells: Sequence[ResultCell]


@attrs.frozen(kw_only=True)
class Results:
    """The table of results.

    Attributes:
        head: The heads of the columns after the name.
        lines: A line per row.
        same: What is the same in all rows, in sentences.
        unfinished: Runs that are not finished, by name, and how far each has come.
        further: How many such runs are not listed.
    """

    head: Sequence[Heading]
    lines: Sequence[Line]
    same: Sequence[str]
    unfinished: Sequence[tuple[str, str]]
    further: int


def results_of(
    table: Table, columns: Sequence[Column], shown: Sequence[Column], reference: Row | None = None
) -> Results:
    """Return the table of results: options in which rows differ, then numbers.

    Args:
        table: The table.
        columns: What was asked for; without names, what is the same in all rows has no column.
        shown: Those in which some row has a value.
        reference: The row whose final accuracy is taken from that of the others, in a column of its own.
    """
    head, *lines = mean_cells(table, shown)
    numbers = [_with_published(line, head) for line in lines]
    told = []
    for key, value in table.shared.items():
        if key.partition(".")[0] not in SECTIONS_ABOVE:  # else it stands in the head of the section
            told.append(f"{key} {value}")
    if numbers and omits_equal(table, columns):
        numbers, equal = _without_equal(numbers)
        told = [*equal, *told]
    told = [*_take_common(numbers), *told]
    if reference is not None:
        numbers = _with_differences(numbers, table, reference)
    same = []
    if told:
        lead = "The same in all rows" if len(table.rows) > 1 else "Options that were set"
        same.append(f"{lead}: {', '.join(told)}.")

    meant = {heading_of(column): column.in_short for column in shown}
    options = table.options
    heads = [Heading(title=key, text=True) for key in options.keys]
    if numbers:
        for place, cell in enumerate(numbers[0]):
            words = _WORDS.get(cell.title) or meant.get(cell.title, "")
            if cell.title == _LOST and any(_is_negative(line[place].content) for line in numbers):
                words += "; below 0 gained"
            heads.append(Heading(title=_with_its_unit(cell.title), words=words, text=cell.text))
    made = []
    for row, values, cells in zip(table.rows, options.values, numbers, strict=True):
        chosen = []
        for key, value in zip(options.keys, values, strict=True):
            chosen.append(ResultCell(key, value or "-", text=True))
        roles = [_CONTROL] if row.control else []
        if row is reference:
            roles.append("reference")
        made.append(Line(label=row.label, roles=roles, cells=[*chosen, *cells]))

    unfinished = [(str(run.path), run.standing) for run in table.unfinished]
    for row in table.rows:
        if not row.finished:
            unfinished += [(row.label, run.standing) for run in row.runs]
    return Results(
        head=heads,
        lines=made,
        same=same,
        unfinished=unfinished[:_LISTED],
        further=max(0, len(unfinished) - _LISTED),
    )


def _without_equal(lines: Sequence[Sequence[ResultCell]]) -> tuple[list[list[ResultCell]], list[str]]:
    """Return the lines without columns that say the same in all of them, and what these say."""
    equal = set()
    told = []
    for place, cell in enumerate(lines[0]):
        contents = {(str(line[place].content), line[place].below) for line in lines}
        if len(contents) == 1 and cell.title != _STAYS and not cell.below:
            equal.add(place)
            told.append(_in_words(cell))
    kept = [[cell for place, cell in enumerate(line) if place not in equal] for line in lines]
    return kept, told


def _take_common(lines: Sequence[list[ResultCell]]) -> list[str]:
    """Shorten the column of what a table mixes to what differs, and return what all its cells begin with."""
    place = next((at for at, cell in enumerate(lines[0]) if cell.title == _MIXED), None) if lines else None
    if place is None:
        return []
    parts = [str(line[place].content).split(", ") for line in lines]
    common = 0
    while len({tuple(one[: common + 1]) for one in parts}) == 1 and common < min(map(len, parts)):
        common += 1
    for line, own in zip(lines, parts, strict=True):
        line[place] = attrs.evolve(line[place], content=", ".join(own[common:]) or "-")
    return parts[0][:common]


def _with_differences(
    lines: Sequence[list[ResultCell]], table: Table, reference: Row
) -> list[list[ResultCell]]:
    """Return the lines with a cell behind that of FAA: its difference from a row, with interval and p."""
    place = next((at for at, cell in enumerate(lines[0]) if cell.title == _STAYS), None)
    if place is None:
        return list(lines)
    gaps = table.differences(reference, COLUMNS["faa"])
    made = []
    for row, line in zip(table.rows, lines, strict=True):
        content, interval = "-", ""
        gap = gaps.get(row.label)
        if gap is not None:
            content = f"{gap.mean:+z.1f}"
            if gap.is_none:
                content = "the same"
            elif gap.low is not None and gap.high is not None:
                # in a narrow column p alone goes to the next line
                interval = f"{gap.low:+z.1f} to {gap.high:+z.1f}".replace(" ", _FIXED)
                if gap.p is not None:
                    interval += f", {p_in_words(gap.p)}"
        made.append([*line[: place + 1], ResultCell(_DIFFERENCE, content, interval), *line[place + 1 :]])
    return made


def _is_negative(content: Cell | str) -> bool:
    value = content.value if isinstance(content, Cell) else content
    return value.startswith("-") and value != "-"


def _in_words(cell: ResultCell) -> str:
    """Return what a column says that is the same in all rows: its name, its number and its unit."""
    if cell.title == "n":
        content = str(cell.content)
        number = content.removesuffix(ALIKE)
        alike = content.removeprefix(number)
        return f"{counted(int(number), 'run') if number.isdecimal() else number} each{alike}"
    name, _, unit = cell.title.rpartition(" ")
    return f"{name} {cell.content} {unit}" if name and unit in _UNITS else f"{cell.title} {cell.content}"


def _with_its_unit(title: str) -> str:
    """Return the title of a column whose unit, its last word, stays on the line of the word before."""
    name, _, unit = title.rpartition(" ")
    if not name or unit not in _UNITS:
        return title
    return f"{name}{_FIXED}{unit}"


def _with_published(line: Sequence[Cell | str], head: Sequence[Cell | str]) -> list[ResultCell]:
    """Return the cells of a line after its label, with published values beside the results that they are of.

    On a terminal the published value of the column ``x`` has a column of its own, ``paper x``.
    """
    titles = list(map(str, head))
    published = {}
    for title, cell in zip(titles, line, strict=True):
        if title.startswith("paper ") and str(cell) != "-":
            published[title.removeprefix("paper ")] = str(cell)
    interval = dict(zip(titles, map(str, line), strict=True)).get(INTERVAL, "-").replace(" ", _FIXED)
    cells = []
    for title, cell in zip(titles[1:], line[1:], strict=True):
        if title != INTERVAL and not title.startswith(("paper ", "minus paper")):
            below = f"paper {published[title]}" if title in published else ""
            if title == _STAYS and interval != "-":
                below = "; ".join(filter(None, (interval, below)))
            cells.append(ResultCell(title, cell, below, text=title == _MIXED))
    return cells
