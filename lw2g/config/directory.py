"""The directory of a run: the one the user names, or a new one named after its components."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.model import ExperimentConfig
from lw2g.errors import ConfigError, DataError

__all__ = [
    "CELLS",
    "CONFIG",
    "EXPERIMENT",
    "GOAL",
    "LEARNED",
    "LOCK",
    "MANIFEST",
    "PROGRESS",
    "RECORD",
    "RUNS",
    "SEEDS",
    "SETTLED",
    "SUMMARY",
    "UNFINISHED",
    "WEIGHTS",
    "missing_run",
    "new_directory",
    "require_run",
]

RUNS = Path("runs")
"""The default folder of runs."""
CONFIG = "config.toml"
"""A run's configuration."""
RECORD = "record.json"
"""Its results so far."""
GOAL = "goal.json"
"""The number of tasks after which a run stops, if before the stream's end."""
LOCK = "lock"
"""The file that names a run's writer."""
CELLS = "sweep.json"
"""The list of a sweep's cells, beside their runs."""
PROGRESS = "progress.json"
"""The progress of a running run."""
EXPERIMENT = "experiment.toml"
"""The configuration of a directory of several seeds."""
SEEDS = "seeds.json"
"""Its seeds."""
SUMMARY = "summary.json"
"""Its results."""
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
    config: ExperimentConfig, out: Path | None, *, inputs: Sequence[Path] = ()
) -> Iterator[Path]:
    """Make the directory of a run, and remove it after an error that left it empty.

    Args:
        config: Names the directory, ``runs/<benchmark>-<baseline>-<policy>-<n>``, if ``out`` is None.
        out: The directory itself.
        inputs: What the run reads beside its data.

    Raises:
        ConfigError: ``out`` is in use, lies in what is read, or is not a valid path.
    """
    if out is not None:
        _require_free(out)
        require_outside(out, *_folders_of(config.benchmark.config), *inputs)
    place = out or RUNS
    # the innermost first, in which order they can be removed
    new = [folder for folder in (place, *place.parents) if not folder.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        if out is None:
            # after the mkdir above: the numbered folder must be the last one made, and the first removed
            place = _numbered(f"{config.benchmark.name}-{config.baseline.name}-{config.policy.name}")
            new.insert(0, place)
        yield place
    except BaseException:
        with suppress(OSError):  # not empty
            for folder in new:
                with suppress(FileNotFoundError):
                    folder.rmdir()
        raise


def require_outside(out: Path, *inputs: Path | None) -> None:
    """Refuse an output inside a folder that is read: the next reader would take it for a part of that.

    Args:
        out: Where something is to be written.
        inputs: What is read; None and files hold nothing.

    Raises:
        ConfigError: It lies in one of them.
    """
    place = out.absolute().resolve()
    for one in inputs:
        if one is not None and one.is_dir() and place.is_relative_to(one.resolve()):
            raise ConfigError(
                f"{str(out)!r} lies in {str(one)!r}, which is read", "choose a folder outside of it"
            )


def _folders_of(options: Any) -> Iterator[Path]:
    """Yield the paths among the options of a component."""
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
    if "\0" in str(directory):
        raise ConfigError(f"no path can be called {str(directory)!r}", "leave the NUL character out")
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"{str(directory)!r} is no directory", "choose another --out")
    names = {path.name for path in directory.iterdir()}
    if all(map(_is_beginning, names)):
        return
    if names & {CONFIG, SEEDS}:
        raise ConfigError(
            f"{str(directory)!r} holds a run already",
            f"resume it with `lw2g resume {directory}`, or choose another --out",
        )
    raise ConfigError(f"{str(directory)!r} is not empty and holds no run", "choose another --out")


def _is_beginning(name: str) -> bool:
    """Whether a file may remain from a run that ended before it wrote its configuration."""
    return name in (LOCK, GOAL, EXPERIMENT) or name.endswith(UNFINISHED)


def missing_run(directory: Path) -> DataError:
    """Return the error for a directory without a run, which says what the directory is instead."""
    where = repr(str(directory))
    names = set[str]()
    if directory.is_dir():
        names = {path.name for path in directory.iterdir()}
    # from the most certain to the least: several may hold at once
    if names & {MANIFEST, WEIGHTS}:
        return DataError(f"{where} holds an exported model and no run", "give the run that it was taken from")
    if SEEDS in names:
        return DataError(f"{where} holds the runs of several seeds", f"give one of them: {directory}/seed-N")
    if names and all(map(_is_beginning, names)):
        return DataError(
            f"the run at {where} ended before anything was learned",
            f"start it again: lw2g run with --out {directory}",
        )
    if RECORD in names or "checkpoints" in names:
        return DataError(f"the run at {where} has lost its {CONFIG}", "put it back, or remove the directory")
    return DataError(f"no run at {where}: it has no {CONFIG}", "check the path, or start one with lw2g run")


def require_run(directory: Path) -> None:
    """Refuse a directory in which no run was begun.

    Raises:
        DataError: It has no configuration.
    """
    if not (directory / CONFIG).exists():
        raise missing_run(directory)
