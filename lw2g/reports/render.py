"""Reports as Markdown, LaTeX, CSV and JSON, all from the same tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from lw2g.reports.columns import COLUMNS, DEFAULT_COLUMNS, Column
from lw2g.reports.statistics import Difference
from lw2g.reports.table import Row, Table

__all__ = [
    "Cell",
    "as_csv",
    "as_json",
    "as_latex",
    "as_markdown",
    "literal_markdown",
    "mean_cells",
    "remarks_on",
    "shown_columns",
]


@attrs.frozen(kw_only=True)
class Cell:
    """A number of a table, as it is printed.

    Attributes:
        value: The number; ``-`` if there is none.
        std: Its sample standard deviation; empty for a single run.
        note: What follows: marks of a published value, or the interval of a difference.
        best: Whether it is the best of its column.
    """

    value: str
    std: str = ""
    note: str = ""
    best: bool = False

    def __str__(self) -> str:
        return f"{self.value}{self.std and f' ± {self.std}'}{self.note}"


Cells = list[list["Cell | str"]]
_ALWAYS = ("faa", "ffm", "pra", "chance_pra", "total_s")
"""Default columns that stand in every table with a value for them."""
_PAPER = ("std", "source", "checkpoint", "split", "seeds", "second_hand")
"""Attributes of a published value in CSV and JSON."""


def as_markdown(tables: Sequence[Table], columns: Sequence[Column], against: str | None) -> str:
    """Return Markdown: a table of means, one of differences if a row is named, then remarks.

    The words of strangers, who name themselves in the rows of a store, are shown as they are written.
    """
    parts = []
    for table in tables:
        parts += [f"### {table.title}\n", f"{', '.join(table.conditions)}\n"]
        shown = shown_columns(table, columns)
        for block in _blocks(table, shown, against):
            cells = [[_in_cell(str(cell), table) for cell in line] for line in block]
            lines = [cells[0], ["---"] * len(cells[0]), *cells[1:]]
            parts.append("".join(f"| {' | '.join(line)} |\n" for line in lines))
        parts += [f"- {_with_literal_names(line, table)}" for line in remarks_on(table, shown, against)]
        parts.append("")
    return "\n".join(parts)


def _in_cell(text: str, table: Table) -> str:
    literal = _with_literal_names(text, table)
    return literal if literal != text else text.replace("|", "\\|")


def _with_literal_names(text: str, table: Table) -> str:
    """Return text in which the names of a store's rows are no Markdown; our own stay as people type them."""
    names = [row.label for row in table.rows if row.runs[0].given is not None]
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)  # one name may begin another
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: literal_markdown(found[0]), text)


_ACTIVE = re.compile(r"[\\`*_\[\]<>|~&#!]|:(?=//)|(?<=www)\.")


def literal_markdown(text: str) -> str:
    r"""Return Markdown that shows a text as it is: no HTML, links, emphasis or cells.

    >>> print(literal_markdown("<b>[me](https://x)"))
    \<b\>\[me\](https\://x)
    """
    return _ACTIVE.sub(r"\\\g<0>", text)


def as_latex(tables: Sequence[Table], columns: Sequence[Column], against: str | None) -> str:
    r"""Return LaTeX for ``\usepackage{booktabs}``: tables with captions, the best values bold, and remarks.

    The remarks are comments.
    """
    parts = []
    for number, table in enumerate(tables):
        shown = shown_columns(table, columns)
        captions = ["mean $\\pm$ sample standard deviation over $n$ runs; best in bold, controls apart"]
        if against is not None and table.rows:
            captions.append(f"differences from {_tex(table.row(against).label)}, with 95\\,\\% intervals")
        about = _tex(", ".join([table.title, *table.conditions]))
        for caption, block in zip(captions, _blocks(table, shown, against), strict=False):
            name = f"tab:lw2g-{number}{'' if caption is captions[0] else '-differences'}"
            parts.append(_tabular(block, f"{about}: {caption}.", name))
        parts += [f"% {line}" for line in remarks_on(table, shown, against)]
    return "\n".join(parts) + "\n"


def _tabular(cells: Cells, caption: str, name: str) -> str:
    head, *rows = ([_tex(cell) for cell in line] for line in cells)
    lines = [" & ".join(line) + r" \\" for line in (head, *rows)]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{{name}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


_TEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "_%&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"†": r"$^\dagger$", "*": r"$^*$", "±": r"$\pm$"}
)


