"""Beginning a run, and going on with one: the directory's one writer, its processes and its checkpoint.

What then happens is :class:`lw2g.training.run.Run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lw2g.config.resolve import Resolved, load_resolved
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.interfaces.tracker import Tracker
from lw2g.registry.catalogue import Catalogue
from lw2g.training.boundary import guarded
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.files.record import RunDirectory
from lw2g.training.files.repair import remake_predictions
from lw2g.training.opening import build_trackers, writing
from lw2g.training.processes.assembling import assembled
from lw2g.training.processes.team import Team
from lw2g.training.run import Run
from lw2g.training.session import Session, open_session

__all__ = ["resume", "start", "taken_up"]


def start(
    resolved: Resolved,
    catalogue: Catalogue,
    directory: Path,
    listeners: Sequence[Tracker] = (),
    *,
    tasks: int | None = None,
    team: Team | None = None,
) -> dict[str, Any]:
    """Run an experiment from its beginning and return its record.

    Args:
        resolved: What to run.
        catalogue: Where its components come from.
        directory: The run's directory; must not hold a run.
        listeners: Receive the run's events.
        tasks: After how many tasks to stop; None for those of the whole stream.
        team: The processes that work on it; None: as many as are configured are started.

    Raises:
        ConfigError: The directory holds a run, or the experiment cannot be built as configured.
        ComponentError: A component raised an error.
        Interrupted: The run was stopped on request and can be resumed.
    """
    files = RunDirectory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with writing(files) as (stop, _):
        if files.exists():
            raise ConfigError(
                f"{str(directory)!r} holds a run already; go on with it: lw2g resume {directory}, "
                "or choose another --out"
            )
        with guarded(catalogue, resolved.config), assembled(resolved.config.run, team=team) as together:
            session = open_session(resolved.config, catalogue, (), together)
            run = Run(resolved, session, files, CheckpointStore(files.checkpoints), stop)
            run.aim(tasks)
            run.write_down()
            try:
                trackers = build_trackers(resolved, catalogue, directory, required=True)
            except Lw2gError:  # nothing was learned: the directory will do once the tracker can start
                files.config.unlink()
                raise
            return run.go_on([*trackers, *listeners])


def resume(
    directory: Path,
    catalogue: Catalogue,
    listeners: Sequence[Tracker] = (),
    *,
    devices: int | None = None,
    team: Team | None = None,
) -> dict[str, Any]:
    """Go on with an interrupted run from its newest whole checkpoint and return its record.

    It stops where it was meant to stop. Nothing is written before configuration, data and weights are found
    to be those the run began with.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        devices: How many processes work on it from now on; None: as many as are configured.
        team: Those processes, where they stand together already.

    Raises:
        DataError: There is no run, another process writes it, or its configuration, data or weights have
            changed.
        Interrupted: The run was stopped on request and can be resumed again.
    """
    with taken_up(directory, catalogue, devices=devices, team=team) as run:
        run.aim(RunDirectory(directory).read_goal())
        return run.go_on([*build_trackers(run.resolved, catalogue, directory), *listeners])


@contextmanager
def taken_up(
    directory: Path,
    catalogue: Catalogue,
    session: Session | None = None,
    *,
    devices: int | None = None,
    team: Team | None = None,
) -> Iterator[Run]:
    """Yield a run as it stands at its newest whole checkpoint, and be its one writer.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        session: The run's, in the state of that checkpoint, the end of a task; None: it is opened, as it is
            where several processes go on with it.
        devices: As for :func:`resume`.
        team: As for :func:`resume`.

    Raises:
        DataError: As :func:`resume`.
    """
    files = RunDirectory(directory)
    files.require_run()
    with writing(files) as (stop, gone):
        store = CheckpointStore(files.checkpoints)
        checkpoint, complaints = store.newest()
        told = files.recorded_files() if checkpoint is None else checkpoint.ledger["files"]
        if files.config.name in told:
            files.require_unedited(told[files.config.name])
        files.require_begun(told)
        complaints += _lost(files, store)
        if gone is not None:
            complaints.insert(0, f"the run was left by {gone}, which has ended")
        resolved = load_resolved(files.config, catalogue)
        later = files.read_sources({} if checkpoint is None else told, catalogue)
        with guarded(catalogue, resolved.config):
            if checkpoint is not None:
                complaints += remake_predictions(files, checkpoint, resolved.config, catalogue)
            with assembled(resolved.config.run, devices, team) as together:
                stands = session if together.size == 1 else None
                opened = stands or open_session(resolved.config, catalogue, later, together)
                run = Run(resolved, opened, files, store, stop)
                run.take_up(checkpoint, complaints, stands is not None)
                yield run


def _lost(files: RunDirectory, store: CheckpointStore) -> list[str]:
    """Return a line where the last checkpoints are lost; a record that is damaged is told of at the end."""
    try:
        lost = files.unsaved_tasks(store.finished)
    except DataError:
        return []
    return [f"the checkpoint of task {task + 1} is lost; the task is learned again" for task in lost]
