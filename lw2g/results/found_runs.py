"""Runs on disk, read from their small files: configuration, record and progress."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from lw2g.config.directory import CELLS, CONFIG, FAILED, GOAL, PROGRESS, RECORD, STALE, missing_run
from lw2g.config.structure import misfit
from lw2g.config.toml import flat, read_json, read_toml
from lw2g.disk.checkpoint_files import is_without_record
from lw2g.disk.contents import Goal, read_record, read_sealed
from lw2g.disk.lock import Writer, writer_of
from lw2g.errors import ConfigError, DataError, as_word, no_folder
from lw2g.ground.notes import tell_note
from lw2g.interfaces.tracker import Stepped

if TYPE_CHECKING:
    from lw2g.results.recomputed import Columns  # without numpy, which lists of runs do not need

__all__ = [
    "Given",
    "ReportedRun",
    "State",
    "cells_not_begun",
    "cells_of_sweep",
    "columns_of_sweep",
    "find_runs",
    "read_run",
    "unfinished_in_words",
]

State = Literal["finished", "running", "stopped", "interrupted", "damaged"]

_LONGEST = 80
"""Letters of what a submitter has tuned on that a line has room for."""


@attrs.frozen(kw_only=True)
class Given:
    """What a store tells of a run that somebody gave to it.

    Attributes:
        who: The submitter.
        tuned_on: What was tuned, and on which images, in the submitter's words.
        protocol: The protocol's id in the store, with its version, or those of all class orders of the row.
        badges: The badges that all runs of the submitter's row have.
        plugin: Where the method's plugin lies, ``URL@COMMIT``, if it is on no package index.
        runs: From how many runs the submitter chose each; of a row the most.
    """

    who: str
    tuned_on: str
    protocol: str
    badges: tuple[str, ...]
    plugin: str = ""
    runs: int = 1

    def __str__(self) -> str:
        tuned_on = self.tuned_on
        if len(tuned_on) > _LONGEST:
            tuned_on = f"{tuned_on[:_LONGEST]}..."
        chosen = "the only run" if self.runs == 1 else f"chosen from {self.runs:,} runs"
        told = [", ".join(self.badges), self.protocol, f"tuned on: {tuned_on}", chosen]
        if self.plugin:
            told.append(f"plugin {self.plugin}")
        return f"given by {self.who} ({'; '.join(told)})"


@attrs.frozen(kw_only=True)
class ReportedRun:
    """A run directory.

    Attributes:
        path: The directory.
        state: ``finished`` (all tasks), ``running`` (a process writes it), ``stopped`` (after as many tasks
            as were wanted), ``interrupted``, or ``damaged``.
        config: Its complete configuration, as nested plain values.
        record: Its record so far; empty before the first finished task.
        progress: The newest :class:`lw2g.interfaces.tracker.Stepped` of a running run, by its fields.
        writer: The process that writes a running run.
        problem: What is wrong with a damaged run, whose other fields are empty.
        given: What a store tells of it; None for a run of one's own.
        label: The name that the grid of its sweep gives its row; empty if none.
        old: Which old run of its sweep's cell it is, such as ``old 1``; empty for any other.
        failed: Whether it is a cell that its sweep has noted as failed.
        answers: The predictions after its last task, of a run that has no folder of its own; else None.
        data: The name that a store's protocol gives its data; empty for any other run.
    """

    path: Path
    state: State
    config: Mapping[str, Any] = attrs.field(factory=dict)
    record: Mapping[str, Any] = attrs.field(factory=dict)
    progress: Mapping[str, Any] = attrs.field(factory=dict)
    writer: Writer | None = None
    problem: str = ""
    given: Given | None = None
    label: str = ""
    old: str = ""
    failed: bool = False
    answers: Columns | None = None
    data: str = ""

    @property
    def done(self) -> int:
        """Finished tasks."""
        return len(self.record.get("accuracy_matrix", ()))

    @property
    def tasks(self) -> int | None:
        """Tasks of the stream; None if not known yet."""
        return self.record.get("tasks") or self.progress.get("tasks")

    @property
    def remaining(self) -> float | None:
        """Expected remaining seconds of a running run."""
        return self.progress.get("remaining")

    @property
    def standing(self) -> str:
        """How far an unfinished run has come, and which command goes on with it; empty of a finished run."""
        after = "before the end of its first task"
        if self.done:
            after = f"after task {self.done} of {self.tasks or '?'}"
        place = shlex.quote(str(self.path))
        if self.state == "interrupted" and is_without_record(self.path):
            return f"{RECORD} is missing; write it anew: lw2g resume {place}"
        if self.state == "stopped":
            return f"stopped {after}, as it was asked to; lw2g continue {place} goes on"
        if self.state == "interrupted" and self.failed:
            sweep = shlex.quote(str(self.path.parent))
            return f"failed {after}; lw2g sweep retry {sweep} goes on, lw2g sweep status {sweep} says why"
        if self.state == "interrupted":
            return f"interrupted {after}; lw2g resume {place} goes on"
        if self.state == "running":
            return f"{self.under_way}; make the report again for more"
        return self.problem

    @property
    def under_way(self) -> str:
        """Which task a running run is at, and how long it will take."""
        at = f"task {self.progress.get('task', self.done) + 1} of {self.tasks or '?'}"
        left = ""
        if self.remaining is not None:
            left = f", about {timedelta(seconds=round(self.remaining))} left"
        return f"running: {at}, {self.done} learned{left}"

    @cached_property
    def options(self) -> dict[str, Any]:
        """The configuration by dotted keys."""
        return flat(self.config)

    @property
    def precision(self) -> str | None:
        """The precision that it computes in; None if nothing tells it."""
        settled = self.record.get("precision", {}).get("used")
        return settled or self.options.get("run.precision")

    @property
    def asked_precision(self) -> str | None:
        """The precision that it was asked for, which may be ``auto``; older records tell what it used."""
        asked = self.record.get("precision", {}).get("asked")
        return asked or self.options.get("run.precision")

    def metric(self, name: str) -> float | None:
        """Return a metric over the tasks finished so far."""
        value: float | None = self.record.get("metrics", {}).get(name)
        return value


def read_run(directory: Path) -> ReportedRun | None:
    """Return the run in a directory, or None if none has begun.

    Raises:
        DataError: Its record or configuration is damaged, or they belong to two runs.
    """
    if not (directory / CONFIG).exists():
        if (directory / RECORD).exists():
            raise missing_run(directory)
        return None
    record: Mapping[str, Any] = {}
    if (directory / RECORD).exists():
        record = read_record(directory)
    state, writer = _state_of(directory, record)
    progress = {}
    if state == "running":  # that of an interrupted run is as old as its end
        progress = _progress(directory)
    sweep, cell, old = _cell_of(directory)
    rows = cells_of_sweep(sweep)
    row = rows.get(cell, "")
    is_failed = not old and cell in rows and (sweep / FAILED / cell).exists()
    return ReportedRun(
        path=directory,
        state=state,
        config=record["config"] if record else _config(directory),
        record=record,
        progress=progress,
        writer=writer,
        label=f"{row}, {old}" if row and old else row,
        old=old,
        failed=is_failed,
    )


def unfinished_in_words(directory: Path, record: Mapping[str, Any]) -> str:
    """Return how far an unfinished run is, and what goes on; empty of a finished one.

    Args:
        directory: The run, or a folder with its record alone.
        record: Its record; empty before its first task is finished.

    Raises:
        DataError: As for :func:`read_run`.
    """
    done = len(record.get("accuracy_matrix", ()))
    total = record.get("tasks")
    if record and (total is None or done >= total):
        return ""
    text = f"{done} of {total} tasks learned" if record else "no task is finished"
    found = read_run(directory) if (directory / CONFIG).exists() else None
    if found is None:  # a record without its run cannot go on
        return text
    if found.state == "running":
        return found.under_way
    ways = {"interrupted": "resume", "stopped": "continue"}
    way = f"; go on: lw2g {ways[found.state]} {as_word(directory)}" if found.state in ways else ""
    return f"{text} ({found.state}){way}"


def _state_of(directory: Path, record: Mapping[str, Any]) -> tuple[State, Writer | None]:
    """Return the state of a run, and the process that writes it if it is running."""
    total = record.get("tasks")
    if total is not None and len(record["accuracy_matrix"]) == total:
        return "finished", None
    writer = writer_of(directory)
    if writer is not None:
        return "running", writer
    if _is_at_goal(directory, record):
        return "stopped", None
    return "interrupted", None


def columns_of_sweep(directory: Path) -> str | None:
    """Return the columns that the grid of a sweep names for its table; None where it names none."""
    columns = _list_of_sweep(directory).get("columns")
    return columns if columns and isinstance(columns, str) else None


def _list_of_sweep(directory: Path) -> dict[str, Any]:
    """Return the list of a sweep; empty where there is none.

    Anybody may have written a file of this name beside a run: nothing in it is taken on trust.
    """
    try:
        listed = read_json(directory / CELLS)
    except DataError:
        return {}
    return listed if isinstance(listed, dict) else {}


def cells_of_sweep(directory: Path) -> dict[str, str]:
    """Return the names that a sweep's list gives its cells' rows, by the folders of cells in their order."""
    rows = {}
    for cell in _listed_cells(directory):
        row = str(cell.get("row", ""))
        rows[str(cell.get("name"))] = row if row.isprintable() else ""
    return rows


def cells_not_begun(directory: Path) -> list[str]:
    """Return the labels of the cells of a sweep that have no run, in the order of its grid."""
    labels = []
    for cell in _listed_cells(directory):
        name = str(cell.get("name"))
        # os.path: a name in the list may be no name of a file
        if not any(os.path.exists(directory / name / file) for file in (CONFIG, RECORD)):
            labels.append(str(cell.get("label", name)))
    return labels


def _listed_cells(directory: Path) -> list[dict[str, Any]]:
    cells = _list_of_sweep(directory).get("cells")
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []


def _cell_of(directory: Path) -> tuple[Path, str, str]:
    """Return the sweep and the cell that a run may be of, and which of the old ones set aside, if any."""
    cell, _, number = directory.name.rpartition("-")
    if directory.parent.name == STALE and number.isdecimal():
        return directory.parent.parent, cell, f"old {number}"
    return directory.parent, directory.name, ""


def _in_order(names: Sequence[str], grid: Sequence[str]) -> list[str]:
    """Return the folders in a directory: the cells of its sweep in the grid's order, then others by name.

    Those that were set aside have the names of their cells, and a number.
    """
    places = {name: place for place, name in enumerate(grid)}

    def place_of(name: str) -> int:
        return places.get(name, places.get(name.rpartition("-")[0], len(places)))

    return sorted(names, key=lambda name: (place_of(name), name))


def _is_at_goal(directory: Path, record: Mapping[str, Any]) -> bool:
    """Whether a run has as many tasks as its command wanted."""
    if not (directory / GOAL).exists():
        return False
    wanted: int = read_sealed(directory / GOAL, Goal)["tasks"]
    return len(record.get("accuracy_matrix", ())) == wanted


def _progress(directory: Path) -> dict[str, Any]:
    """Return the progress of a run; empty if it cannot be read."""
    try:
        progress = read_json(directory / PROGRESS)
    except DataError:
        return {}
    if misfit(progress, Stepped):  # written by another version
        return {}
    return dict(progress)


def _config(directory: Path) -> dict[str, Any]:
    try:
        return read_toml(directory / CONFIG)
    except ConfigError as error:
        raise DataError(error.what, error.remedy) from error


def find_runs(places: Sequence[Path], *, damaged: bool = False) -> Iterator[ReportedRun]:
    """Yield each run in and below directories once, by name or in the order of a grid; skip hidden folders.

    A note says which folders this user may not read.

    Args:
        places: The directories.
        damaged: Whether to yield damaged runs instead of raising.

    Raises:
        DataError: A directory is missing, or a run is damaged and ``damaged`` is False.
    """
    seen: set[Path] = set()
    closed: list[str] = []
    for place in places:
        if not place.is_dir():
            raise DataError(no_folder(place), "give a run's directory, or one with runs below it")
        for folder, below, files in os.walk(place, onerror=lambda error: closed.append(error.filename)):
            path = Path(folder)
            grid = list(cells_of_sweep(path)) if CELLS in files else []
            if path.name == STALE:
                grid = list(cells_of_sweep(path.parent))
            below[:] = _in_order([name for name in below if not name.startswith(".")], grid)
            if CONFIG not in files and RECORD not in files:
                continue
            below.clear()  # everything in a run's directory belongs to it
            if path.resolve() in seen:  # directories may overlap, or link to each other
                continue
            try:
                run = read_run(path)
            except DataError as error:
                if not damaged:
                    raise
                run = ReportedRun(path=path, state="damaged", problem=str(error))
            except PermissionError:  # its files can be listed, and none of them opened
                closed.append(folder)
                continue
            if run is not None:
                seen.add(path.resolve())
                yield run
    if closed:
        which = repr(closed[0]) if len(closed) == 1 else f"{len(closed)} folders, first {closed[0]!r}"
        tell_note(f"no permission to read {which}; runs there are not among these")
