"""Where a run is kept: the directory that was asked for, or a new one with a telling name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lw2g.config.model import ExperimentConfig
from lw2g.errors import ConfigError, Lw2gError

__all__ = ["RUNS", "new_directory"]

RUNS = Path("runs")
"""Where runs go for which no directory is named."""


@contextmanager
def new_directory(config: ExperimentConfig, out: Path | None) -> Iterator[Path]:
    """Make the directory of a run; one that stays empty because the run is refused is removed again.

    Args:
        config: Names the directory, ``runs/<benchmark>-<baseline>-<policy>-<n>``, where ``out`` is None.
        out: The directory itself.

    Raises:
        ConfigError: ``out`` is in use.
    """
    if out is None:
        directory = _numbered(f"{config.benchmark.name}-{config.baseline.name}-{config.policy.name}")
    else:
        directory = out
        _require_free(directory)
        directory.mkdir(parents=True, exist_ok=True)
    try:
        yield directory
    except Lw2gError:
        with suppress(OSError):  # not empty: something worth keeping is in it
            directory.rmdir()
        raise


def _numbered(stem: str) -> Path:
    RUNS.mkdir(exist_ok=True)
    for number in itertools.count(1):
        directory = RUNS / f"{stem}-{number}"
        with suppress(FileExistsError):  # making it is the test: two runs may start at once
            directory.mkdir()
            return directory
    raise AssertionError("unreachable")


def _require_free(directory: Path) -> None:
    if directory.is_file():
        raise ConfigError(f"{str(directory)!r} is a file; choose another --out")
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if (directory / "config.toml").exists() or (directory / "seeds.json").exists():
        raise ConfigError(
            f"{str(directory)!r} holds a run already; go on with it by `lw2g resume {directory}`, or choose "
            "another --out"
        )
    raise ConfigError(f"{str(directory)!r} is not empty and holds no run; choose another --out")
