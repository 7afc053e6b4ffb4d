"""Runs as their one writer has them, with trackers and Ctrl-C; and with their data, as after a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lw2g.config.directory import require_run
from lw2g.config.resolve import Resolved
from lw2g.config.settings import Chosen
from lw2g.disk.lock import Writer, one_writer
from lw2g.disk.record import RunDirectory
from lw2g.disk.stored_run import StoredRun, open_after, open_newest
from lw2g.errors import ConfigError, Interrupted, as_word
from lw2g.interfaces.tracker import Tracker
from lw2g.learning.session import Session, open_session
from lw2g.learning.state import restore
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import guarded
from lw2g.runtime.progress import StopRequest, stop_on_interrupt
from lw2g.runtime.shield import Shield

__all__ = ["build_trackers", "continued_run", "new_run", "reopen"]


@contextmanager
def new_run(directory: Path) -> Iterator[tuple[RunDirectory, StopRequest]]:
    """Be the one writer of a directory that is to hold a run, within the block.

    Yields:
        Its files, and the request to stop.

    Raises:
        ConfigError: It holds a run.
        DataError: Another process writes there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = RunDirectory(directory)
    with _writing(files) as (stop, _):
        # under the lock: another process may have begun a run meanwhile
        if files.exists():
            raise ConfigError(
                f"{str(directory)!r} holds a run already",
                f"go on with it: lw2g resume {as_word(directory)}, or choose another --out",
            )
        files.clear_beginning()
        yield files, stop


@contextmanager
def continued_run(directory: Path, *, extending: bool = False) -> Iterator[tuple[StoredRun, StopRequest]]:
    """Be the one writer of a run that goes on from its newest state, within the block.

    Args:
        directory: The run's directory.
        extending: As for :func:`~lw2g.disk.stored_run.open_newest`.

    Yields:
        The run, and the request to stop.

    Raises:
        DataError: The run cannot go on, or another process writes it.
    """
    require_run(directory, goes_on=True)  # where there is none, no lock is left behind
    with _writing(RunDirectory(directory)) as (stop, gone):
        run = open_newest(directory, extending=extending)
        if gone is not None:
            run.complaints.insert(0, f"the run was left by {gone}, which has ended")
        yield run, stop


@contextmanager
def _writing(files: RunDirectory) -> Iterator[tuple[StopRequest, Writer | None]]:
    """Be the directory's one writer and handle Ctrl-C; remove a directory that stays empty.

    Yields:
        The request to stop, and the earlier writer if it ended without releasing the lock.
    """
    try:
        with stop_on_interrupt() as stop, one_writer(files.path) as gone:
            files.prepare()
            yield stop, gone
    except KeyboardInterrupt:
        if files.exists():
            raise Interrupted(files.path) from None
        raise
    finally:
        with suppress(OSError):  # not empty: it holds a run
            files.path.rmdir()


def build_trackers(
    resolved: Resolved, catalogue: Catalogue, directory: Path, *, required: bool = False
) -> list[Tracker]:
    """Return an experiment's trackers; none of them can stop it once it has begun.

    Raises:
        Lw2gError: A tracker lacks something that it needs, or a required one cannot start.
    """
    return [_shielded(chosen, catalogue, directory, required) for chosen in resolved.config.trackers]


def _shielded(chosen: Chosen, catalogue: Catalogue, directory: Path, required: bool) -> Shield:
    entry = catalogue.registered("tracker", chosen.name)
    component: Any = entry.component
    who = f"{entry.origin}: tracker {chosen.name!r}"
    return Shield(who, lambda: component.build(chosen.config, directory), required=required)


def reopen(directory: Path, catalogue: Catalogue, task: int | None = None) -> Session:
    """Return a run with its data as it was after a task, for inspection.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        task: The task (from 0); None for the last finished one.

    Raises:
        DataError: There is no such run or task, or its configuration, data or weights have changed.
    """
    run = open_after(directory, task)
    config = run.resolved(catalogue).config
    with guarded(catalogue, config):
        session = open_session(config, catalogue, run.later_benchmarks(catalogue), moved=run.moved(catalogue))
        restore(session, run.require_checkpoint())
    return session
