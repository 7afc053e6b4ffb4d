"""Starting and resuming a run: the directory's one writer, its processes and its checkpoint.

:class:`lw2g.lifecycle.run.Run` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lw2g.config.resolve import Resolved
from lw2g.config.settings import Chosen, ExperimentConfig
from lw2g.config.sources import lost_places, moved_source
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.disk.origins import made_with
from lw2g.disk.record import RunDirectory
from lw2g.disk.stored_run import open_newest
from lw2g.errors import DataError, Lw2gError, as_word
from lw2g.interfaces.tracker import Tracker
from lw2g.learning.session import Session, open_session
from lw2g.lifecycle.repair import remake_predictions
from lw2g.lifecycle.run import Run
from lw2g.lifecycle.run_opening import build_trackers, continued_run, new_run
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.runtime.boundary import guarded
from lw2g.runtime.ranks import Ranks, on_its_device

__all__ = ["follow", "opened_for_resume", "resume", "start"]


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
    with new_run(directory) as (files, stop):
        count = resolved.config.run.devices
        config = on_its_device(resolved.config, count)
        with guarded(catalogue, config), Ranks(count) as others:
            session = open_session(config, catalogue, settled=settled)
            run = Run(resolved, session, files, CheckpointStore(files.checkpoints), stop, others)
            run.aim(tasks)
            # a run that is killed from here on can be resumed
            run.write_down()
            try:
                trackers = build_trackers(resolved, catalogue, directory, required=True)
            # a tracker that was asked for and cannot start, such as one without its server
            except Lw2gError:  # nothing was learned: the directory stays usable once the tracker can start
                files.config.unlink()
                files.clear_beginning()
                raise
            return run.go_on([*trackers, *listeners])


def resume(
    directory: Path,
    catalogue: Catalogue,
    listeners: Sequence[Tracker] = (),
    *,
    devices: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Continue an interrupted run from its newest undamaged checkpoint and return its record.

    It stops at the run's goal. It writes nothing before it has checked that configuration, data and weights
    are those the run began with.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        devices: Number of processes from now on; None: the configured number.
        settings: By dotted keys, options of the benchmark that say where its data lie now.

    Raises:
        ConfigError: A setting is none of these.
        DataError: There is no run, another process writes it, or its configuration, data or weights have
            changed.
        Interrupted: The run was stopped on request and can be resumed again.
    """
    with opened_for_resume(directory, catalogue, devices=devices, settings=settings) as run:
        run.aim(RunDirectory(directory).read_goal())
        return run.go_on([*build_trackers(run.resolved, catalogue, directory), *listeners])


@contextmanager
def opened_for_resume(
    directory: Path,
    catalogue: Catalogue,
    session: Session | None = None,
    *,
    devices: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Run]:
    """Yield a run in the state of its newest undamaged checkpoint, and be its one writer.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        session: The run's session in the state of that checkpoint, the end of a task; None: open one, as
            several processes always do.
        devices: As for :func:`resume`.
        settings: Likewise.

    Raises:
        DataError: As :func:`resume`.
    """
    with continued_run(directory) as (stored, stop):
        resolved = stored.resolved(catalogue)
        later = stored.later_benchmarks(catalogue)
        moved = moved_source(resolved.config.benchmark, settings) if settings else None
        with guarded(catalogue, resolved.config):
            count = devices or resolved.config.run.devices
            config = on_its_device(resolved.config, count)
            with Ranks(count) as others:
                # what is noted stays only if the data there are those of the run
                with stored.files.moving(moved), _told_where(directory, resolved.config.benchmark, moved):
                    # before the run's own session: both at once would need the memory of two
                    complaints = [*stored.complaints, *remake_predictions(stored, catalogue)]
                    # whether a session is in the state already: of several processes each opens its own,
                    # so that they begin from the checkpoint alike
                    standing = session is not None and count == 1
                    if session is None or not standing:
                        session = open_session(config, catalogue, later, moved=stored.moved(catalogue))
                    run = Run(resolved, session, stored.files, stored.store, stop, others)
                    run.resume_from(stored.checkpoint, complaints, standing=standing)
                yield run


@contextmanager
def _told_where(directory: Path, benchmark: Chosen, moved: Chosen | None) -> Iterator[None]:
    """Say what to do where data are not found, or are other ones, in an error of the block.

    Args:
        directory: The run.
        benchmark: Its benchmark.
        moved: The same with the place that was named; None: none was.

    Raises:
        DataError: The block has raised one.
    """
    try:
        yield
    except DataError as error:
        if moved is not None:
            raise DataError(
                error.what,
                "name the place of the same images; the name of their folder begins their ids, and stays",
            ) from error
        lost = lost_places(benchmark)
        if lost:
            raise DataError(
                error.what, f"if the data have moved: lw2g resume {as_word(directory)} --set {lost[0]}=PLACE"
            ) from error
        raise


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
    known = catalogue or load_catalogue(made_with=made_with(directory))
    stored = open_newest(directory)
    checkpoint = stored.require_checkpoint()
    resolved = stored.resolved(known)
    config = place(resolved.config)
    with guarded(known, config):
        later = stored.later_benchmarks(known)
        session = open_session(config, known, later, moved=stored.moved(known))
        run = Run(resolved, session, stored.files, stored.store)
        run.aim(stored.files.read_goal())
        run.follow(checkpoint, join)
