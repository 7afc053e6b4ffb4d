"""The directory of a run: the one the user names, or a new one named after its components."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.settings import ExperimentConfig
from lw2g.config.toml import read_json
from lw2g.errors import ConfigError, DataError, as_word, counted, no_folder
from lw2g.ground.spelling import require_path

__all__ = [
    "BEGINNING",
    "CELLS",
    "CHECKPOINTS",
    "CONFIG",
    "FAILED",
    "GOAL",
    "LEARNED",
    "LOCK",
    "MANIFEST",
    "MOVED",
    "PLUGINS",
    "PROGRESS",
    "RECORD",
    "RUNS",
    "SAMPLES",
    "SETTLED",
    "STALE",
    "UNFINISHED",
    "WEIGHTS",
    "folders_of",
    "holds_model",
    "missing_run",
    "new_directory",
    "of_models",
    "require_new",
    "require_outside",
    "require_run",
    "runs_of_sweep",
]

RUNS = Path("runs")
"""The default folder of runs."""
CONFIG = "config.toml"
"""A run's configuration."""
MOVED = "moved.toml"
"""The benchmark of a run whose data have moved, with the place where they lie now."""
PLUGINS = "plugins.json"
"""Who offered the components that a run began with."""
RECORD = "record.json"
"""Its results so far."""
GOAL = "goal.json"
"""The number of tasks after which a run stops, if before the stream's end."""
LOCK = "lock"
"""The file that names a run's writer."""
SAMPLES = "samples.json"
"""The test images that rows of predictions stand for."""
CHECKPOINTS = "checkpoints"
"""The folder of its states."""
BEGINNING = "task-000.step-000000.safetensors"
"""The first of them, of a run that has learned nothing."""
CELLS = "sweep.json"
"""The list of a sweep's cells, in the folder of their runs."""
FAILED = "failed"
"""The folder there whose files say why cells failed."""
STALE = ".stale"
"""The folder there of old runs that were set aside: ``CELL-1``, ``CELL-2``."""
PROGRESS = "progress.json"
"""The progress of a running run."""
SETTLED = "settled"
"""The folder in which runs that belong together keep what ``auto`` settled on."""
MANIFEST = "model.json"
"""What an export is, in words and numbers."""
WEIGHTS = "model.safetensors"
"""Its tensors."""
LEARNED = "learned.safetensors"
"""Further tensors of an export that can learn."""
UNFINISHED = ".lw2g-part"
"""The suffix of a file that is being written."""


@contextmanager
def new_directory(
    config: ExperimentConfig, out: Path | None, *, inputs: Sequence[Path] = (), grows: bool = True
) -> Iterator[Path]:
    """Make the directory of a run, and remove it after an error that left it empty.

    Args:
        config: Names the directory, ``runs/<benchmark>-<baseline>-<policy>-<n>``, if ``out`` is None.
        out: The directory itself.
        inputs: What the run reads in addition to its data.
        grows: Whether a policy decides; if not, the name is without it.

    Raises:
        ConfigError: ``out`` is in use, lies in what is read, or is not a valid path.
    """
    if out is not None:
        require_new(config, out, inputs=inputs)
    place = out or RUNS
    # the innermost first, in which order they can be removed
    new = [folder for folder in (place, *place.parents) if not folder.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        if out is None:
            # after the mkdir above: the numbered folder must be the last one made, and the first removed
            parts = [config.benchmark.name, config.baseline.name]
            if grows:
                parts.append(config.policy.name)
            place = _numbered("-".join(parts))
            new.insert(0, place)
        yield place
    except BaseException:  # a Ctrl-C, too
        with suppress(OSError):  # not empty
            for folder in new:
                with suppress(FileNotFoundError):
                    folder.rmdir()
        raise


def require_new(config: ExperimentConfig, out: Path, *, inputs: Sequence[Path] = ()) -> None:
    """Refuse a directory that a new run cannot have; arguments and errors as for :func:`new_directory`."""
    _require_free(out)
    require_outside(out, *folders_of(config.benchmark.config), *inputs)


def require_outside(out: Path, *inputs: Path | None) -> None:
    """Refuse an output inside a folder that is read: the next reader would take it for a part of that.

    Args:
        out: Where something is to be written.
        inputs: What is read; None and files hold nothing.

    Raises:
        ConfigError: It lies in one of them.
    """
    resolved = out.absolute().resolve()
    for one in inputs:
        if one is not None and resolved == one.resolve() and one.is_dir():
            raise ConfigError(f"{str(out)!r} is there already, and is read", "choose another folder")
        if one is not None and one.is_dir() and resolved.is_relative_to(one.resolve()):
            raise ConfigError(
                f"{str(out)!r} lies in {str(one)!r}, which is read", "choose a folder outside of it"
            )


def folders_of(options: Any) -> Iterator[Path]:
    """Yield the paths among the options of a component: what it reads."""
    for value in attrs.asdict(options, recurse=False).values():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Path):
                yield one


def _numbered(stem: str) -> Path:
    for number in itertools.count(1):
        directory = RUNS / f"{stem}-{number}"
        with suppress(FileExistsError):  # two runs may start at once
            directory.mkdir()
            return directory
    raise AssertionError("unreachable")


def _require_free(directory: Path) -> None:
    """Refuse a directory in which a run cannot begin: it is no directory, or holds something."""
    require_path(str(directory))
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"{str(directory)!r} is no directory", "choose another --out")
    entries = list(directory.iterdir())
    if all(map(_is_beginning, entries)):
        return
    names = {path.name for path in entries}
    if CONFIG in names:
        raise ConfigError(
            f"{str(directory)!r} holds a run already",
            f"resume it with `lw2g resume {as_word(directory)}`, or choose another --out",
        )
    if CELLS in names:
        raise ConfigError(
            f"{str(directory)!r} holds the runs of a sweep already",
            f"go on with `lw2g sweep retry {as_word(directory)}`, or choose another --out",
        )
    raise ConfigError(f"{str(directory)!r} is not empty and holds no run", "choose another --out")


