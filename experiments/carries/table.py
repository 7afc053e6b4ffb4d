"""Print the tables of the study: FAA by carry, streams of report apart from those of development.

    python experiments/carries/table.py experiments/carries/cells [--pages]

An entry is FAA alone / with the frozen expert, mean over orders, and in brackets that of the worst order; the
number of orders stands in the head. Differences are paired, with the 95 % interval over orders and test
images. Of the main method on report streams, docs/carries.md gets the table of large images between its
marks, README.md that of small ones.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from cell import STREAMS
from results import Cell, chosen, less, load, task_mean

ROWS = ("none", "shift", "affine", "auto", "gate", "fresh")
JUDGED = ("none", "affine", "gate", "fresh")
"""The rows that the hypotheses speak of; the page has these alone."""
LARGE = 224
"""The size from which on the page has a table; that of smaller images stands in README.md."""
BEGIN, END = "<!-- cells -->", "<!-- end of cells -->"
ROOT = Path(__file__).parents[2]
METHODS = ("slca-plus-plus", "lora", "prompt", "ssiat")

DIFFERENCES = (
    ("affine minus none (no expert)", ("affine", False), ("none", False)),
    ("gate minus affine (no expert)", ("gate", False), ("affine", False)),
    ("gate minus affine of means only (no expert)", ("gate", False), ("affine-means", False)),
    ("gate minus none (no expert)", ("gate", False), ("none", False)),
    ("gate minus none (both with expert)", ("gate", True), ("none", True)),
    ("none with expert minus none", ("none", True), ("none", False)),
    ("gate with expert minus gate", ("gate", True), ("gate", False)),
    ("gate with expert minus raw `lda`", ("gate", True), ("raw", False)),
    ("none with expert minus raw `lda`", ("none", True), ("raw", False)),
    ("fresh-means minus fresh (no expert)", ("fresh-means", False), ("fresh", False)),
)
JUDGED_DIFFERENCES = tuple(own for own in DIFFERENCES if own[0] != "none with expert minus raw `lda`")


def roles() -> dict[str, str]:
    """Return what each stream is for: ``development`` or ``report``."""
    return {name: facts["role"] for name, facts in tomllib.loads(STREAMS.read_text())["stream"].items()}


def tables(cells: Sequence[Cell], floor: Path) -> Iterator[str]:
    """Yield the lines of all tables; a development stream never stands among report streams."""
    for role, title in (("report", "Report streams"), ("development", "Development streams (not held out)")):
        for method in METHODS:
            yield from of_role(cells, floor, role, title, method)


def of_role(
    cells: Sequence[Cell], floor: Path, role: str, title: str, method: str, *, whole: bool = True
) -> Iterator[str]:
    """Yield the lines of the tables of one method on the streams of a role, one table a size.

    A table that is not ``whole`` has what is judged alone.
    """
    names = [name for name, its in roles().items() if its == role]
    for size in sorted({cell.facts["size"] for cell in cells}, reverse=True):
        own = {name: chosen(cells, name, method, size) for name in names}
        own = {name: orders for name, orders in own.items() if orders}
        if own:
            yield from table(f"{title}, {method}, {size} px", own, floor, ROWS if whole else JUDGED)


def table(title: str, streams: dict[str, list[Cell]], floor: Path, rows: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one table with these rows; with all of them also random units, all differences."""
    whole = rows == ROWS
    yield f"\n**{title}**\n"
    yield (
        "| FAA / with the expert (worst order) | "
        + " | ".join(f"{name} ({_orders(own)})" for name, own in streams.items())
        + " |"
    )
    yield "| --- |" + " ---: |" * len(streams)
    yield _row("raw `lda`", [_mean([each.faa("raw") for each in own]) for own in streams.values()])
    if whole:
        yield _row("`ridge` on 1,000 random units", [_pair(*_floor(floor, own)) for own in streams.values()])
    for carry in rows:
        pairs = [
            [[each.faa(carry, expert=expert) for each in own] for expert in (False, True)]
            for own in streams.values()
        ]
        yield _row(f"`{carry}`", [_pair(*pair) for pair in pairs])
    for label, left, right in DIFFERENCES if whole else JUDGED_DIFFERENCES:
        shown = []
        for own in streams.values():
            apart = less(own, *({"carry": carry, "expert": expert} for carry, expert in (left, right)))
            shown.append(apart.interval())
        yield _row(label, shown)


def _orders(own: Sequence[Cell]) -> str:
    return f"{len(own)} order" + "s" * (len(own) > 1)


def _row(label: str, entries: Sequence[str]) -> str:
    return f"| {label} | " + " | ".join(entries) + " |"


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f}" + (f" ({min(values):.1f})" if len(values) > 1 else "")


def _pair(alone: Sequence[float], both: Sequence[float]) -> str:
    if not alone:
        return "-"
    shown = f"{np.mean(alone):.1f} / {np.mean(both):.1f}"
    return shown + (f" ({min(alone):.1f} / {min(both):.1f})" if len(alone) > 1 else "")


def _floor(folder: Path, own: Sequence[Cell]) -> tuple[list[float], list[float]]:
    """Return the FAA of ``ranpac`` on frozen features, alone and with the expert."""
    alone, both = [], []
    for each in own:
        file = folder / "{stream}.{order}.{size}.npz".format(**each.facts)
        if file.exists():
            stored = np.load(file)
            assert json.loads(str(stored["facts"]))["stream"] == each.facts["stream"]
            tasks = each.accuracy.shape[-1]
            ends = [task_mean(row == stored["labels"], stored["labels"], tasks) for row in stored["answers"]]
            alone.append(ends[0])
            both.append(ends[1])
    return alone, both


def page_with(text: str, lines: Sequence[str]) -> str:
    """Return a page with these lines between its marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, *lines, "", END]) + tail


def study_lines(folder: Path, *, small: bool = False) -> list[str]:
    """Return the table on the page of the study, or that of small images in README.md."""
    cells = [cell for cell in load(folder) if (cell.facts["size"] < LARGE) == small]
    return [*of_role(cells, folder / "floor", "report", "Report streams", METHODS[0], whole=False)]


PAGE = ROOT / "docs" / "carries.md"


def main() -> None:
    """Print the tables of a folder of cells, or write them into the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", type=Path, help="folder of the cells")
    parser.add_argument("--pages", action="store_true", help="write what docs/carries.md shows of them")
    arguments = parser.parse_args()
    if not arguments.pages:
        print("\n".join(tables(load(arguments.cells), arguments.cells / "floor")))
        return
    PAGE.write_text(page_with(PAGE.read_text(), study_lines(arguments.cells)))


if __name__ == "__main__":
    main()
