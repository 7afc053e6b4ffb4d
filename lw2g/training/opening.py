"""Opening a run's directory: its one writer, its answer to Ctrl-C, and the trackers that are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lw2g.config.model import Chosen
from lw2g.config.resolve import Resolved
from lw2g.interfaces.tracker import Tracker
from lw2g.registry.catalogue import Catalogue
from lw2g.training.files.lock import Writer, one_writer
from lw2g.training.files.record import RunDirectory
from lw2g.training.progress import Interrupted, StopRequest, stop_on_interrupt
from lw2g.training.shield import Shield

__all__ = ["build_trackers", "writing"]


@contextmanager
def writing(files: RunDirectory) -> Iterator[tuple[StopRequest, Writer | None]]:
    """Be the directory's one writer, and answer Ctrl-C; leave no empty directory behind.

    Yields:
        Whether a stop was asked for, and who held the lock before without giving it back.
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
        with suppress(OSError):  # not empty: there is a run in it
            files.path.rmdir()


def build_trackers(
    resolved: Resolved, catalogue: Catalogue, directory: Path, *, required: bool = False
) -> list[Tracker]:
    """Return the trackers an experiment names, none of which can stop it once it has begun.

    Raises:
        Lw2gError: What one needs is missing, or one that is required cannot start.
    """
    return [_shielded(one, catalogue, directory, required) for one in resolved.config.trackers]


def _shielded(chosen: Chosen, catalogue: Catalogue, directory: Path, required: bool) -> Shield:
    component = catalogue.get("tracker", chosen.name)
    origin = catalogue.entries["tracker", chosen.name].origin
    who = f"{origin}: tracker {chosen.name!r}"
    return Shield(who, lambda: component.build(chosen.config, directory), required=required)
