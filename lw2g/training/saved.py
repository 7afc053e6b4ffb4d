"""Opening a run for use, from its newest or a named task's checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs

from lw2g.config.resolve import load_resolved
from lw2g.errors import DataError
from lw2g.registry.catalogue import Catalogue
from lw2g.training.boundary import guarded
from lw2g.training.checkpoint import CheckpointStore
from lw2g.training.model import TrainedModel
from lw2g.training.record import RunDirectory
from lw2g.training.session import open_session
from lw2g.training.state import restore

__all__ = ["open_run"]


def open_run(
    directory: Path,
    catalogue: Catalogue,
    task: int | None = None,
    *,
    device: str | None = None,
    batch_size: int | None = None,
) -> TrainedModel:
    """Open a run for use.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        task: The task (from 0) after which it is wanted; None for the last finished one.
        device: Where it computes (as ``run.device``); None for the run's own.
        batch_size: Images per forward; None for the run's own.

    Raises:
        DataError: There is no such run, or it has not finished a task (or not this one).
        ConfigError: The device is not there.
    """
    files = RunDirectory(directory)
    files.require_run()
    try:
        checkpoint = CheckpointStore(files.checkpoints).of_task(task)
    except DataError as error:
        whole = "choose one of them with --task, or " if "are whole" in str(error) else ""
        raise DataError(f"run {str(directory)!r}: {error}; {whole}go on: lw2g resume {directory}") from error
    files.require_unedited(checkpoint.ledger["files"][files.config.name])
    config = load_resolved(files.config, catalogue).config
    run = attrs.evolve(
        config.run,
        device=config.run.device if device is None else device,
        evaluation_batch=config.run.evaluation_batch if batch_size is None else batch_size,
    )
    later = files.read_sources(checkpoint.ledger["files"], catalogue)
    with guarded(catalogue, config):
        session = open_session(attrs.evolve(config, run=run), catalogue, later)
        position = restore(session, checkpoint)
    return TrainedModel(session, position.task - 1, partial(guarded, catalogue, config))
