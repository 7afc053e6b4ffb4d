"""Where a run is kept: the directory that was asked for, or a new one with a telling name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lw2g.config.model import ExperimentConfig
from lw2g.errors import ConfigError

__all__ = ["CONFIG", "GOAL", "LOCK", "PROGRESS", "RECORD", "RUNS", "STOP", "new_directory"]

RUNS = Path("runs")
"""Where runs go for which no directory is named."""
CONFIG, RECORD = "config.toml", "record.json"
"""The files in a run's directory that say what is run, and what it has found so far."""
GOAL = "goal.json"
"""The file in a run's directory that says after how many tasks it stops, if before the stream's end."""
LOCK = "lock"
"""The file in a run's directory that names its writer."""
STOP = "stop"
"""The file in a run's directory by which its writer is asked to stop where it can be gone on with."""
PROGRESS = "progress.json"
"""The file in a run's directory that says where it stands while it is being written."""


@contextmanager
def new_directory(config: ExperimentConfig, out: Path | None) -> Iterator[Path]:
    """Make the directory of a run; it is removed again where it stays empty because nothing was run.

    Args:
        config: Names the directory, ``runs/<benchmark>-<baseline>-<policy>-<n>``, where ``out`` is None.
        out: The directory itself.

    Raises:
        ConfigError: ``out`` is in use, or no directory can have that name.
    """
    if out is not None:
        _require_free(out)
    place = out or RUNS
    made = [folder for folder in (place, *place.parents) if not folder.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        if out is None:
            place = _numbered(f"{config.benchmark.name}-{config.baseline.name}-{config.policy.name}")
            made.insert(0, place)
        yield place
    except BaseException:
        with suppress(OSError):  # not empty: something worth keeping is in it
            for folder in made:
                with suppress(FileNotFoundError):
                    folder.rmdir()
        raise


def _numbered(stem: str) -> Path:
    for number in itertools.count(1):
        directory = RUNS / f"{stem}-{number}"
        with suppress(FileExistsError):  # making it is the test: two runs may start at once
            directory.mkdir()
            return directory
    raise AssertionError("unreachable")


def _require_free(directory: Path) -> None:
    if "\0" in str(directory):
        raise ConfigError(f"no path can be called {str(directory)!r}; leave the NUL character out")
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"{str(directory)!r} is no directory; choose another --out")
    if all(path.name in (LOCK, STOP) for path in directory.iterdir()):
        return
    if (directory / CONFIG).exists() or (directory / "seeds.json").exists():
        raise ConfigError(
            f"{str(directory)!r} holds a run already; go on with it by `lw2g resume {directory}`, or choose "
            "another --out"
        )
    raise ConfigError(f"{str(directory)!r} is not empty and holds no run; choose another --out")
