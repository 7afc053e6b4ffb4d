"""lw2g: continual learning on frozen pre-trained ViTs.

``lw2g.run`` and ``lw2g.load`` are the Python counterparts of ``lw2g run`` and ``lw2g predict``.
Importing this package imports neither torch nor any plugin.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lw2g.interfaces.tracker import Tracker
    from lw2g.training.models.model import TrainedModel

__all__ = ["__version__", "continue_run", "export", "fork", "load", "run"]

__version__ = "0.1.0"

_NAMES = ("baseline", "retrieval", "policy", "constraints", "trackers", "benchmark", "backbone", "weights")
_RUN_OPTIONS = ("protocol", "seed", "device", "devices", "precision")


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    tasks: int | None = None,
    progress: bool = True,
    **names_and_overrides: Any,
) -> dict[str, Any]:
    """Run an experiment and return its record (the content of ``record.json``).

    Args:
        config: A TOML file.
        out: The run's directory; None for a new one under ``runs/``.
        tasks: Number of tasks after which to stop (:func:`continue_run` continues); None for all.
        progress: Whether to show the progress: a bar in notebooks and on terminals, else lines on stderr.
        **names_and_overrides: ``baseline``, ``retrieval``, ``policy``, ``constraints`` and ``trackers``
            (lists), ``benchmark``, ``backbone``, ``weights``, ``protocol``, ``seed``, ``device``,
            ``devices``, ``precision``; and single options by their dotted keys, as in
            ``run(policy="min", **{"baseline.epochs": 3})``.

    Raises:
        ConfigError: The configuration is invalid; the message lists every problem.
        Interrupted: Ctrl-C stopped the run, which can be resumed.
    """
    from lw2g.config.directory import new_directory
    from lw2g.config.resolve import resolve
    from lw2g.registry.catalogue import load_catalogue

    names = {key: value for key, value in names_and_overrides.items() if key in _NAMES}
    overrides = {
        f"run.{key}" if key in _RUN_OPTIONS else key: value
        for key, value in names_and_overrides.items()
        if key not in _NAMES
    }
    catalogue = load_catalogue()
    resolved = resolve(catalogue, file=Path(config) if config else None, overrides=overrides, **names)
    from lw2g.training.runner import start

    with new_directory(resolved.config, Path(out) if out else None) as directory:
        return start(resolved, catalogue, directory, _listeners() if progress else (), tasks=tasks)


def continue_run(
    run: str | Path, *, tasks: int | None = None, devices: int | None = None, progress: bool = True
) -> dict[str, Any]:
    """Continue a run that stopped after ``tasks``, as if it had not stopped, and return its record.

    Args:
        run: The run's directory.
        tasks: Number of tasks, counted from the first, after which to stop; None for all.
        devices: Number of processes from now on; None for the configured number.
        progress: As for :func:`run`.

    Raises:
        DataError: There is no run, or its configuration, data or weights have changed.
        ConfigError: It has finished that many tasks, or its stream has fewer.
        Interrupted: Ctrl-C stopped the run, which can be resumed.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.training.continuing import proceed

    listeners = _listeners() if progress else ()
    return proceed(Path(run), load_catalogue(), listeners, tasks=tasks, devices=devices)


def fork(
    run: str | Path,
    at_task: int,
    *,
    out: str | Path | None = None,
    policy: str | None = None,
    constraints: Sequence[str] | None = None,
    tasks: int | None = None,
    progress: bool = True,
    **overrides: Any,
) -> dict[str, Any]:
    """Start a run from the end of a task of another run, with other choices, and return its record.

    The other run stays unchanged. If no choice changes, the new run repeats it.

    Args:
        run: The other run's directory.
        at_task: Number of tasks to take over.
        out: The new run's directory; None for a new one under ``runs/``.
        policy: Growth policy from there on.
        constraints: Constraints from there on; None for those of the other run.
        tasks: As for :func:`continue_run`.
        progress: As for :func:`run`.
        **overrides: Single options by their dotted keys, as in ``**{"policy.map": [0, 0, 1]}``.

    Raises:
        DataError: There is no such run or task, or its files, data or weights have changed.
        ConfigError: The finished tasks depend on a changed option.
        Interrupted: Ctrl-C stopped the new run, which can be resumed.
    """
    from lw2g.config.directory import new_directory
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.training import forking

    catalogue = load_catalogue()
    resolved = forking.resolve_fork(
        Path(run), catalogue, policy=policy, constraints=constraints, overrides=overrides
    )
    with new_directory(resolved.config, Path(out) if out else None) as directory:
        return forking.fork(
            Path(run),
            at_task - 1,
            resolved,
            catalogue,
            directory,
            _listeners() if progress else (),
            tasks=tasks,
        )


def _listeners() -> list[Tracker]:
    from lw2g.cli.output import console
    from lw2g.cli.progress import progress_tracker

    return [progress_tracker(console(stderr=True))]


def load(
    run: str | Path,
    *,
    task: int | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    weights: str | Path | None = None,
) -> TrainedModel:
    """Open a saved run or an exported model: ``model(images)`` gives logits, ``model.predict(images)`` names.

    It needs neither the run's data nor its benchmark, policy and constraints. Images are paths, PIL images
    or tensors; the model's docstring says which.

    Args:
        run: The directory of the run or the export.
        task: The finished task, counted from 1, whose checkpoint to open; None for the newest.
        device: The device, such as ``"cuda:1"``; None for the run's own, or for an export a GPU if present.
        batch_size: Images per forward, to which smaller batches are padded; None for the run's own.
        weights: A file with the backbone's weights; None for their recorded source.

    Raises:
        DataError: There is no such model, it is damaged, or its backbone is missing or a different one.
        ConfigError: The device does not exist.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.training.models.saved import open_model

    file = None if weights is None else Path(weights)
    return open_model(Path(run), load_catalogue(), task, device=device, batch_size=batch_size, weights=file)


def export(
    run: str | Path,
    out: str | Path,
    *,
    task: int | None = None,
    with_backbone: bool = False,
    weights: str | Path | None = None,
) -> int:
    """Write a run's model into a new folder, from which :func:`load` opens it, and return its size in bytes.

    The export predicts as the run does and needs neither the run nor its data. It contains no code: to open
    it, install the baseline, the retrieval strategy and the backbone.

    Args:
        run: The run's directory.
        out: The folder.
        task: The finished task, counted from 1, whose model to export; None for the newest.
        with_backbone: Whether to include the frozen weights; otherwise only their checksum.
        weights: A file with the backbone's weights; None for their recorded source.

    Raises:
        DataError: There is no such run or task.
        ConfigError: The folder is in use, or the run has no model to export.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.training.models.saved import export_run

    file = None if weights is None else Path(weights)
    catalogue = load_catalogue()
    return export_run(Path(run), catalogue, Path(out), task, with_backbone=with_backbone, weights=file)
