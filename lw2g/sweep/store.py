"""The directory of a sweep: which cells it has, their logs, and what became of each.

``sweep.json`` lists the cells, ``cells/`` has their configurations as the grid writes them, ``logs/`` what
their processes printed, ``failures.json`` why some gave up, ``cancelled.json`` which are not to be begun by
those who drive the sweep now; other folders are the runs of the cells. Several drivers may share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import tomli_w

from lw2g.config.resolve import resolve
from lw2g.config.toml import flat, to_mapping
from lw2g.errors import DataError, Lw2gError, shown
from lw2g.registry.catalogue import Catalogue
from lw2g.report.runs import OF_THE_MACHINE, Run, read_run
from lw2g.sweep.claims import Claims
from lw2g.sweep.grid import Cell
from lw2g.sweep.job import Job
from lw2g.training.files.lock import Writer, in_turn, writer_of
from lw2g.training.files.sealed import write_atomically

__all__ = ["Status", "SweepDirectory", "differences_now"]

_CELLS, _FAILURES, _CANCELLED, _STALE = "sweep.json", "failures.json", "cancelled.json", ".stale"

State = Literal["waiting", "queued", "running", "interrupted", "finished", "failed"]


@attrs.frozen(kw_only=True)
class Status:
    """Where a cell stands.

    Attributes:
        cell: The cell.
        state: ``waiting`` (never begun), ``queued`` (submitted, and not running yet), ``running``,
            ``interrupted``, ``finished`` or ``failed``.
        run: Its run, None where none was begun.
        reason: Why it failed, empty where it did not.
        writer: Who runs it.
    """

    cell: Cell
    state: State
    run: Run | None = None
    reason: str = ""
    writer: Writer | None = None

    @property
    def open(self) -> bool:
        """Whether it can be begun or gone on with."""
        return self.state in ("waiting", "interrupted")


class SweepDirectory:
    """The files of one sweep.

    Args:
        path: The directory; made when the first file is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims = Claims(path)

    def cells(self) -> list[Cell]:
        """Return the cells that the last sweep had.

        Raises:
            DataError: There was no sweep, or its list cannot be read.
        """
        listed = self._read(_CELLS)
        if listed is None:
            raise DataError(
                f"no sweep at {str(self.path)!r}: it has no {_CELLS}; start one: lw2g sweep GRID.toml --out "
                f"{self.path}"
            )
        try:
            return [Cell(settings=one["settings"], label=one["label"]) for one in listed["cells"]]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{str(self.path / _CELLS)!r} is no list of cells; run the sweep again"
            ) from error

    def executor(self) -> dict[str, Any]:
        """Return the settings of the executor that the last sweep had."""
        found: dict[str, Any] = (self._read(_CELLS) or {}).get("executor", {})
        return found

    def write(self, cells: Sequence[Cell], executor: Mapping[str, Any] | None = None) -> None:
        """Note the cells, the configuration of each, and the executor; what was cancelled may begin again."""
        for folder in ("cells", "logs"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        for cell in cells:
            self.config(cell).write_text(
                f"# {cell.label}\n\n{tomli_w.dumps(cell.tables())}", encoding="utf-8"
            )
        listed = [{"name": cell.name, **attrs.asdict(cell)} for cell in cells]
        with in_turn(self.path):
            self._write(_CELLS, {"executor": dict(executor or {}), "cells": listed})
            kept = self.cancelled() - {cell.name for cell in cells}
            self._write(_CANCELLED, {"cells": sorted(kept)})

    def cancelled(self) -> set[str]:
        """Return the names of the cells that nobody is to begin who drives the sweep now."""
        return set((self._read(_CANCELLED) or {}).get("cells", ()))

    def cancel(self, cells: Sequence[Cell]) -> None:
        """Let no driver that is at work begin these cells."""
        with in_turn(self.path):
            self._write(_CANCELLED, {"cells": sorted(self.cancelled() | {cell.name for cell in cells})})

    def job(self, cell: Cell) -> Job:
        """Return what brings a cell to its end."""
        run, config, log = (each(cell).absolute() for each in (self.run, self.config, self.log))
        return Job(name=cell.name, run=run, config=config, log=log)

    def run(self, cell: Cell) -> Path:
        """Where a cell is run."""
        return self.path / cell.name

    def config(self, cell: Cell) -> Path:
        """Where its configuration lies, as the grid says it."""
        return self.path / "cells" / f"{cell.name}.toml"

    def log(self, cell: Cell) -> Path:
        """Where its processes print."""
        return self.path / "logs" / f"{cell.name}.log"

    def failures(self) -> dict[str, str]:
        """Return why cells failed, by their names."""
        return self._read(_FAILURES) or {}

    def note_failure(self, cell: Cell, reason: str | None) -> None:
        """Note why a cell failed; None: it may be tried again."""
        with in_turn(self.path):
            found = self.failures()
            found.pop(cell.name, None)
            self._write(_FAILURES, found if reason is None else found | {cell.name: reason})

    def statuses(self, cells: Iterable[Cell]) -> list[Status]:
        """Return where cells stand."""
        failures, claimed, cancelled = self.failures(), self.claims.held(), self.cancelled()
        found = []
        for cell in cells:
            status = self._status(cell, failures.get(cell.name, ""))
            queued = status.open and cell.name in claimed and cell.name not in cancelled
            found.append(attrs.evolve(status, state="queued") if queued else status)
        return found

    def status(self, cell: Cell) -> Status:
        """Return where a cell stands."""
        return self.statuses([cell])[0]

    def _status(self, cell: Cell, reason: str) -> Status:
        try:
            run = read_run(self.run(cell))
        except DataError as error:
            return Status(cell=cell, state="failed", reason=str(error))
        if run is None:  # none yet: a process that has just begun holds the lock already
            writer = writer_of(self.run(cell))
            state: State = "running" if writer else "failed" if reason else "waiting"
            return Status(cell=cell, state=state, reason="" if writer else reason, writer=writer)
        if run.state == "interrupted" and reason:
            return Status(cell=cell, state="failed", run=run, reason=reason)
        state = "failed" if run.state == "damaged" else run.state
        return Status(cell=cell, state=state, run=run, writer=run.writer)

    def set_aside(self, cell: Cell) -> Path:
        """Move the run of a cell out of the way, and return where it lies now."""
        place = self.path / _STALE
        place.mkdir(exist_ok=True)
        taken = sum(1 for _ in place.glob(f"{cell.name}-*"))
        return self.run(cell).rename(place / f"{cell.name}-{taken + 1}")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"{str(self.path / name)!r} is no JSON ({error}); remove it") from error
        return found if isinstance(found, dict) else None

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=1).encode())


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
