"""Cells of grids as a sweep: side by side, each going on where the last slice was cut."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gpu.lab import Lab, Measurement, Skipped
from lw2g import report
from lw2g.config.toml import parse_value
from lw2g.sweeps.executors import load_executor
from lw2g.sweeps.grid import Cell, read_grid
from lw2g.sweeps.rehearse import rehearsed_cells
from lw2g.sweeps.sweep_directory import SweepDirectory
from lw2g.sweeps.sweep_engine import require_valid, run_sweep

KEPT = 25.0
"""Seconds for runs to save their states and for results to be written."""


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield the one sweep of all grids."""
    yield "all", partial(_sweep, lab)


def _cells(lab: Lab) -> list[Cell]:
    """Return the cells in the order of the grids and their rows, each once: first all of the first seed."""
    settings: dict[str, Any] = {"run.device": str(lab.device)}
    for text in lab.given.settings:
        key, _, value = text.partition("=")
        settings[key.strip()] = parse_value(value.strip())
    cells: dict[str, Cell] = {}
    for grid in lab.given.grid:
        of_grid = rehearsed_cells(grid, lab.catalogue, settings) if lab.toy else read_grid(grid, settings)
        for cell in of_grid:
            cells.setdefault(cell.name, cell)
    return list(cells.values())


def _sweep(lab: Lab) -> dict[str, Any]:
    """Run what is left of the cells, and stop it where it can be resumed before the time is up."""
    cells = _cells(lab)
    if not cells:
        raise Skipped("no cells; give a grid by --grid")
    require_valid(cells, lab.catalogue)
    store = SweepDirectory(lab.out.resolve() / "cells")
    for status in store.statuses(cells):
        if status.state == "failed" and lab.given.again:
            store.note_failure(status.cell, None)
    left = lab.seconds_left() - (KEPT / 5 if lab.toy else KEPT)
    if left > 0:
        # as Ctrl-C: the sweep stops its runs, which save their states
        alarm = threading.Timer(left, os.kill, (os.getpid(), signal.SIGINT))
        alarm.start()
        try:
            run_sweep(store, cells, load_executor({"jobs": lab.given.jobs}, store.path))
        finally:
            alarm.cancel()
    states = Counter(status.state for status in store.statuses(cells))
    if states["finished"]:
        # rows may pool features of one backbone otherwise, as the frozen answer chooses for itself
        table = report(store.path, mix=("protocols", "checkpoints")).to_text("md")
        (lab.out / "cells.md").write_text(table, encoding="utf-8")
    over = states["finished"] + states["failed"] == len(cells)
    return {**states, "MiB to bring back": _mib(store.path), **({} if over else {"unfinished": True})}


def _mib(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
