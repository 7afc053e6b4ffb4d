"""Print the tables of the study: FAA by carry, streams of report apart from those of development.

    python experiments/carries/table.py experiments/carries/cells

Each entry is the mean over orders and the worst order; the number of orders stands in the head. Differences
are paired, with the 95 % t-interval over orders, over test images alone where there is one order, which is
said.
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
METHODS = ("slca-plus-plus", "lora", "prompt", "ssiat")

DIFFERENCES = (
    ("gate less affine", ("gate", False), ("affine", False)),
    ("gate less none", ("gate", False), ("none", False)),
    ("affine with expert less affine", ("affine", True), ("affine", False)),
    ("gate with expert less affine", ("gate", True), ("affine", False)),
    ("gate with expert less raw `lda`", ("gate", True), ("raw", False)),
    ("none with expert less raw `lda`", ("none", True), ("raw", False)),
    ("fresh-means less fresh (stale scatter)", ("fresh-means", False), ("fresh", False)),
)


def roles() -> dict[str, str]:
    """Return what each stream is for: ``development`` or ``report``."""
    return {name: facts["role"] for name, facts in tomllib.loads(STREAMS.read_text())["stream"].items()}


def tables(cells: Sequence[Cell], floor: Path) -> Iterator[str]:
    """Yield the lines of all tables; a development stream never stands among report streams."""
    known = roles()
    for role, title in (("report", "Report streams"), ("development", "Development streams (not held out)")):
        for size in sorted({cell.facts["size"] for cell in cells}, reverse=True):
            for method in METHODS:
                own = {name: chosen(cells, name, method, size) for name, its in known.items() if its == role}
                own = {name: orders for name, orders in own.items() if orders}
                if own:
                    yield from table(f"{title}, {method}, {size} px", own, floor)


def table(title: str, streams: dict[str, list[Cell]], floor: Path) -> Iterator[str]:
    """Yield the lines of one table."""
    yield f"\n**{title}**\n"
    yield (
        "| FAA, mean (worst order) | "
        + " | ".join(f"{name} ({_orders(own)})" for name, own in streams.items())
        + " |"
    )
    yield "| --- |" + " ---: |" * len(streams)
    yield _row("raw `lda`", [_cell([each.faa("raw") for each in own]) for own in streams.values()])
    floors = [_floor(floor, own) for own in streams.values()]
    yield _row("`ranpac adapt=none`", [_cell(found[0]) for found in floors])
    yield _row("the same, with expert", [_cell(found[1]) for found in floors])
    for carry in ROWS:
        yield _row(f"`{carry}`", [_cell([each.faa(carry) for each in own]) for own in streams.values()])
        both = [_cell([each.faa(carry, expert=True) for each in own]) for own in streams.values()]
        yield _row(f"`{carry}` with expert", both)
    for label, left, right in DIFFERENCES:
        shown = []
        for own in streams.values():
            apart = less(own, *({"carry": carry, "expert": expert} for carry, expert in (left, right)))
            shown.append(f"{apart.mean:+.1f} ± {apart.half:.1f}{' (images)' if apart.orders == 1 else ''}")
        yield _row(label, shown)


def _orders(own: Sequence[Cell]) -> str:
    return f"{len(own)} order" + "s" * (len(own) > 1)


def _row(label: str, entries: Sequence[str]) -> str:
    return f"| {label} | " + " | ".join(entries) + " |"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{np.mean(values):.1f}" + (f" ({min(values):.1f})" if len(values) > 1 else "")


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


def main() -> None:
    """Print the tables of a folder of cells."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", type=Path, help="folder of the cells")
    folder = parser.parse_args().cells
    print("\n".join(tables(load(folder), folder / "floor")))


if __name__ == "__main__":
    main()