def _tex(cell: Cell | str) -> str:
    """Return LaTeX; numbers are in math, so that a minus is one."""
    if isinstance(cell, str):
        return cell.translate(_TEX)
    value, std = (text.replace(",", "{,}") for text in (cell.value, cell.std))  # no space after it in math
    bold = rf"\mathbf{{{value}}}" if cell.best else value
    deviation = rf" \pm {std}" if std else ""
    is_interval = cell.note.startswith(" [")
    interval = rf"\{cell.note}" if is_interval else ""
    number = "--" if cell.value == "-" else f"${bold}{deviation}{interval}$"
    return number if is_interval else f"{number}{cell.note.translate(_TEX)}"


def as_csv(tables: Sequence[Table], columns: Sequence[Column], against: str | None) -> str:
    """Return a CSV line per row and column."""
    lines = list(_entries(tables, columns, against))
    out = io.StringIO()
    names = list(lines[0]) if lines else ["table", "row"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**line, "paper_differs": "; ".join(line["paper_differs"])} for line in lines)
    return out.getvalue()


def as_json(tables: Sequence[Table], columns: Sequence[Column], against: str | None) -> str:
    """Return the entries of the CSV as JSON, with definitions and notes."""
    content = {
        "definitions": {column.name: column.meaning for column in columns},
        "entries": list(_entries(tables, columns, against)),
        "tables": [
            {
                "title": table.title,
                "rows": [
                    {"label": row.label, "runs": [str(run.path) for run in row.runs]} for row in table.rows
                ],
                "unfinished": [str(run.path) for run in table.unfinished],
                "notes": list(table.notes),
            }
            for table in tables
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def _entries(
    tables: Sequence[Table], columns: Sequence[Column], against: str | None
) -> Iterator[dict[str, Any]]:
    for table in tables:
        reference = table.row(against) if against is not None and table.rows else None
        for row in table.rows:
            for column in columns:
                yield _entry(table, row, column, reference)


def _entry(table: Table, row: Row, column: Column, reference: Row | None) -> dict[str, Any]:
    printed = row.paper.get(column.name)
    gap = row.difference(reference, column) if reference is not None and row is not reference else None
    mean = row.summary(column).mean
    difference: Mapping[str, Any] = attrs.asdict(gap) if gap else dict.fromkeys(("mean", "half", "n"))
    return {
        "table": table.title,
        "row": row.label,
        "control": row.control,
        "mixed": " ".join(row.marks),
        "metric": column.name,
        **attrs.asdict(row.summary(column)),
        "paper": None if printed is None else printed.value,
        "minus_paper": None if printed is None or mean is None else mean - printed.value,
        **{f"paper_{name}": getattr(printed, name, None) for name in _PAPER},
        "paper_differs": [] if printed is None else list(printed.differs),
        **{f"difference_{key}": value for key, value in difference.items()},
    }


# -- cells -----------------------------------------------------------------------------------------------


def shown_columns(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return the columns in which some row has a value.

    Of the default columns those are left out that say the same of every row: they compare nothing.
    """
    known = [column for column in columns if any(row.summary(column).mean is not None for row in table.rows)]
    is_default = [column.name for column in columns][: len(DEFAULT_COLUMNS)] == [*DEFAULT_COLUMNS]
    if not is_default or len(table.rows) < 2:
        return known
    return [column for column in known if column.name in _ALWAYS or _differs(table, column)]


def _differs(table: Table, column: Column) -> bool:
    """Whether a column prints different means."""
    means = [row.summary(column).mean for row in table.rows]
    return len({round(mean, column.digits) for mean in means if mean is not None}) > 1


def mean_cells(table: Table, columns: Sequence[Column]) -> Cells:
    """Return the cells of a table of means: the head, then a line per row."""
    mixed = any(row.marks for row in table.rows)
    printed = {column.name for column in columns if any(column.name in row.paper for row in table.rows)}
    head: list[Cell | str] = ["row", *(["mixed"] if mixed else []), "n"]
    for column in columns:
        head.append(_title(column))
        if column.name in printed:
            head += [f"paper {_title(column)}", "minus paper"]
    cells = [head]
    for row in table.rows:
        line: list[Cell | str] = [_row_label(row), *([" ".join(row.marks)] if mixed else [])]
        line.append(str(len(row.runs)))
        for column in columns:
            line.append(_mean(row, column, best=row in _best(table, column)))
            if column.name in printed:
                line += _paper(row, column)
        cells.append(line)
    return cells


def _best(table: Table, column: Column) -> list[Row]:
    """Return the rows with the best mean as it is printed, if there are others.

    Controls do not count, nor do rows that are no better than guessing: one set is always found.
    """
    competing = [
        row for row in table.rows if row.finished and not row.control and not _is_chance(row, column)
    ]
    means = [(row, row.summary(column).mean) for row in competing]
    known = [(row, column.better * round(mean, column.digits)) for row, mean in means if mean is not None]
    top = max((value for _, value in known), default=0.0)
    best = [row for row, value in known if value == top]
    return best if column.better and len(best) < len(known) else []


def _is_chance(row: Row, column: Column) -> bool:
    """Whether guessing is as good as a row."""
    if not column.chance:
        return False
    mean, by_chance = row.summary(column).mean, row.summary(COLUMNS[column.chance]).mean
    return mean is not None and by_chance is not None and column.better * (mean - by_chance) <= 0


def _blocks(table: Table, columns: Sequence[Column], against: str | None) -> Iterator[Cells]:
    """Yield the cells of a table: means, then differences if a row is named."""
    if not table.rows:
        return
    yield mean_cells(table, columns)
    if against is not None:
        yield _differences(table, columns, table.row(against))


def _differences(table: Table, columns: Sequence[Column], reference: Row) -> Cells:
    lines: Cells = [[f"minus {reference.label}", "pairs", *map(_title, columns)]]
    for row in table.rows:
        if row is not reference:
            gaps = [row.difference(reference, column) for column in columns]
            pairs = max((gap.n for gap in gaps if gap), default=0)
            lines.append([_row_label(row), str(pairs), *map(_difference, gaps, columns)])
    return lines


def _row_label(row: Row) -> str:
    return f"{row.label} (control)" if row.control else row.label


def _title(column: Column) -> str:
    """Return the title of a column, with abbreviations in capitals as in papers."""
    first, _, rest = column.name.partition("_")
    short = {"faa", "caa", "ffm", "bwt", "pra", "ssp", "ari"}
    words = [first.upper() if first in short else first, *rest.split("_")]
    return " ".join(word.upper() if word in short else word for word in words if word)


def _number(value: float, digits: int, sign: str = "") -> str:
    """Return a number with thousands set apart and no minus before a zero; ``sign`` is ``+`` or empty."""
    return f"{value:{sign}z,.{digits}f}"


def _mean(row: Row, column: Column, *, best: bool) -> Cell:
    over = row.summary(column)
    if over.mean is None:
        return Cell(value="-")
    std = "" if over.std is None else _number(over.std, column.digits)
    # a deviation that is printed as zero says nothing: a constant, or one below the last digit
    std = std if std.strip("0.") else ""
    return Cell(value=_number(over.mean, column.digits), std=std, best=best)


def _paper(row: Row, column: Column) -> tuple[Cell, Cell]:
    """Return the published value, and ours minus it."""
    printed, ours = row.paper.get(column.name), row.summary(column).mean
    if printed is None:
        return Cell(value="-"), Cell(value="-")
    marks = f"{' *' if printed.differs else ''}{' †' if printed.second_hand else ''}"
    std = "" if printed.std is None else f"{printed.std:g}"
    gap = "-" if ours is None else _number(ours - printed.value, column.digits, "+")
    return Cell(value=f"{printed.value:g}", std=std, note=marks), Cell(value=gap)


def _difference(gap: Difference | None, column: Column) -> Cell:
    if gap is None:
        return Cell(value="-")
    note = ""
    if gap.half is not None:
        low = _number(gap.mean - gap.half, column.digits, "+")
        high = _number(gap.mean + gap.half, column.digits, "+")
        note = f" [{low}, {high}]"
    return Cell(value=_number(gap.mean, column.digits, "+"), note=note)


def remarks_on(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return the definitions of columns, explanations of the numbers, unfinished runs, and notes."""
    remarks = [f"{_title(column)}: {column.meaning}" for column in columns]
    if table.rows:
        remarks.append(
            "± is one sample standard deviation, over n runs (seeds and class orders); "
            "left out where it rounds to 0"
        )
    if against is not None and table.rows:
        remarks.append("differences: mean [95 % interval], t over the pairs; a single pair has none")
    remarks += _sources(table)
    if any(row.control for row in table.rows):
        remarks.append(
            "control: a bound, a baseline that learns almost nothing, or one that knows the answer"
        )
    for run in table.unfinished:
        done = f"{run.done}/{run.tasks or '?'} tasks"
        remarks.append(f"not finished, not counted: {run.path} ({done}, {run.state})")
    return [*remarks, *table.notes]


def _sources(table: Table) -> list[str]:
    """Return the sources of the published values, one per line, and the meaning of their marks."""
    printed = [value for row in table.rows for value in row.paper.values()]
    lines = [f"paper: {text}" for text in dict.fromkeys(value.told for value in printed)]
    if any(value.differs for value in printed):
        lines.append("* the paper's runs are known to differ from ours")
    if any(value.second_hand for value in printed):
        lines.append("† second hand: not measured by the method's authors, or copied from another paper")
    return lines
