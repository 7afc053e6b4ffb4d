"""``lw2g sweep --dry-run``: the cells of a sweep and their needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.errors import counted
from lw2g.runtime.console import console, printable, table

if TYPE_CHECKING:
    from lw2g.api.sweeps import Plan
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.needs import Need

__all__ = ["print_missing", "print_plan"]

_HERE = {True: "yes", False: "no", None: "?"}


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print the cells and their needs."""
    if as_json:
        entries = [_entry(cell, needs) for cell, needs in zip(plan.cells, plan.needs, strict=True)]
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
    click.echo(f"{counted(len(plan.cells), 'cell')}: {plan.draws}")


def print_missing(plan: Plan) -> None:
    """Print what is not here, each thing once, with the number of cells that need it and how to get it."""
    for need, count in plan.missing:
        click.echo(printable(f"missing for {counted(count, 'cell')}: {need.what}"))
        click.echo(printable(f"    {need.remedy}"))


def _entry(cell: Cell, needs: Sequence[Need]) -> dict[str, object]:
    return {
        "name": cell.name,
        "label": cell.label,
        "settings": dict(cell.settings),
        "needs": [attrs.asdict(need) for need in needs],
    }
