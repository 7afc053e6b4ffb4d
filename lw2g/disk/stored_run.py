"""A run on disk, opened: the one place that knows why a run is refused.

:func:`open_after` opens it as it was after a task, for reading; :func:`open_newest` in the newest state that
is whole, to go on. Neither learns, builds or locks anything. Its record alone is read by
:func:`lw2g.disk.contents.read_record`, its configuration alone by :func:`resolved_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from lw2g.config.directory import CONFIG, GOAL, MOVED, require_run
from lw2g.config.resolve import Resolved, load_resolved
from lw2g.config.settings import Chosen
from lw2g.config.sources import load_source
from lw2g.disk.checkpoint import Checkpoint, CheckpointStore
from lw2g.disk.contents import edited, read_record
from lw2g.disk.record import RunDirectory, source_files, unsaved_tasks
from lw2g.disk.sealed import sha256_of
from lw2g.errors import DataError, as_word
from lw2g.registry.catalogue import Catalogue

__all__ = ["StoredRun", "open_after", "open_newest", "require_task", "resolved_of"]


@attrs.frozen(kw_only=True, eq=False)
class StoredRun:
    """A run on disk in the state of one of its checkpoints.

    Attributes:
        files: Its directory.
        store: Its checkpoints.
        checkpoint: The state; None: no checkpoint is whole, and the run begins anew.
        checksums: Checksums of its other files by name, as the checkpoint tells them; where there is none, as
            the record tells them.
        complaints: A line for each checkpoint that is damaged or lost and was passed over.
    """

    files: RunDirectory
    store: CheckpointStore
    checkpoint: Checkpoint | None
    checksums: Mapping[str, str]
    complaints: list[str] = attrs.field(factory=list)

    def require_checkpoint(self) -> Checkpoint:
        """Return the state.

        Raises:
            DataError: No checkpoint is whole.
        """
        if self.checkpoint is None:
            where = self.files.path
            raise DataError(
                f"no checkpoint of {str(where)!r} is whole", f"begin with: lw2g resume {as_word(where)}"
            )
        return self.checkpoint

    def resolved(self, catalogue: Catalogue) -> Resolved:
        """Return what the run was begun with.

        Args:
            catalogue: Where its components come from.

        Raises:
            ConfigError: A component or an option of it no longer exists.
        """
        return load_resolved(self.files.config, catalogue)

    def moved(self, catalogue: Catalogue) -> Chosen | None:
        """Return the run's benchmark with the place where its data lie now; None where they have not moved.

        Args:
            catalogue: Where benchmarks are looked up.
        """
        path = self.files.path / MOVED
        return load_source(catalogue, path) if path.exists() else None

    def later_benchmarks(self, catalogue: Catalogue) -> tuple[Chosen, ...]:
        """Return the benchmarks that follow that of the configuration; none before the first checkpoint.

        Args:
            catalogue: Where benchmarks are looked up.

        Raises:
            DataError: A file that says which is lost or edited.
        """
        if self.checkpoint is None:
            return ()
        chosen = []
        for name in source_files(self.checksums):
            path = self.files.path / name
            if sha256_of(path) != self.checksums[name]:
                raise DataError(f"{str(path)!r} is not the one the run went on with", "put it back")
            chosen.append(load_source(catalogue, path))
        return tuple(chosen)


def open_after(directory: Path, task: int | None = None) -> StoredRun:
    """Open a run as it was after a task.

    Args:
        directory: The run's directory.
        task: The task, from 0; None for the last finished one.

    Raises:
        DataError: There is no such run or task, its checkpoint or one that it builds on is damaged, or its
            configuration was edited.
    """
    require_run(directory)
    files = RunDirectory(directory)
    store = CheckpointStore(files.checkpoints)
    try:
        checkpoint = store.of_task(task)
    except DataError as error:
        raise _of_run(files, store, error) from error
    checksums = checkpoint.ledger["files"]
    _require_unedited(files, checksums)
    if task is None:
        # where the last checkpoint is lost, the one before would be passed off as the finished run
        lost = unsaved_tasks(files, store.finished)
        if lost:
            raise DataError(
                f"run {str(directory)!r} has lost the checkpoint of task {lost[-1] + 1}, its last",
                f"learn it again: lw2g resume {as_word(directory)}, or choose an earlier model with --task",
            )
    return StoredRun(files=files, store=store, checkpoint=checkpoint, checksums=checksums)


def require_task(directory: Path, task: int) -> None:
    """Refuse a task of a run that is not finished, without a look into its checkpoint.

    Args:
        directory: The run's directory.
        task: The task, from 0.

    Raises:
        DataError: There is no such run or task.
    """
    require_run(directory)
    files = RunDirectory(directory)
    store = CheckpointStore(files.checkpoints)
    try:
        store.require_finished(task)
    except DataError as error:
        raise _of_run(files, store, error) from error


def open_newest(directory: Path, *, extending: bool = False) -> StoredRun:
    """Open a run in its newest state whose files are all whole.

    Args:
        directory: The run's directory.
        extending: Whether new classes are to follow. An earlier attempt at this may then have ended before it
            had begun: its benchmark is written again.

    Raises:
        DataError: There is no such run, its configuration was edited, or its continuation with new classes
            ended before it had begun.
    """
    require_run(directory)
    files = RunDirectory(directory)
    store = CheckpointStore(files.checkpoints)
    checkpoint, complaints = store.newest()
    checksums = files.recorded("files") if checkpoint is None else checkpoint.ledger["files"]
    _require_unedited(files, checksums)
    if not extending:
        _require_begun(files, checksums)
    return StoredRun(
        files=files,
        store=store,
        checkpoint=checkpoint,
        checksums=checksums,
        complaints=[*complaints, *_complaints_of_lost(files, store)],
    )


def resolved_of(directory: Path, catalogue: Catalogue) -> Resolved:
    """Return what a run was begun with, without a look at its state.

    Raises:
        DataError: There is no such run.
        ConfigError: A component or an option of it no longer exists.
    """
    require_run(directory)
    return load_resolved(RunDirectory(directory).config, catalogue)


def _complaints_of_lost(files: RunDirectory, store: CheckpointStore) -> list[str]:
    """Return a line for each lost checkpoint at the end; a damaged record is reported later."""
    try:
        lost = unsaved_tasks(files, store.finished)
    except DataError:
        return []
    return [f"the checkpoint of task {task + 1} is lost; the task is learned again" for task in lost]


def _require_unedited(files: RunDirectory, checksums: Mapping[str, str]) -> None:
    """Refuse a configuration that is not the one the run began with, and name the options that differ.

    Raises:
        DataError: It is another one.
    """
    # a damaged record tells no checksum
    wanted = checksums.get(CONFIG)
    if wanted is None or sha256_of(files.config) == wanted:
        return
    raise edited(files.config, files.recorded("config"))


def _require_begun(files: RunDirectory, checksums: Mapping[str, str]) -> None:
    """Refuse a run whose continuation with new classes ended before its first checkpoint.

    Raises:
        DataError: There is a benchmark that no checkpoint knows of.
    """
    for path in files.path.glob("source-*.toml"):
        if path.name not in checksums:
            raise DataError(
                f"`lw2g continue {as_word(files.path)} --benchmark ...` ended before it had begun",
                f"run it again, or remove {path.name!r} (and {GOAL!r}) to leave the run as it was",
            )


def _of_run(files: RunDirectory, store: CheckpointStore, error: DataError) -> DataError:
    """Return an error of a run's checkpoints with the run's name, and the command by which it goes on."""
    ways = [error.remedy] if error.remedy else []
    if command := _command_for(files, store, is_damaged=error.__cause__ is not None):
        ways.append(f"go on: lw2g {command} {as_word(files.path)}")
    return DataError(f"run {str(files.path)!r}: {error.what}", ", or ".join(ways))


def _command_for(files: RunDirectory, store: CheckpointStore, *, is_damaged: bool) -> str:
    """Return the command by which a run goes on; empty where it is whole and has learned its stream."""
    try:
        record = read_record(files.path)
    except DataError:
        return "resume"
    learned = len(record["accuracy_matrix"])
    # a task whose checkpoint is damaged or gone is learned anew
    if is_damaged or len(store.finished) < learned:
        return "resume"
    if learned == record.get("tasks"):
        return ""
    return "continue" if learned == files.read_goal() else "resume"
