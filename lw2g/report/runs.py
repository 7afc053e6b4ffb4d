"""Runs on disk as far as their small files tell: configuration, record, and where they stand."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import attrs

from lw2g.config.directory import CONFIG, PROGRESS, RECORD, missing_run
from lw2g.config.structure import misfits
from lw2g.config.toml import flat, read_json, read_toml
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.tracker import Stepped
from lw2g.training.files.contents import read_record
from lw2g.training.files.lock import Writer, writer_of

__all__ = ["OF_THE_MACHINE", "Run", "State", "find_runs", "read_run"]

State = Literal["finished", "running", "interrupted", "damaged"]

OF_THE_MACHINE = {
    "benchmark.root",
    "benchmark.more_roots",
    "backbone.weights",
    *(
        f"run.{name}"
        for name in ("device", "workers", "evaluation_batch", "image_memory", "keep_checkpoints")
    ),
}
"""Options that change no number, or that fingerprints stand for."""


@attrs.frozen(kw_only=True)
class Run:
    """A run directory.

    Attributes:
        path: The directory.
        state: ``finished`` (all tasks), ``running`` (somebody writes it), ``interrupted``, or ``damaged``.
        config: Its complete configuration, as nested plain values.
        record: Its record so far; empty before the first finished task.
        progress: The newest :class:`lw2g.interfaces.tracker.Stepped` of a running one, by its fields.
        writer: Who writes a running one.
        problem: What is wrong with a damaged one, of which nothing else is told.
    """

    path: Path
    state: State
    config: Mapping[str, Any] = attrs.field(factory=dict)
    record: Mapping[str, Any] = attrs.field(factory=dict)
    progress: Mapping[str, Any] = attrs.field(factory=dict)
    writer: Writer | None = None
    problem: str = ""

    @property
    def done(self) -> int:
        """Finished tasks."""
        return len(self.record.get("accuracy_matrix", ()))

    @property
    def tasks(self) -> int | None:
        """Tasks of the stream; None where nothing tells yet."""
        return self.record.get("tasks") or self.progress.get("tasks")

    @property
    def remaining(self) -> float | None:
        """Seconds that a running one is expected to take yet."""
        return self.progress.get("remaining")

    @cached_property
    def options(self) -> dict[str, Any]:
        """The configuration by dotted keys."""
        return flat(self.config)

    def metric(self, name: str) -> float | None:
        """Return a metric over the tasks finished so far."""
        found: float | None = self.record.get("metrics", {}).get(name)
        return found


def read_run(directory: Path) -> Run | None:
    """Return the run in a directory, None where none was begun.

    Raises:
        DataError: Its record or configuration is damaged, or they are of two runs.
    """
    if not (directory / CONFIG).exists():
        if (directory / RECORD).exists():
            raise missing_run(directory)
        return None
    record = read_record(directory) if (directory / RECORD).exists() else {}
    total = record.get("tasks")
    if total is None and record:
        total = len(record["accuracy_matrix"]) if _ended(directory) else None  # an lw2g that did not note it
        record = record | {"tasks": total}
    if total is not None and len(record["accuracy_matrix"]) == total:
        state: State = "finished"
        writer = None
    else:
        writer = writer_of(directory)
        state = "interrupted" if writer is None else "running"
    return Run(
        path=directory,
        state=state,
        config=record["config"] if record else _config(directory),
        record=record,
        progress=_progress(directory) if state == "running" else {},
        writer=writer,
    )


def _progress(directory: Path) -> dict[str, Any]:
    """Return where a run stands; nothing where that cannot be read, for nobody counts on it."""
    try:
        found = read_json(directory / PROGRESS)
    except DataError:
        return {}
    return {} if misfits(found, Stepped) else dict(found)


def _config(directory: Path) -> dict[str, Any]:
    try:
        return read_toml(directory / CONFIG)
    except ConfigError as error:
        raise DataError(str(error)) from error


def _ended(directory: Path) -> bool:
    """Whether the log's last event is the end of the run."""
    try:
        with (directory / "events.jsonl").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 65_536))
            return b'"event": "RunEnded"' in log.read().rstrip().rpartition(b"\n")[2]
    except OSError:
        return False


def find_runs(places: Sequence[Path], *, damaged: bool = False) -> Iterator[Run]:
    """Yield the runs in and below directories by their names, each once; none in hidden folders.

    Args:
        places: The directories.
        damaged: Whether damaged runs are yielded; without that none is passed over in silence.

    Raises:
        DataError: There is no such directory, or a run is damaged.
    """
    seen: set[Path] = set()
    for place in places:
        if not place.is_dir():
            raise DataError(f"no directory {str(place)!r}; give a run's directory, or one with runs below it")
        for folder, below, files in os.walk(place):
            below[:] = sorted(name for name in below if not name.startswith("."))
            if CONFIG not in files and RECORD not in files:
                continue
            below.clear()  # what lies in a run's own directory belongs to it
            path = Path(folder)
            if path.resolve() in seen:
                continue
            try:
                run = read_run(path)
            except DataError as error:
                if not damaged:
                    raise
                run = Run(path=path, state="damaged", problem=str(error))
            if run is not None:
                seen.add(path.resolve())
                yield run
