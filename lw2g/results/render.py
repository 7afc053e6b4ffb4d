"""Reports as Markdown, LaTeX, CSV and JSON, all from the same tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from lw2g.ground.asked import as_asked
from lw2g.results.ahead import ahead_in_words
from lw2g.results.cells import (
    Cell,
    Cells,
    cell_blocks,
    counted_in,
    definitions_of,
    differences_in_words,
    few_remarks_on,
    remarks_on,
    shown_columns,
    spread,
)
from lw2g.results.columns import Column
from lw2g.results.found_runs import Given
from lw2g.results.summaries import Difference, without_rounding_error
from lw2g.results.table import Row, Table

__all__ = [
    "as_csv",
    "as_json",
    "as_latex",
    "as_markdown",
    "literal_markdown",
]


_NONE_FINISHED = (
    "no run is finished yet, so there is no table; "
    "`lw2g report RUNS --html page.html` shows how far each has come"
)
_PAPER = ("std", "source", "checkpoint", "split", "seeds", "second_hand")
"""Attributes of a published value in CSV and JSON."""
_NO_PAPER: Mapping[str, Any] = {
    **dict.fromkeys(("paper", "minus_paper", *(f"paper_{name}" for name in _PAPER))),
    "paper_differs": [],
}
_NO_DIFFERENCE: Mapping[str, Any] = dict.fromkeys(
    (*(f"difference_{name}" for name in attrs.fields_dict(Difference)), "difference_same", "against")
)
_NOT_GIVEN: Mapping[str, Any] = dict.fromkeys(f"given_{name}" for name in attrs.fields_dict(Given))
_SAME = "the same in every order"
_LEFT_OUT = "left_out"
"""The column of CSV, and the key of JSON, with what a report lacks."""
_LISTS = ("paper_differs", "given_badges")
"""What of an entry has several texts, which CSV joins."""


def as_markdown(
    tables: Sequence[Table],
    columns: Sequence[Column],
    against: str | None,
    missing: Sequence[str] = (),
    *,
    others: str = "",
) -> str:
    """Return Markdown: for each table means, differences if a row is named, and remarks; then definitions.

    Args:
        tables: One per benchmark. Labels of rows that come from a store are words of strangers: they are
            escaped, so that they show as they are written.
        columns: What may be shown; columns without a value that nobody named are left out.
        against: Label of the row that differences refer to, or a unique part of it; None for no differences.
        missing: Which runs were left out, and why, a line each; these lines stand first.
        others: Where all remarks are, of which the most important then stand below a table; empty for all.
    """
    remarks_of = partial(few_remarks_on, others=others) if others else _every_remark_on
    parts = [f"{literal_markdown(line)}\n" for line in missing]
    parts += [f"{table.apart}\n" for table in tables if table.apart]
    for table in tables:
        # each ends in a line feed, and joining adds one: an empty line between blocks, which Markdown needs
        above = "; ".join(filter(None, (", ".join(table.conditions), table.draws, table.tested)))
        parts += [f"### {table.title}\n", f"{above or as_asked(_NONE_FINISHED)}\n"]
        shown = shown_columns(table, columns)
        for block in cell_blocks(table, shown, against):
            parts.append(_markdown_block(block, table))
        for remark in remarks_of(table, shown, against):
            parts.append(f"- {_with_literal_names(remark, table)}")
        parts.append("")
    if definitions := definitions_of(_shown_somewhere(tables, columns), in_short=bool(others)):
        parts += ["columns:\n", *(f"- {definition}" for definition in definitions), ""]
    return "\n".join(parts)


def _shown_somewhere(tables: Sequence[Table], columns: Sequence[Column]) -> list[Column]:
    """Return the columns that some table shows."""
    shown = [column for table in tables for column in shown_columns(table, columns)]
    return [column for column in columns if column in shown]


def _every_remark_on(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return all remarks, with what n counts: the page heads that column with another word."""
    remarks = remarks_on(table, columns, against)
    first = len(table.unlike)
    return [*remarks[:first], *counted_in(table), *remarks[first:]]


def _markdown_block(cells: Cells, table: Table) -> str:
    """Return a Markdown table, a line feed after each of its lines."""
    lines = []
    for line in cells:
        escaped = " | ".join(_markdown_cell(_with_bold(cell), table) for cell in line)
        lines.append(f"| {escaped} |\n")
    rule = f"| {' | '.join(['---'] * len(cells[0]))} |\n"
    return "".join([lines[0], rule, *lines[1:]])


