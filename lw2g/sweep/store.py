"""The directory of a sweep: which cells it has, their logs, and what became of each.

``sweep.json`` lists the cells, ``cells/`` has their configurations as the grid writes them, ``logs/`` what
their processes printed. A file in ``failed/`` says why a cell gave up, one in ``cancelled/`` keeps drivers
from beginning it. Other folders are the runs of the cells. Several drivers may share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import tomli_w

from lw2g.config.resolve import resolve
from lw2g.config.toml import flat, read_json, to_mapping
from lw2g.errors import DataError, Lw2gError, shown
from lw2g.registry.catalogue import Catalogue
from lw2g.report.runs import OF_THE_MACHINE, Run, read_run
from lw2g.sweep.grid import Cell, settings_of
from lw2g.sweep.job import Job
from lw2g.training.files.lock import Writer, holder_of, writer_of
from lw2g.training.files.sealed import write_atomically

__all__ = ["Status", "SweepDirectory", "differences_now"]

_CELLS = "sweep.json"

State = Literal["waiting", "running", "interrupted", "finished", "failed"]


@attrs.frozen(kw_only=True)
class Status:
    """Where a cell stands.

    Attributes:
        cell: The cell.
        state: ``waiting`` (never begun), ``running``, ``interrupted``, ``finished`` or ``failed``.
        run: Its run, None where none was begun.
        reason: Why it failed, empty where it did not.
        writer: Who runs it.
        cancelled: Whether nobody is to begin it who drives the sweep now.
    """

    cell: Cell
    state: State
    run: Run | None = None
    reason: str = ""
    writer: Writer | None = None
    cancelled: bool = False

    @property
    def open(self) -> bool:
        """Whether it is to be begun or resumed."""
        return self.state in ("waiting", "interrupted") and not self.cancelled


class SweepDirectory:
    """The files of one sweep.

    Args:
        path: The directory; made when the first file is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def cells(self) -> list[Cell]:
        """Return the cells that the last sweep had.

        Raises:
            DataError: There was no sweep, or its list cannot be read.
            ConfigError: A setting in the list is none.
        """
        if not (self.path / _CELLS).exists():
            raise DataError(
                f"no sweep at {str(self.path)!r}: it has no {_CELLS}; start one: lw2g sweep GRID.toml --out "
                f"{self.path}"
            )
        return [self._cell(one) for one in self._listed()["cells"]]

    def executor(self) -> dict[str, Any]:
        """Return the settings of the executor that the last sweep had."""
        found: dict[str, Any] = self._listed()["executor"]
        return found

    def write(self, cells: Sequence[Cell], executor: Mapping[str, Any] | None = None) -> None:
        """Note the cells, the configuration of each, and the executor; what was cancelled may begin again."""
        for folder in ("cells", "logs", "failed", "cancelled"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        for job, cell in ((self.job(cell), cell) for cell in cells):
            text = f"# {cell.label!r}\n\n{tomli_w.dumps(cell.tables())}".encode()
            if not job.config.exists() or job.config.read_bytes() != text:
                write_atomically(job.config, text)
            job.cancelled.unlink(missing_ok=True)
        listed = [{"name": cell.name, **attrs.asdict(cell)} for cell in cells]
        content = {"executor": dict(executor or {}), "cells": listed}
        write_atomically(self.path / _CELLS, json.dumps(content, indent=1).encode())

    def cancel(self, cells: Iterable[Cell]) -> None:
        """Let drivers that are at work stop these cells, and begin none of them."""
        for cell in cells:
            path = self.job(cell).cancelled
            path.parent.mkdir(exist_ok=True)
            path.touch()

    def job(self, cell: Cell) -> Job:
        """Return a cell's files and what brings it to its end."""
        return Job(name=cell.name, sweep=self.path.absolute())

    def named(self, path: Path) -> Path:
        """Return a path of a job as it starts from the directory's own name."""
        return self.path / path.relative_to(self.path.absolute())

    def note_failure(self, cell: Cell, reason: str | None) -> None:
        """Note why a cell failed; None: it may be tried again."""
        path = self.job(cell).failure
        if reason is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, reason.encode())

    def statuses(self, cells: Iterable[Cell]) -> list[Status]:
        """Return where cells stand."""
        return [self.status(cell) for cell in cells]

    def status(self, cell: Cell) -> Status:
        """Return where a cell stands."""
        job = self.job(cell)
        try:
            run = read_run(job.run)
        except DataError as error:
            return Status(cell=cell, state="failed", reason=str(error))
        if run is not None and run.state == "finished":
            return Status(cell=cell, state="finished", run=run)
        # a process that has just begun writes no run yet
        writer = (run and run.writer) or writer_of(job.run) or holder_of(job.lock)
        reason = "" if writer else _text(job.failure)
        state: State = "waiting" if run is None else "interrupted"
        return Status(
            cell=cell,
            state="running" if writer else "failed" if reason else state,
            run=run,
            reason=reason,
            writer=writer,
            cancelled=job.cancelled.exists(),
        )

    def _listed(self) -> dict[str, Any]:
        match read_json(self.path / _CELLS):
            case {"cells": list(cells), "executor": dict(executor)}:
                return {"cells": cells, "executor": executor}
        raise self._damaged()

    def _cell(self, entry: object) -> Cell:
        match entry:
            case {"settings": dict(settings), "label": str(label)}:
                return Cell(settings=settings_of(settings, str(self.path / _CELLS)), label=label)
        raise self._damaged()

    def _damaged(self) -> DataError:
        return DataError(f"{str(self.path / _CELLS)!r} is no list of cells; run the sweep again")


def _text(path: Path) -> str:
    """Return what a file says, nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def differences_now(status: Status, catalogue: Catalogue) -> list[str]:
    """Return in which options a finished cell differs from what its settings would be resolved to now.

    Options that came later count as no difference: what they were is not known. Nor do those that change no
    number, or a precision that is left to the machine: the run took one.
    """
    if status.state != "finished" or status.run is None:
        return []
    try:
        now = flat(to_mapping(resolve(catalogue, file=status.cell.tables()).config))
    except Lw2gError as error:
        return [f"cannot be resolved any more: {error}"]
    before = status.run.options
    settled = OF_THE_MACHINE | ({"run.precision"} if now["run.precision"] == "auto" else set())
    return [
        f"{key}: {shown(before[key])} then, {shown(now[key])} now"
        for key in before
        if key in now and key not in settled and before[key] != now[key]
    ]
