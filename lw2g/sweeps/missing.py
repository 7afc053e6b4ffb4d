"""Cells of a grid that nobody has given to a store, with the minutes that runs like them took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from lw2g.config.resolve import resolve
from lw2g.config.toml import flat, to_mapping
from lw2g.registry.catalogue import Catalogue
from lw2g.store.stored import stored_runs
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.store import differing

__all__ = ["missing_cells"]

_LIKE = ("baseline.name", "policy.name", "benchmark.name", "backbone.name")


def missing_cells(
    store: Path, catalogue: Catalogue, cells: Sequence[Cell]
) -> tuple[list[tuple[Cell, float | None]], Sequence[str]]:
    """Return the cells without a run in a store, each with expected minutes, and what of it is left out.

    A run counts for a cell if all options agree that change a number, the seed among them. Minutes are the
    median over runs of the same baseline, policy, benchmark and backbone; None if the store has none.

    Raises:
        DataError: There is no store.
        ConfigError: A cell cannot be resolved.
    """
    known: dict[tuple[object, ...], list[tuple[dict[str, object], float]]] = defaultdict(list)
    stored = stored_runs(store, catalogue)
    for pack, run in stored.runs:
        seconds = pack.record["seconds"]["total"]
        known[tuple(map(run.options.get, _LIKE))].append((run.options, seconds))
    missing: list[tuple[Cell, float | None]] = []
    for cell in cells:
        wanted = flat(to_mapping(resolve(catalogue, file=cell.tables()).config))
        similar = known[tuple(map(wanted.get, _LIKE))]
        if not all(differing(wanted, options) for options, _ in similar):
            continue
        minutes = None
        if similar:
            minutes = statistics.median(seconds for _, seconds in similar) / 60
        missing.append((cell, minutes))
    return missing, stored.left_out
