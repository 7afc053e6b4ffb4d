"""Continuing a run after its planned stop, or with new classes after the end of its stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lw2g.base.boundary import guarded
from lw2g.config.model import Chosen
from lw2g.errors import ConfigError
from lw2g.files.checkpoint import Checkpoint
from lw2g.interfaces.tracker import Tracker
from lw2g.lifecycle.ledger import Ledger
from lw2g.lifecycle.opening import build_trackers, continued_run
from lw2g.lifecycle.runner import taken_up
from lw2g.registry.catalogue import Catalogue
from lw2g.tasks.session import Session, open_session
from lw2g.tasks.state import Position, restore, snapshot

__all__ = ["extend", "proceed"]


def proceed(
    directory: Path,
    catalogue: Catalogue,
    listeners: Sequence[Tracker] = (),
    *,
    tasks: int | None = None,
    session: Session | None = None,
    devices: int | None = None,
) -> dict[str, Any]:
    """Continue a run after its planned stop, as if it had never stopped, and return its record.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        tasks: After how many tasks, counted from the run's first, to stop; None for those of the whole
            stream.
        session: The run's session, if one is open in the state of its newest checkpoint, the end of a task.
        devices: As for :func:`lw2g.lifecycle.runner.resume`.

    Raises:
        ConfigError: It has finished that many tasks, or its stream has fewer.
        DataError: As :func:`lw2g.lifecycle.runner.resume`.
        Interrupted: The run was stopped on request and can be resumed.
    """
    with taken_up(directory, catalogue, session, devices=devices) as run:
        run.aim(tasks)
        return run.go_on([*build_trackers(run.resolved, catalogue, directory), *listeners])


def extend(
    directory: Path,
    benchmark: Chosen,
    catalogue: Catalogue,
    listeners: Sequence[Tracker] = (),
    *,
    tasks: int | None = None,
    devices: int | None = None,
) -> dict[str, Any]:
    """Continue a run after the end of its stream with the classes of another source; return its record.

    Tensors with a row per class or task get rows for the new ones, drawn as for a run of that length;
    learned rows stay. Images of all sources go through the transforms that the run began with. All test
    images are evaluated, so the data of every source must be there.

    Args:
        directory: The run's directory.
        benchmark: Where the new classes come from.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        tasks: After how many tasks, counted from the run's first, to stop; None for all.
        devices: As for :func:`lw2g.lifecycle.runner.resume`.

    Raises:
        ConfigError: The run is not at the end of its stream, or its method takes no more classes.
        DataError: As :func:`lw2g.lifecycle.runner.resume`.
        Interrupted: The run was stopped on request and can be resumed.
    """
    with continued_run(directory, extending=True) as (run, _):
        files = run.files
        checkpoint = run.require_checkpoint()
        resolved = run.resolved(catalogue)
        earlier = run.later_benchmarks(catalogue)
        number = 1 + len(earlier)
        # before the long opening: until a checkpoint knows this source, a resume must not go to the old end
        source = files.write_source(benchmark, number)
        with guarded(catalogue, resolved.config):
            try:
                session = open_session(resolved.config, catalogue, (*earlier, benchmark))
                _restore_at_end(session, checkpoint, directory)
                session.require_goal(session.sources[number].first, tasks)
            except Exception:
                # nothing was begun: without the source the run is as it was
                for name in source:
                    (directory / name).unlink()
                raise
            ledger = Ledger.restored(checkpoint.ledger)
            ledger.files = {
                **run.checksums,
                **source,
                **files.write_samples(session.sample_lists[number], number),
            }
            files.write_goal(tasks)
            # from this checkpoint on the run knows the new source, and a resume goes to its end
            position = Position(task=session.sources[number].first)
            run.store.save(snapshot(session, position, ledger.as_mapping()))
    return proceed(directory, catalogue, listeners, tasks=tasks, devices=devices)


def _restore_at_end(session: Session, checkpoint: Checkpoint, directory: Path) -> None:
    """Restore a session with one more source to the state of a run that has finished the others.

    Raises:
        ConfigError: The run has not finished them.
    """
    place = checkpoint.progress["position"]
    first = session.sources[-1].first
    if place["task"] != first or place["within"]:
        raise ConfigError(
            f"the run has finished {place['task']} of {first} tasks, and new classes come after the last",
            f"go on to it first: lw2g continue {directory}",
        )
    restore(session, checkpoint)
