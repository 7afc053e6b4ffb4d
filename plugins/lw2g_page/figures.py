"""The figures of a page: each with its title, reading, numbers and drawing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Literal

import attrs

from lw2g.results.table import Row, Table
from lw2g_page import compare, inside
from lw2g_page.drawings import drawing_of
from lw2g_page.numbers import Field, Numbers

__all__ = ["FIGURES", "Figure"]


@attrs.frozen(kw_only=True)
class Figure:
    """A figure.

    Attributes:
        name: Its anchor.
        title: Its title.
        reading: How to read it.
        of_line: What the reading adds where a line is drawn that not all numbers have.
        of_controls: What it adds where a row is a control, of a figure with such a line where it is drawn.
        of_joint: What it adds where a run learned all tasks at once, beside others that did not.
        of: Computes its numbers from the rows of a table, or from one run.
        fields: The columns of its numbers.
        drawing: A Vega-Lite specification without data.
        scope: What :attr:`of` takes.
        panel: The field with one drawing per value; empty for a single drawing.
        picks: Fields whose value the reader chooses.
        layout: How the page sizes it: a line of text above each bar (``rows``), cells (``cells``), a square
            (``square``), a height that grows with the tasks (``flow``).
        key: The meanings of its colours: text, colour, and form of the mark if it is no dot.
        half: Whether it takes half of a wide page.
        legend: Whether a legend of the table's rows stands below.
        band: Whether a band of deviations is drawn around means.
        finished: Whether it shows finished runs only.
        accuracies: Fields along an axis of accuracies in percent.
        accurate: The panels that have such an axis; empty if all have.
    """

    name: str
    title: str
    reading: str
    of_line: str = ""
    of_controls: str = ""
    of_joint: str = ""
    of: Callable[[Any], Numbers]
    fields: Sequence[Field]
    drawing: dict[str, Any]
    scope: Literal["rows", "run"]
    panel: str = ""
    picks: Sequence[str] = ()
    layout: Literal["", "rows", "cells", "square", "flow"] = ""
    key: Sequence[Sequence[str]] = ()
    half: bool = False
    legend: bool = False
    band: bool = False
    finished: bool = True
    accuracies: Sequence[str] = ()
    accurate: Sequence[str] = ()

    def rows_of(self, table: Table) -> Sequence[Row]:
        """Return the rows of a table that it shows."""
        return [row for row in table.rows if row.finished] if self.finished else table.rows

    def reading_of(self, table: Table) -> str:
        """Return how to read it where it shows rows of a table: nothing of rows that are not there."""
        rows = self.rows_of(table)
        parts = [self.reading]
        if not self.of_line or self.of(rows).has_line:
            parts.append(self.of_line)
            if any(row.control for row in rows):
                parts.append(self.of_controls)
        if len({row.runs[0].tasks == 1 for row in rows}) > 1:
            parts.append(self.of_joint)
        return " ".join(filter(None, parts))


def _figures() -> tuple[Figure, ...]:
    """Read the figures from ``figures.toml``, which explains its layout."""
    text = (files("lw2g_page") / "figures.toml").read_text(encoding="utf-8")
    figures = []
    for table in tomllib.loads(text)["figures"]:
        # a field is a list of its name, its title and, for a fraction, its digits
        table["fields"] = tuple(
            Field(name=name, title=title, digits=digits[0] if digits else None)
            for name, title, *digits in table["fields"]
        )
        table["drawing"] = drawing_of(table["drawing"], table.get("layout", ""))
        numbers = compare if table["scope"] == "rows" else inside
        figures.append(Figure(of=getattr(numbers, table["name"]), **table))
    return tuple(figures)


FIGURES = _figures()
