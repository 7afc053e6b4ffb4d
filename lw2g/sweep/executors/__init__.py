"""Executors: where the processes of a sweep run. Each starts ``lw2g run`` or ``resume``, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from lw2g.config.structure import structure
from lw2g.errors import ConfigError, nearest
from lw2g.sweep.executors.base import Executor, Options

__all__ = ["EXECUTORS", "Executor", "Options", "load_executor"]

EXECUTORS = {"local": "", "ray": "sweep", "slurm": "slurm"}
"""The executors by their names, with the extra of lw2g that brings what each needs."""


def load_executor(settings: Mapping[str, Any], directory: Path) -> Executor[Any]:
    """Return the executor that a table of settings describes.

    Args:
        settings: Its name under ``name`` (``local`` where there is none), and options.
        directory: The sweep's, which need not exist yet.

    Raises:
        ConfigError: There is no such executor or option, what it needs is not installed, or nothing it could
            run on is there.
    """
    name = settings.get("name", "local")
    if name not in EXECUTORS:
        raise ConfigError(
            f"executor: no such executor {name!r}{nearest(str(name), EXECUTORS)}; there are "
            f"{', '.join(EXECUTORS)}"
        )
    try:
        module = import_module(f"lw2g.sweep.executors.{name}")
    except ImportError as error:
        raise ConfigError(
            f"executor {name!r}: {error}; pip install 'lw2g[{EXECUTORS[name]}]' on every machine"
        ) from error
    given = {key: value for key, value in settings.items() if key != "name"}
    options, problems = structure(module.OPTIONS, given)
    if options is None:
        raise ConfigError("; ".join(f"executor.{key}: {text}" for key, text in problems))
    made: Executor[Any] = module.EXECUTOR(options, directory)
    made.settings = dict(settings)
    return made