def _is_beginning(path: Path) -> bool:
    """Whether a file or folder may remain from a run that ended before it wrote its configuration."""
    if path.name.endswith(UNFINISHED):
        return True
    if path.name == CHECKPOINTS and path.is_dir():
        return all(inner.name == BEGINNING or inner.name.endswith(UNFINISHED) for inner in path.iterdir())
    return path.name in (LOCK, GOAL, SAMPLES, PLUGINS)


_NAMED = 3
"""Runs of a sweep that a message names."""


def missing_run(directory: Path, *, goes_on: bool = False) -> DataError:
    """Return the error for a directory without a run, which says what the directory is instead.

    Args:
        directory: The directory.
        goes_on: Whether the run was to go on, as all of a sweep may.
    """
    remedy = "check the path, or make one: lw2g start (a model of photos), lw2g run (a run)"
    if not directory.is_dir():
        return DataError(no_folder(directory), remedy)
    where = repr(str(directory))
    entries = list(directory.iterdir())
    names = {path.name for path in entries}
    # signs are read from the most certain to the least: several may hold at once
    if names & {MANIFEST, WEIGHTS}:
        return DataError(
            f"{where} holds an exported model and no run",
            "give the run that it was taken from; a model of lw2g start has none",
        )
    if CELLS in names:
        return DataError(f"{where} holds the runs of a sweep", _way_from_sweep(directory, goes_on=goes_on))
    if entries and all(map(_is_beginning, entries)):
        if LOCK in names:  # a run that ends removes it; a killed one leaves it
            return DataError(
                f"the run at {where} is starting, or was killed as it started",
                f"wait for its first task, or start it again: lw2g run with --out {as_word(directory)}",
            )
        return DataError(
            f"the run at {where} ended before anything was learned",
            f"start it again: lw2g run with --out {as_word(directory)}",
        )
    if RECORD in names or CHECKPOINTS in names:
        return DataError(f"the run at {where} has lost its {CONFIG}", "put it back, or remove the directory")
    # not in all of a home or a disk, which somebody may name by mistake
    is_of_runs = any((path / name).is_file() for path in entries for name in (CONFIG, CELLS))
    if is_of_runs and (runs := _runs_below(directory)):
        way = f"give one of them: lw2g runs {as_word(directory)}"
        if len(runs) == 1:
            way = f"give that one: {as_word(runs[0])}"
        return DataError(f"{where} holds {counted(len(runs), 'run')}", way)
    return of_models(directory) or DataError(f"no model and no run at {where}", remedy)


def of_models(directory: Path) -> DataError | None:
    """Return the error for a folder that holds models and is none itself; None where it holds none."""
    models = [path for path in directory.iterdir() if (path / MANIFEST).is_file()]
    if not models:
        return None
    return DataError(f"{str(directory)!r} holds {counted(len(models), 'model')}", _way_to_model(models))


def _way_to_model(models: Sequence[Path]) -> str:
    """Return which models lie in a folder: the last one, where numbers tell it as in lw2g teach."""
    if all(path.name.isdecimal() for path in models):
        latest = max(models, key=lambda path: int(path.name))
        return f"the latest: {as_word(latest)}"
    return f"these are {_named(sorted(models))}"


def _way_from_sweep(sweep: Path, *, goes_on: bool) -> str:
    """Return what to give in place of a sweep's folder, or to do with it."""
    word = as_word(sweep)
    runs = _runs_below(sweep)
    if not runs or (goes_on and not _is_complete(sweep)):
        rest = f"go on with all: lw2g sweep retry {word}"
    else:
        rest = f"see all: lw2g report {word}, lw2g runs {word}"
    if not runs:
        return rest
    return f"give one of them ({_named(runs)}), or {rest}"


def runs_of_sweep(directory: Path) -> str:
    """Return some of the runs of a sweep, by which to ask for one; empty where the folder holds no sweep.

    >>> runs_of_sweep(Path("nowhere"))
    ''
    """
    return _named(_runs_below(directory)) if (directory / CELLS).is_file() else ""


def _named(runs: Sequence[Path]) -> str:
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return ", ".join(as_word(run) for run in runs[:_NAMED]) + more


def _runs_below(directory: Path) -> list[Path]:
    """Return the runs that `lw2g runs` lists of a directory, whole or damaged, by name."""
    runs = []
    for folder, below, files in os.walk(directory):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if CONFIG in files or RECORD in files:
            below.clear()  # everything in a run's directory belongs to it
            runs.append(Path(folder))
    return runs


def _is_complete(sweep: Path) -> bool:
    """Whether the records of all cells of a sweep can be read and have all tasks."""
    try:
        for cell in read_json(sweep / CELLS)["cells"]:
            record = read_json(sweep / cell["name"] / RECORD)
            if len(record["accuracy_matrix"]) != record["tasks"]:
                return False
    except (DataError, KeyError, TypeError):  # a list or record of another's making
        return False
    return True


def require_run(directory: Path, *, goes_on: bool = False) -> None:
    """Refuse a directory in which no run was begun.

    Args:
        directory: The directory.
        goes_on: As for :func:`missing_run`.

    Raises:
        DataError: It has no configuration.
    """
    if not (directory / CONFIG).exists():
        raise missing_run(directory, goes_on=goes_on)


def holds_model(directory: Path) -> bool:
    """Whether a folder plainly is a run or an exported model."""
    return any((directory / name).is_file() for name in (CONFIG, MANIFEST))
