"""The directory of a sweep: its cells, their logs, and their status.

``sweep.json`` lists the cells, ``cells/`` holds their configurations as the grid gives them, ``logs/`` the
output of their processes. A file in ``failed/`` says why a cell failed; one in ``cancelled/`` keeps drivers
from starting it. ``settled/`` holds the precision that ``auto`` settled on for the first cell, for the others
to take. The other folders are the cells' runs. Several drivers may share the directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import attrs
import tomli_w

from lw2g.config.directory import CELLS, CONFIG, FAILED, MANIFEST
from lw2g.config.resolve import resolve
from lw2g.config.roles import role_of_key
from lw2g.config.toml import flat, read_json, to_mapping
from lw2g.disk.lock import Writer, holder_of, writer_of
from lw2g.disk.plugin_code import CodeNow, changed_code, code_now
from lw2g.disk.sealed import write_atomically
from lw2g.errors import ConfigError, DataError, Lw2gError, shown
from lw2g.interfaces.options import UNCOUNTED
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun, read_run
from lw2g.sweeps.grid import Cell, settings_of
from lw2g.sweeps.job import Job

__all__ = ["Status", "SweepDirectory", "differences_now", "stale_cells"]


State = Literal["waiting", "running", "interrupted", "finished", "failed"]


@attrs.frozen(kw_only=True)
class Status:
    """The status of a cell.

    Attributes:
        cell: The cell.
        state: ``waiting`` (never started), ``running``, ``interrupted``, ``finished`` or ``failed``.
        run: The cell's run; None if it has not begun or is damaged.
        reason: Why the cell failed; empty otherwise.
        writer: The process that runs it.
        cancelled: Whether the drivers at work now must not start it.
        damaged: Whether the run's files cannot be read.
    """

    cell: Cell
    state: State
    run: ReportedRun | None = None
    reason: str = ""
    writer: Writer | None = None
    cancelled: bool = False
    damaged: bool = False

    @property
    def open(self) -> bool:
        """Whether a driver should start or resume it."""
        return self.state in ("waiting", "interrupted") and not self.cancelled


class SweepDirectory:
    """The files of one sweep.

    Args:
        path: The directory; created with the first file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def cells(self) -> list[Cell]:
        """Return the cells of the last sweep.

        Raises:
            DataError: There is no sweep, or its list cannot be read.
            ConfigError: A setting in the list is unknown.
        """
        if not (self.path / CELLS).exists():
            raise DataError(
                f"no sweep at {str(self.path)!r}: it has no {CELLS}",
                f"start one: lw2g sweep GRID.toml --out {self.path}",
            )
        return [self._cell(entry) for entry in self._listed()["cells"]]

    def executor(self) -> dict[str, Any]:
        """Return the executor's settings of the last sweep."""
        return dict(self._listed()["executor"])

    def write(
        self,
        cells: Sequence[Cell],
        executor: Mapping[str, Any] | None = None,
        columns: str | None = None,
    ) -> None:
        """Note the cells, their configurations, the executor and the table's columns.

        Cancelled cells may start again.

        Raises:
            ConfigError: The directory is that of a run or a model.
        """
        if not (self.path / CELLS).exists():
            for file, kind in ((CONFIG, "run"), (MANIFEST, "model")):
                if (self.path / file).exists():
                    raise ConfigError(f"{str(self.path)!r} holds a {kind}", "choose another --out")
        for folder in ("cells", "logs", FAILED, "cancelled"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        for cell in cells:
            job = self.job(cell)
            text = f"# {cell.label!r}\n\n{tomli_w.dumps(cell.tables())}".encode()
            # a file that stays the same is not touched: other drivers may be reading it
            if not job.config.exists() or job.config.read_bytes() != text:
                write_atomically(job.config, text)
            job.cancelled.unlink(missing_ok=True)
        listed = [{"name": cell.name, **attrs.asdict(cell)} for cell in cells]
        content = {"executor": dict(executor or {}), "columns": columns or "", "cells": listed}
        write_atomically(self.path / CELLS, json.dumps(content, indent=1).encode())

    def cancel(self, cells: Iterable[Cell]) -> None:
        """Make the drivers at work stop these cells and start none of them."""
        for cell in cells:
            path = self.job(cell).cancelled
            path.parent.mkdir(exist_ok=True)
            path.touch()

    def job(self, cell: Cell) -> Job:
        """Return the job of a cell."""
        return Job(name=cell.name, sweep=self.path.absolute())

    def named(self, path: Path) -> Path:
        """Return a job's path as the user named the sweep's directory."""
        return self.path / path.relative_to(self.path.absolute())

    def note_failure(self, cell: Cell, reason: str | None) -> None:
        """Note why a cell failed; None clears the note, so that the cell may run again."""
        path = self.job(cell).failure
        if reason is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, reason.encode())

    def statuses(self, cells: Iterable[Cell]) -> list[Status]:
        """Return the status of each cell."""
        return [self.status(cell) for cell in cells]

    def status(self, cell: Cell) -> Status:
        """Return the status of a cell."""
        job = self.job(cell)
        try:
            run = read_run(job.run)
        except DataError as error:
            return Status(cell=cell, state="failed", reason=str(error), damaged=True)
        if run is not None and run.state == "finished":
            return Status(cell=cell, state="finished", run=run)
        # a new process has not written its run yet, and before it starts its attempt holds the cell's lock
        writer = (run and run.writer) or writer_of(job.run) or holder_of(job.lock)
        state: State = "waiting" if run is None else "interrupted"
        reason = ""
        if writer:  # a failure of an earlier attempt says nothing about this one
            state = "running"
        else:
            reason = _text(job.failure)
            if reason:
                state = "failed"
        return Status(
            cell=cell, state=state, run=run, reason=reason, writer=writer, cancelled=job.cancelled.exists()
        )

    def _listed(self) -> dict[str, Any]:
        match read_json(self.path / CELLS):
            case {"cells": list(cells), "executor": dict(executor)}:
                return {"cells": cells, "executor": executor}
        raise self._damaged()

    def _cell(self, entry: object) -> Cell:
        match entry:
            case {"settings": dict(settings), "label": str(label), **rest}:
                row = str(rest.get("row", ""))  # older lists have none
                return Cell(settings=settings_of(settings, str(self.path / CELLS)), label=label, row=row)
        raise self._damaged()

    def _damaged(self) -> DataError:
        return DataError(f"{str(self.path / CELLS)!r} is not a list of cells", "run the sweep again")


