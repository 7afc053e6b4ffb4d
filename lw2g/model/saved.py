"""Opening a trained model: a run after its newest or a named task, or an export."""

from __future__ import annotations

from pathlib import Path

import attrs

from lw2g.config.toml import read_toml
from lw2g.disk.contents import require_fit
from lw2g.disk.origins import noted_origins
from lw2g.disk.stored_run import StoredRun, open_after
from lw2g.errors import ConfigError, DataError, Lw2gError, no_folder
from lw2g.model.exported import Saved, is_export, read_export
from lw2g.model.live import live_model
from lw2g.model.manifest import Manifest, sections
from lw2g.model.trained import TrainedModel
from lw2g.registry.catalogue import Catalogue

__all__ = ["open_model", "require_counted", "require_usable", "run_after", "saved_in", "saved_of"]


def open_model(
    directory: Path,
    catalogue: Catalogue,
    task: int | None = None,
    *,
    device: str | None = None,
    batch_size: int | None = None,
    weights: Path | None = None,
) -> TrainedModel:
    """Open a run or an exported model for use; neither needs data, benchmark or policy.

    Args:
        directory: Its directory.
        catalogue: Where its components come from.
        task: The task, counted from 1, after which a run is wanted; None for the last finished one.
        device: Where it computes (as ``run.device``); None for the run's own, for an export ``auto``.
        batch_size: Images per forward, always so many; None for at most as many as the run had.
        weights: A file with the backbone's weights; None for where they were.

    Raises:
        DataError: There is no such model, it is damaged, has not finished a task (or not this one), a
            component is not installed, or its backbone is another one or nowhere.
        ConfigError: The device is not there, tasks are counted from 0, or a batch has no image.
    """
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size: expected at least 1 image but got {batch_size}", "such as 32")
    saved = saved_in(directory, task)
    return live_model(saved, catalogue, device=device, batch_size=batch_size, weights=weights)


def saved_in(directory: Path, task: int | None = None) -> Saved:
    """Return the values of the model in a directory of a run or an exported model.

    Args:
        directory: The directory.
        task: As for :func:`open_model`.

    Raises:
        DataError: There is no such model, it is damaged, or has not finished a task (or not this one).
        ConfigError: Tasks are counted from 0.
    """
    require_counted(task)
    if not directory.is_dir():
        raise DataError(no_folder(directory), "give the folder of a run or a model")
    saved = read_export(directory) if is_export(directory) else saved_of(run_after(directory, task))
    # a run has a state for each task, an export one alone
    last = len(saved.manifest.tasks)
    if task not in (None, last):
        raise DataError(
            f"{str(directory)!r} holds the model after task {last} alone",
            f"export another one of its run: lw2g export RUN OUT --task {task}",
        )
    return saved


def require_usable(
    directory: Path,
    catalogue: Catalogue,
    *,
    whole: bool,
    device: str | None = None,
    weights: Path | None = None,
) -> None:
    """Open a model before its folder gets its name, and let it answer for a blank input.

    Where it raises, :func:`lw2g.model.places.write_folder` removes the files.

    Args:
        directory: Its folder.
        catalogue: Where its components come from.
        whole: Whether it must be able to go on learning, too.
        device: As for :func:`open_model`.
        weights: Likewise.

    Raises:
        DataError: It cannot be opened, or does not answer.
    """
    try:
        saved = read_export(directory, whole=whole)
        model = live_model(saved, catalogue, device=device, batch_size=1, weights=weights)
        model.predict(model.backbone.blank())  # numbers that are not finite show here, not in the files
    except Lw2gError as error:
        what = f"nothing was written: the model cannot be used: {error.what}"
        raise DataError(what, error.remedy) from error


def require_counted(task: int | None) -> None:
    """Refuse a task below 1: whoever counts from 0 would get another model.

    Raises:
        ConfigError: It is below 1.
    """
    if task is not None and task < 1:
        raise ConfigError(f"task: expected a number from 1 but got {task}", "the first task is 1")


def run_after(directory: Path, task: int | None) -> StoredRun:
    """Open a run as it was after a task, counted from 1; None for the last finished one."""
    return open_after(directory, None if task is None else task - 1)


def saved_of(run: StoredRun) -> Saved:
    """Return the model of a run."""
    checkpoint = run.require_checkpoint()
    config = run.files.config
    # plain values: a model needs neither the policy nor the benchmark of its run to be installed
    written = read_toml(config)
    content = {
        **sections(written),
        "components": [attrs.asdict(origin) for origin in noted_origins(run.files.path).components],
        **checkpoint.progress["model"],
        "tasks": checkpoint.ledger["tasks"],
        "task_to_set": checkpoint.ledger["task_to_set"],
        "learned_from": {
            "name": written["benchmark"]["name"],
            "fingerprint": checkpoint.progress["fingerprints"]["benchmark"],
        },
    }
    return Saved(manifest=require_fit(content, config, Manifest), tensors=checkpoint.tensors)
