"""Continuing a run after its planned stop, or with new classes after the end of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.config.settings import Chosen
from lw2g.disk.checkpoint import Checkpoint
from lw2g.errors import ConfigError, as_word
from lw2g.interfaces.tracker import Tracker
from lw2g.learning.session import open_session
from lw2g.learning.state import Position, restore, snapshot
from lw2g.lifecycle.ledger import Ledger
from lw2g.lifecycle.run_opening import build_trackers, continued_run
from lw2g.lifecycle.runner import opened_for_resume
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import guarded

__all__ = ["extend", "proceed"]


def proceed(
    directory: Path,
    catalogue: Catalogue,
    listeners: Sequence[Tracker] = (),
    *,
    tasks: int | None = None,
    devices: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Continue a run after its planned stop, as if it had never stopped, and return its record.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        tasks: After how many tasks, counted from the run's first, to stop; None for those of the whole
            stream.
        devices: As for :func:`lw2g.lifecycle.runner.resume`.
        settings: Likewise.

    Raises:
        ConfigError: It has finished that many tasks, or its stream has fewer.
        DataError: As :func:`lw2g.lifecycle.runner.resume`.
        Interrupted: The run was stopped on request and can be resumed.
    """
    with opened_for_resume(directory, catalogue, devices=devices, settings=settings) as run:
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
                session = open_session(
                    resolved.config, catalogue, (*earlier, benchmark), moved=run.moved(catalogue)
                )
                _require_end(checkpoint, session.data.sources[-1].first, directory)
                restore(session, checkpoint)
                session.parts.require_goal(session.data.sources[number].first, tasks)
            except Exception:
                # nothing was begun: without the source the run is as it was
                for name in source:
                    (directory / name).unlink()
                raise
            ledger = Ledger.restored(checkpoint.ledger)
            ledger.files = {
                **run.checksums,
                **source,
                **files.write_samples(session.data.sample_lists[number], number),
            }
            files.write_goal(tasks)
            files.write_origins(session.components.origins)
            # from this checkpoint on the run knows the new source, and a resume goes to its end
            position = Position(task=session.data.sources[number].first)
            run.store.save(snapshot(session, position, ledger.as_mapping()))
    return proceed(directory, catalogue, listeners, tasks=tasks, devices=devices)


def _require_end(checkpoint: Checkpoint, first: int, directory: Path) -> None:
    """Refuse to continue a run with one more source that has not finished the others.

    Args:
        checkpoint: Its newest one.
        first: The first task of the new source.
        directory: The run.

    Raises:
        ConfigError: The run has not finished them.
    """
    position = checkpoint.progress["position"]
    if position["task"] != first or position["within"]:
        raise ConfigError(
            f"the run has finished {position['task']} of {first} tasks, and new classes come after the last",
            f"go on to it first: lw2g continue {as_word(directory)}",
        )