def _text(path: Path) -> str:
    """Return the text of a file; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def stale_cells(statuses: Iterable[Status], catalogue: Catalogue) -> dict[str, list[str]]:
    """Return for each cell, by its name, what :func:`differences_now` says of it."""
    once = cache(code_now)  # for this call alone: the next one may find other files
    return {status.cell.name: differences_now(status, catalogue, once) for status in statuses}


def differences_now(status: Status, catalogue: Catalogue, code: CodeNow = code_now) -> list[str]:
    """Return in what a finished cell differs from what its settings give now: options, and code of plugins.

    Options that lw2g gained later do not count, nor do options that change no number, nor the precision that
    ``auto`` chose for the run.
    """
    if status.state != "finished" or status.run is None:
        return []
    try:
        now = flat(to_mapping(resolve(catalogue, file=status.cell.tables()).config))
    except Lw2gError as error:
        return [f"cannot be resolved now: {error}"]
    before = status.run.options
    differing = _differing(now, status.run, catalogue)
    options = [f"{key}: {shown(before[key])} then, {shown(now[key])} now" for key in differing]
    return [*options, *changed_code(status.run.path, code)]


def _differing(now: Mapping[str, Any], run: ReportedRun, catalogue: Catalogue) -> list[str]:
    """Return the options that change a number and differ between settings and a run of an earlier time."""
    differing = []
    for key, value in run.options.items():
        if key not in now or now[key] == value or role_of_key(key, run.config, catalogue) in UNCOUNTED:
            continue
        if key == "run.precision" and now[key] == "auto":  # the run notes what auto settled on
            continue
        # what is left open here, a run has filled in from its data: what its stored features are of
        if key.startswith("backbone.") and now[key] in ("", None):
            continue
        differing.append(key)
    return differing
