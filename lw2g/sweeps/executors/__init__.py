"""Executors run the attempts of a sweep. Each attempt is one ``lw2g run`` or ``lw2g resume``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import attrs
from attrs.validators import ge, optional

from lw2g.config.structure import structure
from lw2g.errors import ConfigError, nearest
from lw2g.interfaces.options import option
from lw2g.sweeps import EXECUTORS
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.job import Job
from lw2g.sweeps.needs import Need

__all__ = [
    "Executor",
    "Future",
    "Options",
    "executor_name",
    "load_executor",
    "merged_settings",
    "need_of_executor",
]


@attrs.frozen(kw_only=True)
class Options:
    """The options of all executors."""

    jobs: int | None = option(None, "jobs at a time", validator=optional(ge(1)))
    threads: int | None = option(None, "cores of a job", validator=optional(ge(1)))
    gpus_per_job: float = option(0.0, "GPUs of a job; 0.5: two jobs share one", validator=ge(0))
    retries: int = option(0, "how often a job is resumed that a signal has killed", validator=ge(0))

    def __attrs_post_init__(self) -> None:
        if self.gpus_per_job > 1 and self.gpus_per_job != int(self.gpus_per_job):
            raise ValueError(
                f"gpus_per_job: expected a share of one GPU, or whole ones, but got {self.gpus_per_job}"
            )


class Future(Protocol):
    """A submitted job, as ``concurrent.futures``, Ray and submitit represent it."""

    def done(self) -> bool:
        """Whether the job ended, or will never start."""

    def result(self) -> int:
        """Return the exit code, negative for a signal; raise if the job has none."""


class Executor(ABC):
    """Runs attempts at jobs.

    Attributes:
        slots: Jobs that may be submitted at a time, including those waiting in the executor's own queue.
        pause: Seconds between two looks at the jobs.
        retries: How often a job killed by a signal is submitted again.
        settings: The settings that :func:`load_executor` made it from.
    """

    slots: int
    pause: float = 0.4
    retries: int = 0
    settings: Mapping[str, Any] = {}

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> Sequence[Future]:
        """Submit an attempt at each job."""

    @abstractmethod
    def cancel(self, job: Job, future: Any) -> None:
        """Ask a job to stop where it can be resumed, or not to start; a second call stops it at once."""

    def require_room(self, cells: Sequence[Cell]) -> None:
        """Refuse cells whose processes (``run.devices``) do not fit; by default the cluster decides.

        Raises:
            ConfigError: Those that run at a time do not fit.
        """

    def close(self) -> None:
        """Release resources; no job is running."""


def merged_settings(
    before: Mapping[str, Any], given: Mapping[str, Any], special: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an executor's settings: those of a grid or sweep, and what overrides them.

    Args:
        before: The settings of the grid or sweep.
        given: ``executor``, ``jobs``, ``threads`` and ``gpus_per_job``; None for those that stay.
        special: Further options of the executor.
    """
    name_before = before.get("name", next(iter(EXECUTORS)))  # by default the first: this machine
    name = given["executor"] or name_before
    settings: dict[str, Any] = {}
    if name == name_before:  # another executor has other options
        settings |= before
    settings["name"] = name
    for key in ("jobs", "threads", "gpus_per_job"):
        if given[key] is not None:
            settings[key] = given[key]
    settings.update(special)
    return settings


def load_executor(settings: Mapping[str, Any], directory: Path) -> Executor:
    """Return the executor that a table of settings describes.

    Args:
        settings: The executor's ``name`` (default ``local``) and its options.
        directory: The sweep's directory, which need not exist yet.

    Raises:
        ConfigError: The executor or an option is unknown, its package is not installed, or it has no machine
            to run on.
    """
    name = executor_name(settings)
    try:
        module = import_module(f"lw2g.sweeps.executors.{name}")
    except ImportError as error:
        raise ConfigError(f"executor {name!r}: {error}", _how_to_install(name)) from error
    table = dict(settings)
    table.pop("name", None)
    options, problems = structure(module.OPTIONS, table)
    if options is None:
        texts = [f"executor.{key}: {text}" for key, text in problems]
        raise ConfigError("; ".join(texts))
    executor: Executor = module.EXECUTOR(options, directory)
    executor.settings = dict(settings)
    return executor


def executor_name(settings: Mapping[str, Any]) -> str:
    """Return which executor a table of settings names.

    Raises:
        ConfigError: There is none of this name.
    """
    name = str(settings.get("name", "local"))
    if name not in EXECUTORS:
        raise ConfigError(
            f"executor: no such executor {name!r}{nearest(name, EXECUTORS)}",
            f"choose one of {', '.join(EXECUTORS)}",
        )
    return name


def need_of_executor(settings: Mapping[str, Any]) -> Need | None:
    """Return the package that an executor needs; None for this machine, which needs none.

    Raises:
        ConfigError: There is no such executor.
    """
    name = executor_name(settings)
    if not EXECUTORS[name]:
        return None
    here = True
    try:
        import_module(f"lw2g.sweeps.executors.{name}")
    except ImportError:
        here = False
    return Need(what=f"executor {name}", here=here, remedy="" if here else _how_to_install(name))


def _how_to_install(name: str) -> str:
    return f"pip install 'lw2g[{EXECUTORS[name]}]' on every machine"
