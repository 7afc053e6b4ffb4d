"""Opening a run's directory: as its one writer, with trackers and Ctrl-C; or as it was after a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lw2g.base.boundary import guarded
from lw2g.base.progress import Interrupted, StopRequest, stop_on_interrupt
from lw2g.base.shield import Shield
from lw2g.config.model import Chosen
from lw2g.config.resolve import Resolved, load_resolved
from lw2g.files.checkpoint import CheckpointStore
from lw2g.files.lock import Writer, one_writer
from lw2g.files.record import RunDirectory
from lw2g.interfaces.tracker import Tracker
from lw2g.registry.catalogue import Catalogue
from lw2g.tasks.session import Session, open_session
from lw2g.tasks.state import restore

__all__ = ["build_trackers", "reopen", "writing"]


@contextmanager
def writing(files: RunDirectory) -> Iterator[tuple[StopRequest, Writer | None]]:
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
    component = catalogue.get("tracker", chosen.name)
    origin = catalogue.entries["tracker", chosen.name].origin
    who = f"{origin}: tracker {chosen.name!r}"
    return Shield(who, lambda: component.build(chosen.config, directory), required=required)


def reopen(directory: Path, catalogue: Catalogue, task: int | None = None) -> Session:
    """Return a run with its data as it was after a task, for inspection.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        task: The task (from 0); None for the last finished one.

    Raises:
        DataError: There is no such run or task, or its data or weights have changed.
    """
    files = RunDirectory(directory)
    files.require_run()
    checkpoint = CheckpointStore(files.checkpoints).of_task(task)
    config = load_resolved(files.config, catalogue).config
    with guarded(catalogue, config):
        session = open_session(config, catalogue, files.read_sources(checkpoint.ledger["files"], catalogue))
        restore(session, checkpoint)
    return session
