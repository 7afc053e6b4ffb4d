"""``lw2g sweep --dry-run``: the cells of a sweep, their needs, and what they cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.errors import counted
from lw2g.runtime.console import console, in_units, note, printable, table

if TYPE_CHECKING:
    from lw2g.api.sweeps import Plan
    from lw2g.lifecycle.estimate import Estimate
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.needs import Need

__all__ = ["print_missing", "print_plan"]

_HERE = {True: "yes", False: "no", None: "?"}


def print_plan(plan: Plan, finished: Container[str], *, as_json: bool) -> None:
    """Print the cells, their needs, and what those cost that are not finished.

    Args:
        plan: The plan.
        finished: The directories of finished cells, which do not run again.
        as_json: Whether to print JSON.

    Raises:
        click.exceptions.Exit: Something is missing.
    """
    to_run = [cell for cell in plan.cells if cell.name not in finished]
    if as_json:
        costs = dict(zip((cell.name for cell in to_run), plan.costs(to_run), strict=True))
        entries = [
            _entry(cell, needs, costs.get(cell.name), finished=cell.name in finished)
            for cell, needs in zip(plan.cells, plan.needs, strict=True)
        ]
        click.echo(json.dumps(entries, indent=1))
    else:
        _print_needs(plan)
        if len(to_run) < len(plan.cells):
            click.echo(f"{len(plan.cells) - len(to_run)} finished, {len(to_run)} to run")
        for line in _cost_lines(plan, to_run):
            click.echo(printable(line))
    if any(need.here is False for need, _ in plan.missing):
        raise click.exceptions.Exit(2)


def _print_needs(plan: Plan) -> None:
    names = [(cell.label, cell.name) for cell in plan.cells]
    console().print(table("", ("cell", "directory"), names, left=2))
    counts: Counter[Need] = Counter()
    for needs in plan.needs:
        counts.update(needs)
    rows = [(need.what, _HERE[need.here], str(count)) for need, count in counts.items()]
    console().print(table("", ("needs", "here", "cells"), rows, left=2))
    print_missing(plan)
    click.echo(f"{counted(len(plan.cells), 'cell')}: {plan.draws}")


def _cost_lines(plan: Plan, to_run: Sequence[Cell]) -> Iterator[str]:
    """Yield what cells cost, one after the other and several at a time."""
    costs = plan.costs(to_run)
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        yield f"no estimate of {len(costs) - len(known)} of them, for which something is not here"
    if not known:
        return
    for text in dict.fromkeys(chain.from_iterable(cost.notes for cost in known)):
        note(text)
    seconds = sum(cost.seconds for cost in known)
    memory = f"memory {in_units(max(cost.memory for cost in known))} for each"
    if of_device := [cost.device_memory for cost in known if cost.device_memory is not None]:
        memory += f" and {in_units(max(of_device))} of the device"
    kinds = counted(len({id(cost) for cost in known}), "kind")
    line = (
        f"one after the other on {known[0].device}: time {_clock(seconds)} "
        f"({known[0].starting:.0f} s of each to start), {memory}, "
        f"disk {in_units(sum(cost.disk for cost in known))}"
    )
    jobs = plan.executor.get("jobs") or 1
    if jobs > 1:
        longest = max(cost.seconds for cost in known)
        line += f"; with {jobs} at a time at best {_clock(max(seconds / jobs, longest))}"
    yield f"{line} ({kinds} of cells measured; accurate to about 50 %)"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def print_missing(plan: Plan) -> None:
    """Print what is not here, each thing once, with the number of cells that need it and how to get it."""
    for need, count in plan.missing:
        click.echo(printable(f"missing for {counted(count, 'cell')}: {need.what}"))
        click.echo(printable(f"    {need.remedy}"))


def _entry(cell: Cell, needs: Sequence[Need], cost: Estimate | None, *, finished: bool) -> dict[str, object]:
    return {
        "name": cell.name,
        "label": cell.label,
        "settings": dict(cell.settings),
        "needs": [attrs.asdict(need) for need in needs],
        "finished": finished,
        "cost": cost and cost.as_mapping(),
    }
