"""Cells of grids, one after the other: each goes on where the last slice was cut, and none is run twice."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpu.lab import Lab, Measurement, Skipped
from lw2g.api.reading import report
from lw2g.config.toml import parse_value
from lw2g.disk.record import RunDirectory
from lw2g.sweeps.grid import Cell, read_grid
from lw2g.sweeps.job import INTERRUPTED, Attempt
from lw2g.sweeps.rehearse import rehearsed_cells
from lw2g.sweeps.sweep_directory import SweepDirectory
from lw2g.sweeps.sweep_engine import require_valid

KEPT = 25.0
"""Seconds for a run to save its state and for results to be written."""
_MIB = 2**20


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield the cells in the order of the grids and their rows: first all of the first seed.

    Raises:
        Skipped: No grid is given.
    """
    if not lab.given.grid:
        raise Skipped("no cells; give a grid by --grid")
    settings: dict[str, Any] = {"run.device": str(lab.device)}
    for text in lab.given.settings:
        key, _, value = text.partition("=")
        settings[key.strip()] = parse_value(value.strip())
    cells: dict[str, Cell] = {}
    labels: dict[str, str] = {}
    for grid in lab.given.grid:
        of_grid = rehearsed_cells(grid, lab.catalogue, settings) if lab.toy else read_grid(grid, settings)
        for cell in of_grid:
            cells.setdefault(cell.name, cell)
            labels.setdefault(cell.name, f"{grid.stem}: {cell.label} ({cell.name})")
    store = SweepDirectory(lab.out.resolve() / "cells")
    require_valid(list(cells.values()), lab.catalogue)
    store.write(list(cells.values()), {})
    for name, cell in cells.items():
        yield labels[name], partial(_cell, lab, store, cell)


def _cell(lab: Lab, store: SweepDirectory, cell: Cell) -> dict[str, Any]:
    """Start or resume a cell, and stop it where it can be resumed before the time is up."""
    status = store.status(cell)
    if status.state == "failed":  # a slice's failure may be the machine's
        store.note_failure(cell, None)
    if status.state != "finished":
        kept = KEPT / 5 if lab.toy else KEPT
        if lab.seconds_left() < 2 * kept:
            return {"unfinished": True}
        attempt = Attempt(store.job(cell), {})
        alarm = threading.Timer(lab.seconds_left() - kept, attempt.ask)
        alarm.start()
        try:
            code = attempt.run()
        finally:
            alarm.cancel()
        if code == INTERRUPTED:
            return {"unfinished": True}
        if code:
            words = store.job(cell).last_words() or ["it printed nothing"]
            raise RuntimeError(f"exit code {code}: {words[-1]}")
    run = store.status(cell).run
    if run is None:
        raise RuntimeError("it left no record")
    if not lab.given.keep_models:
        shutil.rmtree(RunDirectory(run.path).checkpoints, ignore_errors=True)
    _write_table(store, lab.out / "cells.md")
    attempts = store.job(cell).log.read_text(errors="replace", encoding="utf-8").count("$ lw2g ")
    deterministic = bool(run.options.get("run.deterministic")) or not lab.on_cuda
    return {
        **{name: run.metric(name) for name in ("faa", "ffm", "pra", "ssp")},
        "seconds": round(run.record["seconds"]["total"], 1),
        "attempts": attempts,
        # kernels of a GPU may add in any order: a run that was cut then differs in its last bits
        "same_bits": deterministic or attempts == 1,
        "travel_mib": round(_size([lab.out]) / _MIB, 1),
    }


def _write_table(store: SweepDirectory, path: Path) -> None:
    part = path.with_suffix(".part")
    part.write_text(report(store.path, mix=("protocols",)).to_text("md"), encoding="utf-8")
    part.replace(path)


def _size(paths: Sequence[Path]) -> int:
    return sum(file.stat().st_size for path in paths for file in path.rglob("*") if file.is_file())
