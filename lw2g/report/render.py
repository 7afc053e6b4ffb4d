"""Reports as Markdown, LaTeX, CSV and JSON, all from the same tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from lw2g.report.columns import Column
from lw2g.report.statistics import Difference, MeanStd
from lw2g.report.table import Row, Table

__all__ = ["as_csv", "as_json", "as_latex", "as_markdown", "mean_cells", "remarks_on", "shown_columns"]

Cells = list[list[str]]
_PAPER = ("std", "source", "checkpoint", "split", "seeds", "second_hand")
"""Attributes of a published value in CSV and JSON."""


def as_markdown(tables: Sequence[Table], columns: Sequence[Column], against: str | None) -> str:
    """Return Markdown: a table of means, one of differences if a row is named, then remarks."""
    parts = []
    for table in tables:
        parts.append(f"### {table.title}\n")
        shown = shown_columns(table, columns)
        if table.rows:
            parts.append(_pipes(mean_cells(table, shown, "±")))
        if against is not None and table.rows:
            parts.append(_pipes(_differences(table, shown, table.row(against), "±")))
        parts += [f"- {line}" for line in remarks_on(table, shown, against)]
        parts.append("")
    return "\n".join(parts)


def _pipes(cells: Cells) -> str:
    head, *rows = cells
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        + "\n"
    )


def as_latex(tables: Sequence[Table], columns: Sequence[Column], against: str | None) -> str:
    r"""Return LaTeX for ``\usepackage{booktabs}``, with remarks as comments."""
    parts = []
    for table in tables:
        shown = shown_columns(table, columns)
        blocks = [mean_cells(table, shown, "\\pm")] if table.rows else []
        if against is not None and table.rows:
            blocks.append(_differences(table, shown, table.row(against), "\\pm"))
        parts.append(f"% {table.title}")
        parts += [_tabular(cells) for cells in blocks]
        parts += [f"% {line}" for line in remarks_on(table, shown, against)]
    return "\n".join(parts) + "\n"


def _tabular(cells: Cells) -> str:
    head, *rows = cells
    lines = [" & ".join(map(_tex, line)) + r" \\" for line in (head, *rows)]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _tex(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "_%&#$" else letter for letter in text)
    return escaped.replace("\\pm", "$\\pm$") if "\\pm" in text else escaped


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
    difference: Mapping[str, Any] = attrs.asdict(gap) if gap else dict.fromkeys(("mean", "half", "n"))
    return {
        "table": table.title,
        "row": row.label,
        "control": row.control,
        "mixed": " ".join(row.marks),
        "metric": column.name,
        **attrs.asdict(row.summary(column)),
        "paper": None if printed is None else printed.value,
        **{f"paper_{name}": getattr(printed, name, None) for name in _PAPER},
        "paper_differs": [] if printed is None else list(printed.differs),
        **{f"difference_{key}": value for key, value in difference.items()},
    }


# -- cells -----------------------------------------------------------------------------------------------


def shown_columns(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return the columns in which some row has a value."""
    return [column for column in columns if any(row.summary(column).mean is not None for row in table.rows)]


def mean_cells(table: Table, columns: Sequence[Column], sign: str = "±") -> Cells:
    """Return the cells of a table of means: the head, then a line per row."""
    mixed = any(row.marks for row in table.rows)
    printed = {column.name for column in columns if any(column.name in row.paper for row in table.rows)}
    head = ["row", *(["mixed"] if mixed else []), "n"]
    for column in columns:
        head += [_title(column), f"paper {_title(column)}"] if column.name in printed else [_title(column)]
    cells = [head]
    for row in table.rows:
        line = [_row_label(row), *([" ".join(row.marks)] if mixed else []), str(len(row.runs))]
        for column in columns:
            line.append(_mean(row.summary(column), column, sign))
            if column.name in printed:
                line.append(_paper(row, column, sign))
        cells.append(line)
    return cells


def _differences(table: Table, columns: Sequence[Column], reference: Row, sign: str) -> Cells:
    head = [f"minus {reference.label}", "pairs", *(_title(column) for column in columns)]
    rows = [row for row in table.rows if row is not reference]
    return [
        head,
        *(
            [
                _row_label(row),
                str(
                    max((gap.n for gap in (row.difference(reference, c) for c in columns) if gap), default=0)
                ),
                *(_difference(row.difference(reference, column), column, sign) for column in columns),
            ]
            for row in rows
        ),
    ]


def _row_label(row: Row) -> str:
    return f"{row.label} (control)" if row.control else row.label


def _title(column: Column) -> str:
    """Return the title of a column, with abbreviations in capitals as in papers."""
    first, _, rest = column.name.partition("_")
    short = {"faa", "caa", "ffm", "bwt", "pra", "ssp", "ari"}
    words = [first.upper() if first in short else first, *rest.split("_")]
    return " ".join(word.upper() if word in short else word for word in words if word)


def _mean(summary: MeanStd, column: Column, sign: str) -> str:
    if summary.mean is None:
        return "-"
    text = f"{summary.mean:.{column.digits}f}"
    return text if summary.std is None else f"{text} {sign} {summary.std:.{column.digits}f}"


def _paper(row: Row, column: Column, sign: str) -> str:
    printed = row.paper.get(column.name)
    if printed is None:
        return "-"
    deviation = "" if printed.std is None else f" {sign} {printed.std:g}"
    marks = f"{' *' if printed.differs else ''}{' †' if printed.second_hand else ''}"
    return f"{printed.value:g}{deviation}{marks}"


def _difference(gap: Difference | None, column: Column, sign: str) -> str:
    if gap is None:
        return "-"
    text = f"{gap.mean:+.{column.digits}f}"
    return text if gap.half is None else f"{text} {sign} {gap.half:.{column.digits}f}"


def remarks_on(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return the definitions of columns, explanations of the numbers, unfinished runs, and notes."""
    remarks = [f"{_title(column)}: {column.meaning}" for column in columns]
    if table.rows:
        remarks.append("mean ± sample standard deviation over n runs (seeds and class orders)")
    if against is not None and table.rows:
        remarks.append("differences: mean ± half the 95 % interval, t over the pairs; a single pair has none")
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
