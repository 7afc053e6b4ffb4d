"""Executors: where the processes of cells run. Each runs one command of lw2g and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol, TypeVar

import attrs

__all__ = ["Executor", "Job", "LocalExecutor"]

H = TypeVar("H")


@attrs.frozen(kw_only=True)
class Job:
    """A command of lw2g.

    Attributes:
        name: What it is for.
        arguments: After ``lw2g``, such as ``("resume", "runs/x")``.
        log: File to which what it prints is appended.
    """

    name: str
    arguments: tuple[str, ...]
    log: Path


class Executor(Protocol[H]):
    """Runs jobs; other machines need another one."""

    @property
    def slots(self) -> int:
        """How many jobs it runs at a time."""

    def submit(self, job: Job) -> H:
        """Begin a job and return what it is known by."""

    def poll(self, handle: H) -> int | None:
        """Return the exit code of a job, negative for a signal; None while it runs."""

    def cancel(self, handle: H) -> None:
        """Ask a job to stop where it can be gone on with; once more: at once."""


class LocalExecutor:
    """Processes of this machine, which share its cores.

    Args:
        jobs: How many run at a time.
    """

    def __init__(self, jobs: int = 1) -> None:
        self._jobs = jobs
        threads = max(1, _cores() // jobs)
        self._environment = {"OMP_NUM_THREADS": str(threads), **os.environ}

    @property
    def slots(self) -> int:
        """How many processes run at a time."""
        return self._jobs

    def submit(self, job: Job) -> subprocess.Popen[bytes]:
        """Start a process, in a group of its own: Ctrl-C reaches the sweep alone, which passes it on once."""
        with job.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "lw2g", *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def poll(self, handle: subprocess.Popen[bytes]) -> int | None:
        """Return the exit code, None while the process runs."""
        return handle.poll()

    def cancel(self, handle: subprocess.Popen[bytes]) -> None:
        """Send the signal on which a run saves what it has learned and stops."""
        handle.send_signal(signal.SIGTERM)


def _cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
