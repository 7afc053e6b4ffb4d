"""What an executor is: jobs are submitted, looked at, and asked to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import attrs
from attrs.validators import ge, optional

from lw2g.interfaces.options import option
from lw2g.sweep.job import Job

__all__ = ["Executor", "Options"]

H = TypeVar("H")


@attrs.frozen(kw_only=True)
class Options:
    """What all executors can be told."""

    jobs: int | None = option(None, "jobs at a time", validator=optional(ge(1)))
    threads: int | None = option(None, "cores of a job", validator=optional(ge(1)))
    gpus_per_job: float = option(0.0, "GPUs of a job; 0.5: two jobs share one", validator=ge(0))
    retries: int = option(0, "how often a job is gone on with that a signal has killed", validator=ge(0))

    def __attrs_post_init__(self) -> None:
        if self.gpus_per_job > 1 and self.gpus_per_job != int(self.gpus_per_job):
            raise ValueError(
                f"gpus_per_job: expected a share of one GPU, or whole ones, but got {self.gpus_per_job}"
            )

    @property
    def environment(self) -> dict[str, str | None]:
        """Variables of a job's process."""
        return {} if self.threads is None else {"OMP_NUM_THREADS": str(self.threads)}


class Executor(ABC, Generic[H]):
    """Runs jobs somewhere.

    Attributes:
        slots: How many may be submitted at a time, those included that wait where it runs them.
        pause: Seconds between two looks at them.
        retries: How often a job is submitted again that a signal has killed.
        settings: What it was made from, as :func:`lw2g.sweep.executors.load_executor` takes it.
    """

    slots: int
    pause: float = 0.4
    retries: int = 0
    settings: Mapping[str, Any] = {}

    @abstractmethod
    def submit(self, job: Job) -> H:
        """Begin a job and return what it is known by."""

    @abstractmethod
    def poll(self, handle: H) -> int | None:
        """Return the exit code of a job, negative for a signal; None while it waits or runs."""

    @abstractmethod
    def cancel(self, handle: H) -> None:
        """Ask a job to stop where it can be gone on with, or not to begin; once more: at once."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is submitted within the block may be handed on as one; handles are used after it."""
        yield

    def close(self) -> None:
        """Give back what it holds; no job is under way."""
