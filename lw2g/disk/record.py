"""The run directory: configuration, events, predictions and the record, in common file formats.

``record.json`` carries its own checksum and, under ``files``, those of the configuration, the sample ids and
all predictions. Its keys are stable. Percentages are 0 to 100, undefined values are null, never NaN.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from safetensors.numpy import load_file, save

from lw2g.config.directory import (
    BEGINNING,
    CHECKPOINTS,
    CONFIG,
    GOAL,
    MOVED,
    PLUGINS,
    PROGRESS,
    RECORD,
    SAMPLES,
)
from lw2g.config.settings import Chosen
from lw2g.config.sources import dump_source
from lw2g.config.toml import read_json
from lw2g.disk.checkpoint_files import CheckpointFiles
from lw2g.disk.contents import (
    PREDICTIONS,
    Goal,
    Record,
    prediction_name,
    read_record,
    read_sealed,
)
from lw2g.disk.origins import ComponentOrigin
from lw2g.disk.plugin_code import changed_code, code_with
from lw2g.disk.predictions import Predictions
from lw2g.disk.sealed import LEFTOVER, seal_json, sha256_of, write_atomically
from lw2g.errors import DataError, as_word
from lw2g.interfaces.tracker import Event, Stepped, Tracker

__all__ = [
    "EventLog",
    "RunDirectory",
    "packed",
    "samples_name",
    "source_files",
]

_SECONDS_BETWEEN_NOTES = 2.0
_SOURCE = re.compile(r"source-\d+\.toml")
_SAMPLES = re.compile(r"samples(-\d+)?\.json")


class RunDirectory:
    """The files of one run.

    Args:
        path: The directory itself; made when the first file is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / CHECKPOINTS

    @property
    def config(self) -> Path:
        """The complete, resolved configuration."""
        return self.path / CONFIG

    def listeners(self) -> list[Tracker]:
        """Return the tracker that writes the run's events here."""
        return [EventLog(self.path / "events.jsonl")]

    def exists(self) -> bool:
        """Return whether a run has begun here."""
        return self.config.exists()

    def prepare(self) -> None:
        """Remove the unfinished files of a killed process.

        Raises:
            DataError: A folder that lw2g writes to is a link to somewhere else.
        """
        for folder in (self.path, self.checkpoints, self.path / PREDICTIONS):
            if folder is not self.path and folder.is_symlink():
                raise DataError(
                    f"{str(folder)!r} is a link",
                    "lw2g writes and clears up in a run's own folders only: replace it by a folder, or "
                    "move or link the whole run",
                )
            for leftover in folder.glob(LEFTOVER):
                leftover.unlink(missing_ok=True)

    def clear_beginning(self) -> None:
        """Remove what a run writes before its configuration, where it did not come as far as that."""
        first = self.checkpoints / BEGINNING
        if not first.exists():
            return
        for path in (first, self.path / SAMPLES, self.path / GOAL, self.path / PLUGINS):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.checkpoints.rmdir()

    def read_goal(self) -> int | None:
        """Return the number of tasks after which the run stops; None: those of the whole stream.

        Raises:
            DataError: What says so is damaged.
        """
        path = self.path / GOAL
        if not path.exists():
            return None
        try:
            return int(read_sealed(path, Goal)["tasks"])
        except DataError as error:
            raise DataError(
                error.what, f"say where to stop anew: lw2g continue {as_word(self.path)} [--tasks N]"
            ) from error

    def write_goal(self, tasks: int | None) -> None:
        """Write the number of tasks after which the run stops; None: those of the whole stream."""
        if tasks is not None:
            write_atomically(self.path / GOAL, seal_json({"tasks": tasks}))
        else:
            (self.path / GOAL).unlink(missing_ok=True)

    def write_config(self, text: str) -> str:
        """Write ``config.toml`` and return its checksum."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.write(CONFIG, text.encode())

    def write_origins(self, origins: Sequence[ComponentOrigin]) -> None:
        """Write who offers the components of the run, and which code of strangers it has had until now.

        Code that has left nothing learned does not count.
        """
        components = [attrs.asdict(origin) for origin in origins]
        has_learned = CheckpointFiles(self.checkpoints).has_learned
        code = code_with(self.path if has_learned else None, origins)
        self.write(PLUGINS, seal_json({"components": components, "code": code}))

    def note_code(self, origins: Sequence[ComponentOrigin]) -> list[str]:
        """Note the code that a run goes on with; return a line for each distribution that was another one."""
        changes = changed_code(self.path)
        if changes:
            self.write_origins(origins)
        if not CheckpointFiles(self.checkpoints).has_learned:
            return []
        return [f"{change}; the tasks of this run are learned by both" for change in changes]

    def write_samples(self, ids: Sequence[str], source: int = 0) -> dict[str, str]:
        """Write the ids of the test samples of a source and return the file's checksum by its name.

        The predictions' ``sample`` column counts them, through all sources.
        """
        name = samples_name(source)
        return {name: self.write(name, json.dumps(list(ids)).encode())}

    def read_samples(self, names: Iterable[str]) -> list[str]:
        """Return the ids of the test samples of all sources, out of those files that hold some.

        Raises:
            DataError: One cannot be read.
        """
        samples: list[str] = []
        for name in _numbered(_SAMPLES, names):
            samples += read_json(self.path / name)
        return samples

    def write_source(self, chosen: Chosen, source: int) -> dict[str, str]:
        """Write the benchmark of a later source and return the file's checksum by its name."""
        name = f"source-{source + 1}.toml"
        return {name: self.write(name, dump_source(chosen).encode())}

    def write_moved(self, chosen: Chosen) -> None:
        """Write the run's benchmark with the place where its data lie now."""
        self.write(MOVED, dump_source(chosen).encode())

    @contextmanager
    def moving(self, chosen: Chosen | None) -> Iterator[None]:
        """Note where a run's data lie now; after an error within the block, as it was before.

        Args:
            chosen: Its benchmark with that place; None: nothing has moved.
        """
        if chosen is None:
            yield
            return
        path = self.path / MOVED
        before = path.read_bytes() if path.exists() else None
        self.write_moved(chosen)
        try:
            yield
        except BaseException:  # a Ctrl-C, too
            if before is None:
                path.unlink()
            else:
                self.write(MOVED, before)
            raise

    def write_predictions(self, task: int, predictions: Predictions) -> str:
        """Write the predictions of one evaluation and return the checksum.

        They are safetensors of int32 columns, one row per sample.
        """
        (self.path / PREDICTIONS).mkdir(exist_ok=True)
        return self.write(prediction_name(task), packed(predictions))

    def remove_predictions(self, task: int) -> None:
        """Remove the predictions of an evaluation that no longer counts."""
        (self.path / prediction_name(task)).unlink(missing_ok=True)

    def write(self, name: str, content: bytes) -> str:
        """Write a file of the run and return its checksum."""
        write_atomically(self.path / name, content)
        return hashlib.sha256(content).hexdigest()

    def read_predictions(self, task: int) -> Predictions:
        """Return the predictions that were made after a task.

        Raises:
            DataError: There are none, or they do not match their checksum in the record.
        """
        path = self.path / prediction_name(task)
        checksum = sha256_of(path)
        if checksum is None:
            raise DataError(
                f"no predictions at {str(path)!r}",
                f"the run has not finished task {task + 1}, or nothing was measured after it (run.evaluate)",
            )
        # predictions come before the record that names them: one of the newest task may not do so yet
        recorded = checksum
        if (self.path / RECORD).exists():
            recorded = self.read_record()["files"].get(prediction_name(task), checksum)
        if recorded != checksum:
            raise DataError(
                f"{str(path)!r} does not match its checksum in {RECORD}: it is damaged or was edited"
            )
        columns = {name: value.astype(np.int64) for name, value in load_file(path).items()}
        return Predictions(**columns)

    def read_record(self) -> dict[str, Any]:
        """Return the content of ``record.json``.

        Raises:
            DataError: As :func:`lw2g.disk.contents.read_record`.
        """
        return read_record(self.path)

    def recorded(self, entry: str) -> dict[str, str]:
        """Return an entry of the record, such as its checksums by name; empty if it is lost or damaged."""
        try:
            return dict(read_sealed(self.path / RECORD, Record).get(entry, {}))
        except DataError:
            return {}

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write ``record.json``."""
        write_atomically(self.path / RECORD, seal_json(record))


def packed(predictions: Predictions) -> bytes:
    """Return predictions as safetensors of int32 columns."""
    columns = {}
    for field in attrs.fields(Predictions):
        column = getattr(predictions, field.name)
        if column is not None:
            columns[field.name] = column.astype(np.int32)  # half the size; counts of images fit
    content: bytes = save(columns)
    return content


def samples_name(source: int) -> str:
    """Return where in a run's directory the ids of a source's test samples lie."""
    return SAMPLES if source == 0 else f"samples-{source + 1}.json"


def source_files(names: Iterable[str]) -> list[str]:
    """Return, out of the names of a run's files, those that say which benchmarks follow, in their order."""
    return _numbered(_SOURCE, names)