def _with_bold(cell: Cell | str) -> str:
    """Return the text of a cell, in which the number of a row that is ahead is bold."""
    if isinstance(cell, Cell) and cell.best:
        cell = attrs.evolve(cell, value=f"**{cell.value}**")
    return str(cell)


def _markdown_cell(text: str, table: Table) -> str:
    literal = _with_literal_names(text, table)
    if literal != text:  # its bars are escaped already
        return literal
    return text.replace("|", "\\|")


def _with_literal_names(text: str, table: Table) -> str:
    """Return text in which a store's rows and givers are no Markdown; plain names stay as they are typed."""
    names = [*table.givers, *(row.label for row in table.rows if row.runs[0].given is not None)]
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)  # one name may begin another
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: _literal_name(found[0]), text)


_OPTIONS = re.compile(r"(?<=\w)(\[(?:[a-zA-Z0-9 =,+-]|(?<=\w)_(?=\w)|(?<!www)\.)+\])(?![(\[:])", re.ASCII)
"""Options in brackets that are no Markdown as they are: no link begins or ends with them."""


def _literal_name(name: str) -> str:
    """Return Markdown that shows a name, whose options stand in it as they are typed where that can be."""
    parts = _OPTIONS.split(name)
    parts[::2] = map(literal_markdown, parts[::2])  # between them stand the options
    return "".join(parts)


_ACTIVE = re.compile(r"[\\`*_\[\]<>|~&#!]|:(?=//)|(?<=www)\.")


def literal_markdown(text: str) -> str:
    r"""Return Markdown that shows a text as it is: no HTML, links, emphasis or cells.

    >>> print(literal_markdown("<b>[me](https://x)"))
    \<b\>\[me\](https\://x)
    """
    return _ACTIVE.sub(r"\\\g<0>", text)


def as_latex(
    tables: Sequence[Table], columns: Sequence[Column], against: str | None, missing: Sequence[str] = ()
) -> str:
    r"""Return LaTeX for ``\usepackage{booktabs}``: tables with captions, and remarks.

    A number is bold whose row is ahead of each other one beyond chance. The remarks, and first what is
    ``missing``, are comments.
    """
    parts = [f"% {line}" for line in missing]
    for number, table in enumerate(tables):
        shown = shown_columns(table, columns)
        captions = ["one run per row"]
        if any(len(row.runs) > 1 for row in table.rows):
            captions = [f"mean $\\pm$ one sample standard deviation over {spread(table)}"]
        if ahead := ahead_in_words(table, shown):
            captions[0] += f"; {_tex(ahead)}"
        reference = table.reference(against)
        if reference is not None:
            captions.append(f"differences from {_tex(reference.label)}, with 95\\,\\% intervals")
        about = _tex(", ".join(filter(None, [table.title, *table.conditions, table.tested])))
        labels = [f"tab:lw2g-{number}", f"tab:lw2g-{number}-differences"]
        # not strict: a table without rows has no block, one without differences has the first alone
        for block, caption, label in zip(cell_blocks(table, shown, against), captions, labels, strict=False):
            parts.append(_tabular(block, f"{about}: {caption}.", label))
        for remark in _every_remark_on(table, shown, against):
            parts.append(f"% {remark}")
    parts += [f"% {definition}" for definition in definitions_of(_shown_somewhere(tables, columns))]
    return "\n".join(parts) + "\n"


def _tabular(cells: Cells, caption: str, label: str) -> str:
    """Return a table as LaTeX: text to the left in the first column, numbers to the right in others."""
    lines = []
    for line in cells:
        lines.append(" & ".join(map(_tex, line)) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(cells[0]) - 1)}}}",
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
        return cell.translate(_TEX).replace("--", "-{}-")  # of an option's name, no dash
    marks = cell.note.translate(_TEX)
    if cell.value == "-":
        return f"--{marks}"
    number = _tex_number(cell.value)
    if cell.best:
        number = rf"\mathbf{{{number}}}"
    if cell.std:
        number += rf" \pm {_tex_number(cell.std)}"
    if cell.note.startswith(" ["):  # an interval consists of numbers as well
        # its space needs a backslash in math
        return rf"${number}\{cell.note}$"
    return f"${number}${marks}"


