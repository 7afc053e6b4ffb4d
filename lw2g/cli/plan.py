"""``lw2g sweep --dry-run``: the cells of a sweep, their needs and their costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.console.output import console, in_units, printable, table
from lw2g.errors import Lw2gError, counted

if TYPE_CHECKING:
    from lw2g.estimate.estimate import Estimate
    from lw2g.registry.catalogue import Catalogue
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.needs import Need

__all__ = ["costs_of", "print_missing", "print_plan"]

_HERE = {True: "yes", False: "no", None: "?"}


def print_plan(
    cells: Sequence[Cell],
    catalogue: Catalogue,
    *,
    cost: bool,
    as_json: bool,
    took: Mapping[str, float] | None = None,
) -> None:
    """Print the cells and their needs and, with ``cost``, the cost of each on this machine.

    Args:
        cells: The cells of the grid.
        catalogue: Where their components come from.
        cost: Whether to measure costs.
        as_json: Whether to print JSON.
        took: Seconds of finished cells, by the names of their directories.
    """
    from lw2g.sweeps.needs import needs_of

    needs = [needs_of(cell, catalogue) for cell in cells]
    if as_json:
        costs = list(costs_of(cells, catalogue)) if cost else [None] * len(cells)
        entries = [_entry(*parts) for parts in zip(cells, needs, costs, strict=True)]
        click.echo(json.dumps(entries, indent=1))
        return
    console().print(table("", ("cell", "directory"), [(cell.label, cell.name) for cell in cells], left=2))
    counts = Counter(need for of_cell in needs for need in of_cell)
    rows = [(need.what, _HERE[need.here], str(count)) for need, count in counts.items()]
    console().print(table("", ("needs", "here", "cells"), rows, left=2))
    print_missing(needs)
    click.echo(counted(len(cells), "cell"))
    if cost:
        _print_costs(cells, catalogue, took or {})


def print_missing(needs: Sequence[Sequence[Need]]) -> None:
    """Print what is not here, each thing once, with the number of cells that need it and how to get it."""
    from lw2g.sweeps.needs import missing_needs

    for need, count in missing_needs(needs):
        click.echo(printable(f"missing for {counted(count, 'cell')}: {need.what}"))
        click.echo(printable(f"    {need.remedy}"))


def _kind_of(cell: Cell, catalogue: Catalogue) -> str:
    """Return what a cell shares with those of other seeds and class orders: their costs are taken as equal.

    Raises:
        ConfigError: The cell cannot be resolved.
    """
    from lw2g.config.resolve import resolve
    from lw2g.config.toml import flat, to_mapping
    from lw2g.reports.names import AVERAGED

    settings = flat(to_mapping(resolve(catalogue, file=cell.tables()).config))
    classes = sorted(map(str, settings.get("benchmark.class_order", ())))
    return repr((classes, sorted((name, value) for name, value in settings.items() if name not in AVERAGED)))


def costs_of(cells: Sequence[Cell], catalogue: Catalogue) -> Iterator[Estimate | Lw2gError]:
    """Yield the measured cost of each cell, or the error that prevented it.

    Cells that differ only in seeds and class orders are measured once.
    """
    from lw2g.config.resolve import resolve
    from lw2g.estimate.estimate import estimate

    measured: dict[str, Estimate | Lw2gError] = {}
    for cell in cells:
        try:
            kind = _kind_of(cell, catalogue)
        except Lw2gError as error:
            yield error
            continue
        if kind not in measured:
            try:
                measured[kind] = estimate(resolve(catalogue, file=cell.tables()).config, catalogue)
            except Lw2gError as error:
                measured[kind] = error
        yield measured[kind]


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


def _print_costs(cells: Sequence[Cell], catalogue: Catalogue, took: Mapping[str, float]) -> None:
    """Print a line per cell of known cost, the reasons why others are unknown, and the sum.

    A finished cell has cost what it took, and tells the cost of the cells of its kind.
    """
    from lw2g.cli.estimate import bytes_text, time_text
    from lw2g.estimate.estimate import Range

    by_kind = {_kind_of(cell, catalogue): took[cell.name] for cell in cells if cell.name in took}
    open_cells = [cell for cell in cells if cell.name not in took]
    asked = [cell for cell in open_cells if _known(cell, catalogue, by_kind) is None]
    costs = iter(costs_of(asked, catalogue))
    unknown: Counter[str] = Counter()
    seconds: list[Range] = []
    disk: list[Range] = []
    for cell in open_cells:
        known = _known(cell, catalogue, by_kind)
        if known is not None:
            seconds.append(Range(known, known))
            click.echo(f"{printable(cell.label)}: {time_text(seconds[-1])}, as a finished cell of its kind")
            continue
        cost = next(costs)
        if isinstance(cost, Lw2gError):
            unknown[str(cost)] += 1
            continue
        seconds.append(cost.seconds)
        disk.append(cost.disk)
        click.echo(
            f"{printable(cell.label)}: {time_text(cost.seconds)}, memory {in_units(cost.memory)}, "
            f"disk {bytes_text(cost.disk)}"
        )
    for reason, count in unknown.items():
        click.echo(printable(f"cost unknown ({counted(count, 'cell')}): {reason}"))
    if took:
        click.echo(f"{counted(len(took), 'cell')} finished")
    if not open_cells:
        return
    if not seconds:
        click.echo("all in sequence: unknown")
        return

    def total(ranges: Sequence[Range]) -> Range:
        return Range(sum(bounds.least for bounds in ranges), sum(bounds.most for bounds in ranges))

    what = f"{len(seconds)} of {counted(len(open_cells), 'cell')}" if unknown else "all"
    more = "; the others are unknown" if unknown else ""
    on_disk = f", disk {bytes_text(total(disk))}" if disk else ""
    click.echo(f"{what} in sequence: {time_text(total(seconds))}{on_disk}{more}")


def _known(cell: Cell, catalogue: Catalogue, by_kind: Mapping[str, float]) -> float | None:
    """Return the seconds that a finished cell of the same kind took; None if there is none."""
    if not by_kind:
        return None
    try:
        return by_kind.get(_kind_of(cell, catalogue))
    except Lw2gError:
        return None
