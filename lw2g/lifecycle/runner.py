"""Starting and resuming a run: the directory's one writer, its processes and its checkpoint.

:class:`lw2g.lifecycle.run.Run` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lw2g.base.boundary import guarded
from lw2g.base.ranks import Ranks, on_its_device
from lw2g.config.model import ExperimentConfig
from lw2g.config.resolve import Resolved, load_resolved
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.files.checkpoint import CheckpointStore
from lw2g.files.record import RunDirectory
from lw2g.interfaces.tracker import Tracker
from lw2g.lifecycle.opening import build_trackers, writing
from lw2g.lifecycle.repair import remake_predictions
from lw2g.lifecycle.run import Run
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.tasks.session import Session, open_session

__all__ = ["follow", "resume", "start", "taken_up"]


def start(
    resolved: Resolved,
    catalogue: Catalogue,
    directory: Path,
    listeners: Sequence[Tracker] = (),
    *,
    tasks: int | None = None,
    settled: Path | None = None,
) -> dict[str, Any]:
    """Run an experiment from its beginning and return its record.

    Args:
        resolved: What to run.
        catalogue: Where its components come from.
        directory: The run's directory; must not hold a run.
        listeners: Receive the run's events.
        tasks: After how many tasks to stop; None for those of the whole stream.
        settled: A folder that runs share which are to compute alike: the first one with the precision
            ``auto`` writes there what it settled on, the others take it.

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
                f"{str(directory)!r} holds a run already",
                f"go on with it: lw2g resume {directory}, or choose another --out",
            )
        count = resolved.config.run.devices
        config = on_its_device(resolved.config, count)
        with guarded(catalogue, config), Ranks(count) as others:
            session = open_session(config, catalogue, settled=settled)
            run = Run(resolved, session, files, CheckpointStore(files.checkpoints), stop, others)
            run.aim(tasks)
            run.write_down()
            try:
                trackers = build_trackers(resolved, catalogue, directory, required=True)
            except Lw2gError:  # nothing was learned: the directory stays usable once the tracker can start
                files.config.unlink()
                raise
            return run.go_on([*trackers, *listeners])


def resume(
    directory: Path,
    catalogue: Catalogue,
    listeners: Sequence[Tracker] = (),
    *,
    devices: int | None = None,
) -> dict[str, Any]:
    """Continue an interrupted run from its newest undamaged checkpoint and return its record.

    It stops at the run's goal. It writes nothing before it has checked that configuration, data and weights
    are those the run began with.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        devices: Number of processes from now on; None: the configured number.

    Raises:
        DataError: There is no run, another process writes it, or its configuration, data or weights have
            changed.
        Interrupted: The run was stopped on request and can be resumed again.
    """
    with taken_up(directory, catalogue, devices=devices) as run:
        run.aim(RunDirectory(directory).read_goal())
        return run.go_on([*build_trackers(run.resolved, catalogue, directory), *listeners])


@contextmanager
def taken_up(
    directory: Path,
    catalogue: Catalogue,
    session: Session | None = None,
    *,
    devices: int | None = None,
) -> Iterator[Run]:
    """Yield a run in the state of its newest undamaged checkpoint, and be its one writer.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        session: The run's session in the state of that checkpoint, the end of a task; None: open one, as
            several processes always do.
        devices: As for :func:`resume`.

    Raises:
        DataError: As :func:`resume`.
    """
    files = RunDirectory(directory)
    files.require_run()
    with writing(files) as (stop, gone):
        store = CheckpointStore(files.checkpoints)
        checkpoint, complaints = store.newest()
        checksums = files.recorded_files() if checkpoint is None else checkpoint.ledger["files"]
        if files.config.name in checksums:
            files.require_unedited(checksums[files.config.name])
        files.require_begun(checksums)
        complaints += _lost(files, store)
        if gone is not None:
            complaints.insert(0, f"the run was left by {gone}, which has ended")
        resolved = load_resolved(files.config, catalogue)
        later = files.read_sources({} if checkpoint is None else checksums, catalogue)
        with guarded(catalogue, resolved.config):
            if checkpoint is not None:
                complaints += remake_predictions(files, checkpoint, resolved.config, catalogue)
            count = devices or resolved.config.run.devices
            config = on_its_device(resolved.config, count)
            with Ranks(count) as others:
                stands = session if count == 1 else None
                run = Run(
                    resolved, stands or open_session(config, catalogue, later), files, store, stop, others
                )
                run.take_up(checkpoint, complaints, stands is not None)
                yield run


def _lost(files: RunDirectory, store: CheckpointStore) -> list[str]:
    """Return a warning for each lost checkpoint at the end; a damaged record is reported later."""
    try:
        lost = files.unsaved_tasks(store.finished)
    except DataError:
        return []
    return [f"the checkpoint of task {task + 1} is lost; the task is learned again" for task in lost]


def follow(
    directory: Path,
    place: Callable[[ExperimentConfig], ExperimentConfig],
    join: Callable[[torch.device], None],
    catalogue: Catalogue | None = None,
) -> None:
    """Train a run as a further rank, from the newest checkpoint on, and write nothing.

    Args:
        directory: The run's directory.
        place: Returns the configuration of this rank.
        join: Joins rank 0; called once this rank is in the checkpoint's state.
        catalogue: Where components come from; None for all that are installed.

    Raises:
        DataError: Data or weights are missing.
    """
    files, known = RunDirectory(directory), catalogue or load_catalogue()
    store = CheckpointStore(files.checkpoints)
    checkpoint, _ = store.newest()
    if checkpoint is None:
        raise DataError(f"no checkpoint of {str(directory)!r} is whole")
    resolved = load_resolved(files.config, known)
    later = files.read_sources(checkpoint.ledger["files"], known)
    config = place(resolved.config)
    with guarded(known, config):
        run = Run(resolved, open_session(config, known, later), files, store)
        run.aim(files.read_goal())
        run.follow(checkpoint, join)