def _tex_number(text: str) -> str:
    """Return a number for math, where a comma in braces has no space after it."""
    return text.replace(",", "{,}")


def as_csv(
    tables: Sequence[Table], columns: Sequence[Column], against: str | None, missing: Sequence[str] = ()
) -> str:
    """Return a CSV line per row and column; what is ``missing`` stands in each, as CSV has no comments."""
    entries = list(_entries(tables, columns, against))
    names = ["table", "row", _LEFT_OUT]
    if entries:
        names = [*entries[0], _LEFT_OUT]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        joined = {name: "; ".join(entry[name] or ()) for name in _LISTS}
        writer.writerow({**entry, **joined, _LEFT_OUT: "; ".join(missing)})
    return text.getvalue()


def as_json(
    tables: Sequence[Table], columns: Sequence[Column], against: str | None, missing: Sequence[str] = ()
) -> str:
    """Return the entries of the CSV as JSON, with definitions and notes, and what is ``missing``."""
    content = {
        "definitions": {column.name: column.meaning for column in columns},
        "entries": list(_entries(tables, columns, against)),
        "tables": [_table_facts(table, columns, against) for table in tables],
        _LEFT_OUT: list(missing),
    }
    return json.dumps(content, indent=1) + "\n"


def _table_facts(table: Table, columns: Sequence[Column], against: str | None) -> dict[str, Any]:
    """Return what JSON says of a table beside its entries."""
    rows = []
    for row in table.rows:
        rows.append({"label": row.label, "runs": [str(run.path) for run in row.runs]})
    return {
        "title": table.title,
        "rows": rows,
        "unfinished": [str(run.path) for run in table.unfinished],
        "notes": [*table.unlike, *differences_in_words(table, columns, against), *table.givers, *table.notes],
    }


def _entries(
    tables: Sequence[Table], columns: Sequence[Column], against: str | None
) -> Iterator[dict[str, Any]]:
    """Yield one entry for each cell of the tables, a column of a row."""
    for table in tables:
        reference = table.reference(against)
        gaps: Mapping[str, Mapping[str, Difference | None]] = {}
        if reference is not None:
            compared = [column for column in columns if not column.is_time]
            gaps = {column.name: table.differences(reference, column) for column in compared}
        for row in table.rows:
            for column in columns:
                entry = _entry(table, row, column, gaps.get(column.name, {}).get(row.label))
                if reference is not None and row is not reference:
                    entry["against"] = reference.label
                yield entry


def _interval(row: Row, column: Column) -> dict[str, Any]:
    """Return the 95 % interval of final accuracy, and its number of test images; None of other columns."""
    found = row.interval if column.name == "faa" else None
    if found is None:
        return {"low": None, "high": None, "images": None}
    return {"low": found.low, "high": found.high, "images": found.images}


def _entry(table: Table, row: Row, column: Column, gap: Difference | None) -> dict[str, Any]:
    """Return all that CSV and JSON hold of one row and column, ``gap`` from the reference."""
    over_runs = row.summary(column)
    entry = {
        "table": table.title,
        "row": row.label,
        "baseline": row.runs[0].config["baseline"]["name"],
        "control": row.control,
        "mixed": " ".join(row.marks),
        "metric": column.name,
        **attrs.asdict(over_runs),
        **_interval(row, column),
        "runs": row.number,
        # every entry has the same keys in the same order: they are the head of the CSV
        **_NO_DIFFERENCE,
        **_NO_PAPER,
        **_NOT_GIVEN,
    }
    printed = row.paper.get(column.name)
    if printed is not None:
        entry["paper"] = printed.value
        if over_runs.mean is not None:
            entry["minus_paper"] = without_rounding_error(over_runs.mean - printed.value)
        for name in _PAPER:
            entry[f"paper_{name}"] = getattr(printed, name)
        entry["paper_differs"] = list(printed.differs)
    if gap is not None:
        for name, value in attrs.asdict(gap).items():
            entry[f"difference_{name}"] = value
        if gap.is_none:
            entry["difference_same"] = _SAME
    given = row.runs[0].given
    if given is not None:
        for name, value in attrs.asdict(given).items():
            entry[f"given_{name}"] = value
    return entry
