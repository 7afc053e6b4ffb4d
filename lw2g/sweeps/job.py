"""Jobs: the lw2g processes that bring a cell to its end, one at a time, on any machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from lw2g.config.directory import CONFIG, FAILED, LOCK, SETTLED, STALE
from lw2g.disk.lock import BusyError, locked, writer_of
from lw2g.errors import Interrupted

__all__ = ["BUSY", "INTERRUPTED", "Attempt", "Job"]

INTERRUPTED = Interrupted.exit_code
"""The exit code of a run that was stopped and can be resumed."""
BUSY = os.EX_TEMPFAIL
"""The exit code of an attempt that did nothing because another one is running."""

_MARK = "$ lw2g "
"""The beginning of the line that each attempt writes before its output."""
_PAUSE = 0.05
"""Seconds between two looks at a process: a signal waits no longer than that."""


@attrs.frozen(kw_only=True)
class Job:
    """The files and the process of a cell; thanks to exact resume all its attempts are one run.

    Attributes:
        name: The cell's name.
        sweep: The sweep's directory, absolute.
        folder: The folder that relative paths of the configuration start from, if the machine has it.
    """

    name: str
    sweep: Path
    folder: Path = attrs.field(factory=Path.cwd)

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.sweep / self.name

    @property
    def config(self) -> Path:
        """The configuration that the run starts from."""
        return self.sweep / "cells" / f"{self.name}.toml"

    @property
    def lock(self) -> Path:
        """The file that an attempt locks, from before its process starts until after it ended."""
        return self.sweep / "cells" / f"{self.name}.lock"

    @property
    def log(self) -> Path:
        """The file that collects the output of its processes."""
        return self.sweep / "logs" / f"{self.name}.log"

    @property
    def failure(self) -> Path:
        """The file that says why the cell failed; absent otherwise."""
        return self.sweep / FAILED / self.name

    @property
    def cancelled(self) -> Path:
        """The file whose presence stops the cell and keeps it from starting."""
        return self.sweep / "cancelled" / self.name

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of ``lw2g``: ``resume`` if the run has begun, else ``run``."""
        if (self.run / CONFIG).exists():
            return ("resume", str(self.run))
        # the cells settle a precision once: the configuration keeps what was asked, and so its hash
        settled = self.sweep / SETTLED
        return ("run", str(self.config), "--settled", str(settled), "--out", str(self.run))

    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the process; it receives SIGTERM when the thread that started it ends.

        It has its own process group, so that Ctrl-C reaches the sweep alone.

        Args:
            environment: Environment variables in addition to those of this process.
        """
        arguments = self.arguments()
        with self.log.open("ab") as log:
            if log.tell():  # of an earlier attempt, whose last line may lack its end
                log.write(b"\n")
            log.write(f"{_MARK}{' '.join(arguments)}\n".encode())
            log.flush()  # before the process writes to the same file
            return subprocess.Popen(
                [sys.executable, "-m", "lw2g.sweeps.tether", str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=self.folder if self.folder.is_dir() else None,
                start_new_session=True,
            )

    def last_words(self) -> list[str]:
        """Return the lines that the last process printed."""
        try:
            text = self.log.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return []
        _, _, lines = f"\n{text}".rpartition(f"\n{_MARK}")
        # the first is the rest of the mark's own line
        return [line for line in lines.splitlines()[1:] if line.strip()]

    def set_aside(self) -> Path:
        """Move the run into a hidden folder and return its new place."""
        place = self.sweep / STALE
        place.mkdir(exist_ok=True)
        earlier = sum(1 for _ in place.glob(f"{self.name}-*"))
        return self.run.rename(place / f"{self.name}-{earlier + 1}")


class Attempt:
    """One attempt at a job: it holds the cell's lock, starts the process, and waits for its end.

    Args:
        job: The job.
        environment: As for :meth:`Job.start`.
    """

    def __init__(self, job: Job, environment: dict[str, str]) -> None:
        self.job = job
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._num_requests = 0
        self._num_signals = 0

    def run(self) -> int:
        """Run the process and return its exit code, negative for a signal."""
        try:
            with locked(self.job.lock):
                return self._bring_on()
        except BusyError:
            return BUSY

    def ask(self) -> None:
        """Ask the process to stop where it can be resumed; a second call stops it at once."""
        self._num_requests += 1

    def stop(self) -> None:
        """Ask the process to stop and wait for its end; a signal handler may call this during :meth:`run`."""
        self._num_requests = max(self._num_requests, 1)
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError, ChildProcessError):
                self._pass_on()
                # leaves the exit code to the interrupted poll; Popen.wait would wait forever for its lock
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _bring_on(self) -> int:
        """Wait for an earlier process of this run, start one, and return its exit code."""
        try:
            # the process of a killed worker may still be saving its state
            while writer_of(self.job.run) is not None and not self._requests():
                time.sleep(_PAUSE)
            if self._requests():
                return INTERRUPTED
            self._clear()
            self._process = self.job.start(self.environment)
            while self._process.poll() is None:
                self._pass_on()
                time.sleep(_PAUSE)
            return self._process.returncode
        except KeyboardInterrupt:  # Ray stops a task this way
            self.stop()
            return INTERRUPTED

    def _requests(self) -> int:
        """Return how often the attempt was asked to stop; the file of another process counts once."""
        return self._num_requests or int(self.job.cancelled.exists())

    def _pass_on(self) -> None:
        """Send the process a signal for each request: the second one makes it stop at once."""
        if self._process is not None and self._num_signals < self._requests():
            self._num_signals += 1
            os.kill(self._process.pid, signal.SIGTERM)

    def _clear(self) -> None:
        """Set aside the remains of a run that ended before it wrote its configuration."""
        run = self.job.run
        if (run / CONFIG).exists() or not run.exists():
            return
        if any(path.name != LOCK for path in run.iterdir()):
            self.job.set_aside()
