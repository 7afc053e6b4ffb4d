"""What a sweep would run, need and cost: the ``--dry-run`` of ``lw2g sweep``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.cli.output import console, printable, table
from lw2g.errors import Lw2gError

if TYPE_CHECKING:
    from lw2g.registry.catalogue import Catalogue
    from lw2g.sweep.grid import Cell
    from lw2g.sweep.needs import Need
    from lw2g.training.costs.estimate import Estimate, Range

__all__ = ["print_plan"]

_HERE = {True: "yes", False: "no", None: "?"}


def print_plan(cells: Sequence[Cell], catalogue: Catalogue, *, cost: bool, as_json: bool) -> None:
    """Print the cells with what they need and, if asked to, what each would cost on this machine."""
    from lw2g.sweep.needs import needs_of

    needs = [needs_of(cell, catalogue) for cell in cells]
    if as_json:
        costs = list(_costs(cells, catalogue)) if cost else [None] * len(cells)
        entries = [_entry(*parts) for parts in zip(cells, needs, costs, strict=True)]
        click.echo(json.dumps(entries, indent=1))
        return
    console().print(table("", ("cell", "directory"), [(cell.label, cell.name) for cell in cells], left=2))
    counts = Counter(need for one in needs for need in one)
    rows = [(need.what, _HERE[need.here], need.remedy, str(count)) for need, count in counts.items()]
    console().print(table("", ("needs", "here", "else", "cells"), rows, left=3))
    click.echo(f"{len(cells)} cells")
    if cost:
        _print_costs(cells, _costs(cells, catalogue))


def _costs(cells: Sequence[Cell], catalogue: Catalogue) -> Iterator[Estimate | Lw2gError]:
    """Yield what each cell would cost, as it is measured, or why nobody can say."""
    from lw2g.config.resolve import resolve
    from lw2g.training.costs.estimate import Estimator

    estimator = Estimator(catalogue, len(cells))
    for cell in cells:
        try:
            yield estimator(resolve(catalogue, file=cell.tables()).config)
        except Lw2gError as error:
            yield error


def _entry(cell: Cell, needs: Sequence[Need], cost: Estimate | Lw2gError | None) -> dict[str, object]:
    known = None if isinstance(cost, Lw2gError) else cost
    return {
        "name": cell.name,
        "label": cell.label,
        "settings": dict(cell.settings),
        "needs": [attrs.asdict(need) for need in needs],
        "cost": None if known is None else known.as_mapping(),
        "cost_unknown": str(cost) if isinstance(cost, Lw2gError) else None,
    }


def _print_costs(cells: Sequence[Cell], costs: Iterator[Estimate | Lw2gError]) -> None:
    """Print a line a cell as it comes, then the sum."""
    from lw2g.cli.estimate import bytes_text, time_text
    from lw2g.training.costs.estimate import Range

    known: list[Estimate] = []
    for cell, found in zip(cells, costs, strict=True):
        if isinstance(found, Lw2gError):
            click.echo(printable(f"{cell.label}: cost unknown ({found})"))
            continue
        known.append(found)
        stand_ins = " (with stand-ins for what is missing)" if found.missing else ""
        click.echo(
            f"{printable(cell.label)}: {time_text(found.seconds)}, memory {bytes_text(found.memory)}, "
            f"disk {bytes_text(found.disk)}, {found.method}{stand_ins}"
        )

    def total(ranges: Sequence[Range]) -> Range:
        return Range(sum(one.least for one in ranges), sum(one.most for one in ranges))

    seconds, disk = total([one.seconds for one in known]), total([one.disk for one in known])
    unknown = len(cells) - len(known)
    more = f", and {unknown} cells of unknown cost" if unknown else ""
    click.echo(f"all, one after the other: {time_text(seconds)}, disk {bytes_text(disk)}{more}")
