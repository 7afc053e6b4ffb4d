"""What the cells of a sweep cost, before they run: each kind of cell is measured once, as one run is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lw2g.config.resolve import resolve
from lw2g.config.roles import keys_of_role
from lw2g.config.toml import flat, to_toml
from lw2g.errors import ConfigError, DataError
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.telling import Telling
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.needs import needs_of

if TYPE_CHECKING:
    from lw2g.lifecycle.estimate import Estimate

__all__ = ["cell_costs"]


def cell_costs(cells: Sequence[Cell], catalogue: Catalogue) -> list[Estimate | None]:
    """Return what each cell costs on this machine; None where something that it needs is not here.

    Cells that differ in nothing but what is drawn, such as seeds, are of one kind.

    Raises:
        ConfigError: A cell cannot run, though all that it needs is here.
    """
    draws = keys_of_role("draw", catalogue)
    kinds: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        if any(need.here is False for need in needs_of(cell, catalogue)):
            continue
        values = flat(tomllib.loads(to_toml(resolve(catalogue, file=cell.tables()).config)))
        fixed = {key: value for key, value in values.items() if key not in draws}
        kinds.setdefault(json.dumps(fixed, default=str), []).append(place)
    costs: list[Estimate | None] = [None] * len(cells)
    with Telling("measuring kinds of cells", len(kinds), "kinds") as tell:
        starting = None
        for places in kinds.values():
            cost = _cost(cells[places[0]], catalogue)
            if cost is not None:
                # one measurement serves all kinds, as each cell is a process of its own
                starting = _seconds_to_start() if starting is None else starting
                cost = cost.in_process(starting)
            for place in places:
                costs[place] = cost
            tell(1)
    return costs


def _seconds_to_start() -> float:
    from lw2g.lifecycle.estimate import seconds_to_start

    return seconds_to_start()


def _cost(cell: Cell, catalogue: Catalogue) -> Estimate | None:
    """Return what a cell costs; None where only opening its parts shows that one is missing."""
    # with torch, which a plan alone does without
    from lw2g.lifecycle.estimate import estimate, missing_parts

    config = resolve(catalogue, file=cell.tables()).config
    try:
        return estimate(config, catalogue)
    except (ConfigError, DataError) as error:
        if missing_parts(config, catalogue):
            return None
        raise ConfigError(f"{error.what} (in the cell {cell.label!r})", error.remedy) from error
