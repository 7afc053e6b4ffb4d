"""Opening what was learned for use: a run, from its newest or a named task's checkpoint, or an export."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs

from lw2g.config.model import ExperimentConfig
from lw2g.config.resolve import load_resolved
from lw2g.errors import ConfigError, DataError
from lw2g.registry.catalogue import Catalogue
from lw2g.training.boundary import guarded
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.files.record import RunDirectory
from lw2g.training.files.state import restore
from lw2g.training.models.export import require_free, write_export
from lw2g.training.models.exported import is_export, open_export
from lw2g.training.models.model import TrainedModel
from lw2g.training.session import Session, open_session

__all__ = ["export_run", "open_model"]


def open_model(
    directory: Path,
    catalogue: Catalogue,
    task: int | None = None,
    *,
    device: str | None = None,
    batch_size: int | None = None,
    weights: Path | None = None,
) -> TrainedModel:
    """Open a run or an exported model for use.

    Args:
        directory: Its directory.
        catalogue: Where its components come from.
        task: The task (from 0) after which a run is wanted; None for the last finished one.
        device: Where it computes (as ``run.device``); None for the run's own, for an export ``auto``.
        batch_size: Images per forward; None for the run's own.
        weights: A file with the backbone's weights; None for where they were.

    Raises:
        DataError: There is no such model, it is damaged, has not finished a task (or not this one), or its
            backbone is another one or nowhere.
        ConfigError: The device is not there.
    """
    if not is_export(directory):
        session, found, config = _restored(directory, catalogue, task, device, batch_size, weights)
        return TrainedModel(session, found, partial(guarded, catalogue, config))
    model = open_export(directory, catalogue, device=device, batch_size=batch_size, weights=weights)
    if task not in (None, model.task):
        raise DataError(
            f"{str(directory)!r} holds the model after task {model.task + 1} alone; export another one of "
            f"its run: lw2g export RUN OUT --task {task + 1}"
        )
    return model


def export_run(
    directory: Path,
    catalogue: Catalogue,
    out: Path,
    task: int | None = None,
    *,
    with_backbone: bool = False,
) -> int:
    """Write the model of a run into a new folder, from where :func:`open_model` opens it.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        out: The folder.
        task: The task (from 0) after which it is wanted; None for the last finished one.
        with_backbone: Whether the frozen weights are put inside.

    Returns:
        The bytes of what was written.

    Raises:
        DataError: There is no such run or task.
        ConfigError: The folder is in use, the run's retrieval must be told the task, or the backbone cannot
            be put inside.
    """
    require_free(out)
    session, found, config = _restored(directory, catalogue, task, "cpu", None, None)
    if getattr(session.retrieval, "control", False):
        raise ConfigError(
            f"{session.names[1]} is told the task, so that nobody could use the model; export another run"
        )
    with guarded(catalogue, config):
        return write_export(session, found, catalogue, out, with_backbone=with_backbone)


def _restored(
    directory: Path,
    catalogue: Catalogue,
    task: int | None,
    device: str | None,
    batch_size: int | None,
    weights: Path | None,
) -> tuple[Session, int, ExperimentConfig]:
    """Return the session as it stood after a task, the task, and its configuration."""
    files = RunDirectory(directory)
    files.require_run()
    store = CheckpointStore(files.checkpoints)
    try:
        checkpoint = store.of_task(task)
    except DataError as error:
        whole = "choose one of them with --task, or " if "are whole" in str(error) else ""
        raise DataError(f"run {str(directory)!r}: {error}; {whole}go on: lw2g resume {directory}") from error
    files.require_unedited(checkpoint.ledger["files"][files.config.name])
    if task is None and (lost := files.unsaved_tasks(store.finished)):
        raise DataError(
            f"run {str(directory)!r} has lost the checkpoint of task {lost[-1] + 1}, its last; learn it "
            f"again: lw2g resume {directory}, or choose an earlier model with --task"
        )
    config = load_resolved(files.config, catalogue, weights).config
    run = attrs.evolve(
        config.run,
        device=config.run.device if device is None else device,
        evaluation_batch=config.run.evaluation_batch if batch_size is None else batch_size,
    )
    later = files.read_sources(checkpoint.ledger["files"], catalogue)
    with guarded(catalogue, config):
        session = open_session(attrs.evolve(config, run=run), catalogue, later)
        position = restore(session, checkpoint)
    return session, position.task - 1, config