def _numbered(pattern: re.Pattern[str], names: Iterable[str]) -> list[str]:
    """Return the names that match, by their numbers: a shorter name has a smaller one."""
    matching = filter(pattern.fullmatch, names)
    return sorted(matching, key=lambda name: (len(name), name))


class EventLog:
    """The tracker of every run: one JSON object a line in ``events.jsonl``.

    While the run is active, ``progress.json`` holds its newest step for other processes.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._progress = path.with_name(PROGRESS)
        self._last = 0.0

    def on_event(self, event: Event) -> None:
        """Append the event; of the many steps only the newest is kept, in a file next to the log."""
        if isinstance(event, Stepped):
            self._renew(event)
            return
        self._file.write(json.dumps({"event": type(event).__name__, **attrs.asdict(event)}) + "\n")
        self._file.flush()  # others follow the log while the run goes on

    def _renew(self, event: Stepped) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_NOTES:
            self._last = now
            new = self._progress.with_name(f".{PROGRESS}.lw2g-part")
            new.write_text(json.dumps(attrs.asdict(event)), encoding="utf-8")
            new.replace(self._progress)  # a reader sees a whole file; after a crash nobody misses it

    def close(self) -> None:
        """Close the log and remove the progress."""
        self._file.close()
        self._progress.unlink(missing_ok=True)


def unsaved_tasks(files: RunDirectory, finished: Sequence[int]) -> range:
    """Return the last tasks of the record that have no checkpoint.

    A record is written before the checkpoint, so that a run which was killed in between lacks one: such a
    task is not finished, unless the run was to stop after it.

    Args:
        files: The run.
        finished: The tasks that have one.

    Raises:
        DataError: The record is damaged.
    """
    if not (files.path / RECORD).exists():
        return range(0)
    record = files.read_record()
    rows = len(record["accuracy_matrix"])
    goal = files.read_goal() or record.get("tasks")
    expected = rows if rows == goal else rows - 1
    return range(1 + max(finished, default=-1), expected)
