"""Jobs: one process of lw2g each, which begins the run of a cell or goes on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from lw2g.config.directory import CONFIG
from lw2g.training.files.lock import writer_of

__all__ = ["INTERRUPTED", "Attempt", "Job"]

INTERRUPTED = 130
"""The exit code of a run that was stopped and can be gone on with."""

_MARK = "$ lw2g "
_PAUSE = 0.2


@attrs.frozen(kw_only=True)
class Job:
    """What brings a cell to its end, however often it is tried: exact resume makes all tries one run.

    Attributes:
        name: The cell's.
        run: Its run directory; paths are absolute.
        config: Its configuration, with which it begins.
        log: File to which what its processes print is appended.
        folder: What relative paths of the configuration start from, where a machine has it.
    """

    name: str
    run: Path
    config: Path
    log: Path
    folder: Path = attrs.field(factory=Path.cwd)

    def arguments(self) -> tuple[str, ...]:
        """Return what follows ``lw2g``, as things stand now: ``resume`` where the run has begun."""
        if (self.run / CONFIG).exists():
            return ("resume", str(self.run))
        return ("run", str(self.config), "--out", str(self.run))

    def start(
        self, environment: Mapping[str, str | None] | None = None, *, tethered: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start its process, in a group of its own: Ctrl-C reaches whoever started it alone.

        Args:
            environment: Variables that it sees beside those of this process; None takes one away.
            tethered: Whether it is asked to stop as soon as the thread ends that started it.
        """
        arguments = self.arguments()
        entry = ("lw2g.sweep.tether", str(os.getpid())) if tethered else ("lw2g",)
        variables = os.environ | (environment or {})
        with self.log.open("ab") as log:
            log.write(f"{chr(10) if log.tell() else ''}{_MARK}{' '.join(arguments)}\n".encode())
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-m", *entry, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in variables.items() if value is not None},
                cwd=self.folder if self.folder.is_dir() else None,
                start_new_session=True,
            )

    def last_words(self) -> list[str]:
        """Return the lines that its last process has printed."""
        try:
            text = self.log.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return []
        _, _, said = f"\n{text}".rpartition(f"\n{_MARK}")
        return [line for line in said.splitlines()[1:] if line.strip()]


class Attempt:
    """One try at a job by a worker of a cluster, who may be told to make room at any time.

    Args:
        job: The job.
        environment: Variables that its process sees, as in :meth:`Job.start`.
    """

    def __init__(self, job: Job, environment: Mapping[str, str | None]) -> None:
        self.job, self.environment = job, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Wait until nobody writes the run, bring it on, and return the exit code, negative for a signal.

        A worker that was killed may leave a process behind that is still saving what it has learned.

        Args:
            meanwhile: Is called now and then while its process runs.
        """
        while writer_of(self.job.run) is not None and not self._stopped:
            time.sleep(_PAUSE)
        if self._stopped:
            return INTERRUPTED
        self._process = self.job.start(self.environment, tethered=True)
        while self._is_running():
            time.sleep(_PAUSE)
            meanwhile()
        return self._process.wait()

    def stop(self) -> None:
        """Ask it to stop where it can be gone on with, and wait for it; a signal's handler may call it."""
        self._stopped = True
        if self._process is not None and self._is_running():
            os.kill(self._process.pid, signal.SIGTERM)
            while self._is_running():
                time.sleep(_PAUSE)

    def _is_running(self) -> bool:
        """Look without reaping: what waits for a process holds a lock, also when it is interrupted."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self._process is not None and os.waitid(os.P_PID, self._process.pid, options) is None
