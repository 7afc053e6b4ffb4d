"""Executors: where the attempts of a sweep run. Each starts ``lw2g run`` or ``resume``, and nothing else."""

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
from lw2g.sweep.job import Job

__all__ = ["EXECUTORS", "Executor", "Future", "Options", "load_executor"]

EXECUTORS = {"local": "", "ray": "sweep", "slurm": "slurm"}
"""The executors by their names, with the extra of lw2g that brings what each needs."""


@attrs.frozen(kw_only=True)
class Options:
    """What all executors can be told."""

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
    """A submitted job, as ``concurrent.futures``, Ray and submitit have it."""

    def done(self) -> bool:
        """Whether it ended, or never will begin."""

    def result(self) -> int:
        """Return its exit code, negative for a signal; raise what kept it from having one."""


class Executor(ABC):
    """Runs attempts at jobs somewhere.

    Attributes:
        slots: How many may be submitted at a time, those included that wait where it runs them.
        pause: Seconds between two looks at them.
        retries: How often a job is submitted again that a signal has killed.
        settings: What it was made from, as :func:`load_executor` takes it.
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
        """Ask a job to stop where it can be resumed, or not to begin; once more: at once."""

    def close(self) -> None:
        """Give back what it holds; no job is under way."""


def load_executor(settings: Mapping[str, Any], directory: Path) -> Executor:
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
    made: Executor = module.EXECUTOR(options, directory)
    made.settings = dict(settings)
    return made
