"""``lw2g sweep --dry-run``: the cells of a sweep, their needs and their costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.api.sweeps import total_of
from lw2g.cli.estimate import bytes_text, time_text
from lw2g.console.output import console, in_units, printable, table
from lw2g.errors import Lw2gError, counted

if TYPE_CHECKING:
    from lw2g.api.sweeps import Plan
    from lw2g.estimate.estimate import Estimate, Range
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.needs import Need

__all__ = ["print_missing", "print_plan"]

_HERE = {True: "yes", False: "no", None: "?"}


def print_plan(plan: Plan, *, cost: bool, as_json: bool) -> None:
    """Print the cells and their needs and, with ``cost``, the cost of each on this machine."""
    if as_json:
        costs: Sequence[Estimate | Lw2gError | None] = [None] * len(plan.cells)
        if cost:
            costs = list(plan.costs())
        entries = [_entry(*parts) for parts in zip(plan.cells, plan.needs, costs, strict=True)]
        click.echo(json.dumps(entries, indent=1))
        return
    names = [(cell.label, cell.name) for cell in plan.cells]
    console().print(table("", ("cell", "directory"), names, left=2))
    counts: Counter[Need] = Counter()
    for needs in plan.needs:
        counts.update(needs)
    rows = [(need.what, _HERE[need.here], str(count)) for need, count in counts.items()]
    console().print(table("", ("needs", "here", "cells"), rows, left=2))
    print_missing(plan)
    click.echo(counted(len(plan.cells), "cell"))
    if cost:
        _print_costs(plan)


def print_missing(plan: Plan) -> None:
    """Print what is not here, each thing once, with the number of cells that need it and how to get it."""
    for need, count in plan.missing:
        click.echo(printable(f"missing for {counted(count, 'cell')}: {need.what}"))
        click.echo(printable(f"    {need.remedy}"))


def _entry(cell: Cell, needs: Sequence[Need], cost: Estimate | Lw2gError | None) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": cell.name,
        "label": cell.label,
        "settings": dict(cell.settings),
        "needs": [attrs.asdict(need) for need in needs],
        "cost": None,
        "cost_unknown": None,
    }
    if isinstance(cost, Lw2gError):
        entry["cost_unknown"] = str(cost)
    elif cost is not None:
        entry["cost"] = cost.as_mapping()
    return entry


def _print_costs(plan: Plan) -> None:
    """Print a line per cell of known cost, the reasons why others are unknown, and the sum.

    A finished cell has cost what it took, and tells the cost of the cells of its kind.
    """
    unknown: Counter[str] = Counter()
    seconds: list[Range] = []
    disk: list[Range] = []
    num_open = 0
    for cell, took, cost in plan.remaining_costs():
        num_open += 1
        label = printable(cell.label)
        if took is not None:
            seconds.append(took)
            click.echo(f"{label}: {time_text(took)}, as a finished cell of its kind")
        elif isinstance(cost, Lw2gError):
            unknown[str(cost)] += 1
        elif cost is not None:
            seconds.append(cost.seconds)
            disk.append(cost.disk)
            click.echo(
                f"{label}: {time_text(cost.seconds)}, memory {in_units(cost.memory)}, "
                f"disk {bytes_text(cost.disk)}"
            )
    for reason, count in unknown.items():
        click.echo(printable(f"cost unknown ({counted(count, 'cell')}): {reason}"))
    if plan.took:
        click.echo(f"{counted(len(plan.took), 'cell')} finished")
    if not num_open:
        return
    if not seconds:
        click.echo("all in sequence: unknown")
        return
    total = time_text(total_of(seconds))
    if disk:  # finished cells tell their seconds alone
        total += f", disk {bytes_text(total_of(disk))}"
    if unknown:
        known = f"{len(seconds)} of {counted(num_open, 'cell')}"
        click.echo(f"{known} in sequence: {total}; the others are unknown")
    else:
        click.echo(f"all in sequence: {total}")
