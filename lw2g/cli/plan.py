"""``lw2g sweep --dry-run``: the cells of a sweep, their needs and their costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.cli.output import console, in_units, printable, table
from lw2g.errors import Lw2gError

if TYPE_CHECKING:
    from lw2g.registry.catalogue import Catalogue
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.needs import Need
    from lw2g.training.estimate import Estimate, Range

__all__ = ["costs_of", "print_plan"]

_HERE = {True: "yes", False: "no", None: "?"}


def print_plan(cells: Sequence[Cell], catalogue: Catalogue, *, cost: bool, as_json: bool) -> None:
    """Print the cells and their needs and, with ``cost``, the cost of each on this machine."""
    from lw2g.sweeps.needs import needs_of

    needs = [needs_of(cell, catalogue) for cell in cells]
    if as_json:
        costs = list(costs_of(cells, catalogue)) if cost else [None] * len(cells)
        entries = [_entry(*parts) for parts in zip(cells, needs, costs, strict=True)]
        click.echo(json.dumps(entries, indent=1))
        return
    console().print(table("", ("cell", "directory"), [(cell.label, cell.name) for cell in cells], left=2))
    counts = Counter(need for of_cell in needs for need in of_cell)
    rows = [(need.what, _HERE[need.here], need.remedy, str(count)) for need, count in counts.items()]
    console().print(table("", ("needs", "here", "else", "cells"), rows, left=3))
    click.echo(f"{len(cells)} cells")
    if cost:
        _print_costs(cells, costs_of(cells, catalogue))


def costs_of(cells: Sequence[Cell], catalogue: Catalogue) -> Iterator[Estimate | Lw2gError]:
    """Yield the measured cost of each cell, or the error that prevented it.

    Cells that differ only in seeds and class orders are measured once.
    """
    from lw2g.config.resolve import resolve
    from lw2g.config.toml import flat, to_mapping
    from lw2g.reports.names import AVERAGED
    from lw2g.training.estimate import estimate

    measured: dict[str, Estimate | Lw2gError] = {}
    for cell in cells:
        try:
            config = resolve(catalogue, file=cell.tables()).config
        except Lw2gError as error:
            yield error
            continue
        settings = flat(to_mapping(config))
        classes = sorted(map(str, settings.get("benchmark.class_order", ())))
        key = repr(
            (classes, sorted((name, value) for name, value in settings.items() if name not in AVERAGED))
        )
        if key not in measured:
            try:
                measured[key] = estimate(config, catalogue)
            except Lw2gError as error:
                measured[key] = error
        yield measured[key]


def _entry(cell: Cell, needs: Sequence[Need], cost: Estimate | Lw2gError | None) -> dict[str, object]:
    estimate = None if isinstance(cost, Lw2gError) else cost
    return {
        "name": cell.name,
        "label": cell.label,
        "settings": dict(cell.settings),
        "needs": [attrs.asdict(need) for need in needs],
        "cost": None if estimate is None else estimate.as_mapping(),
        "cost_unknown": str(cost) if isinstance(cost, Lw2gError) else None,
    }


def _print_costs(cells: Sequence[Cell], costs: Iterator[Estimate | Lw2gError]) -> None:
    """Print a line per cell as it is measured, then the sum."""
    from lw2g.cli.estimate import bytes_text, time_text
    from lw2g.training.estimate import Range

    estimates: list[Estimate] = []
    for cell, cost in zip(cells, costs, strict=True):
        if isinstance(cost, Lw2gError):
            click.echo(printable(f"{cell.label}: cost unknown ({cost})"))
            continue
        estimates.append(cost)
        click.echo(
            f"{printable(cell.label)}: {time_text(cost.seconds)}, memory {in_units(cost.memory)}, "
            f"disk {bytes_text(cost.disk)}"
        )

    def total(ranges: Sequence[Range]) -> Range:
        return Range(sum(bounds.least for bounds in ranges), sum(bounds.most for bounds in ranges))

    seconds, disk = (
        total([bounds.seconds for bounds in estimates]),
        total([bounds.disk for bounds in estimates]),
    )
    unknown = len(cells) - len(estimates)
    more = f", and {unknown} cells of unknown cost" if unknown else ""
    click.echo(f"all in sequence: {time_text(seconds)}, disk {bytes_text(disk)}{more}")
