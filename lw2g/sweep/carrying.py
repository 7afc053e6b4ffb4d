"""Runs on machines that share no disk with a sweep: fetched first, and copied back while they are under way.

A run lies in a scratch directory of the machine that works on it. Every few seconds what has changed there
goes home, the lock with its heartbeat included, so that a sweep looks the same as if directories were shared.
What is at home is at any time what a run that had crashed a little earlier would have left: files of one
moment, written in the order in which they came to be. So it can be gone on with from there, whatever dies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from lw2g.config.directory import LOCK, PROGRESS, STOP
from lw2g.sweep.job import Job
from lw2g.training.files.sealed import LEFTOVER, write_atomically

__all__ = ["Home", "carried"]

_SECONDS = 3.0
_RESTLESS = {LOCK, PROGRESS}
"""Files that change all the time, and that nothing else depends on."""

Listing = dict[str, tuple[int, int]]


class Home:
    """Where runs belong: the sweep's own directory."""

    def fetch(self, job: Job) -> dict[str, bytes]:
        """Return the configuration of a cell, under an empty name, and the files of its run so far."""
        (job.run / STOP).unlink(missing_ok=True)  # it was meant for somebody before
        found = {name: (job.run / name).read_bytes() for name in _listing(job.run) if name not in _RESTLESS}
        return {"": job.config.read_bytes()} | found

    def bring(self, job: Job, files: Mapping[str, bytes], kept: frozenset[str], said: bytes) -> bool:
        """Take in what has changed of a run.

        Args:
            job: The job.
            files: Contents of changed files by their names, oldest first.
            kept: Names of all files; others are removed.
            said: What its process has printed since the last time.

        Returns:
            Whether the run is asked to stop.
        """
        for name, content in files.items():
            (job.run / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(job.run / name, content)
        for name in _listing(job.run).keys() - kept:
            (job.run / name).unlink(missing_ok=True)
        if LOCK in kept:
            os.utime(job.run / LOCK)
        with job.log.open("ab") as log:
            log.write(said)
        stop = job.run / STOP
        asked = stop.exists()
        stop.unlink(missing_ok=True)
        return asked


def carried(job: Job, home: Home, attempt: Callable[[Job, Callable[[], None]], int]) -> int:
    """Bring a run on in a scratch directory, and copy it back meanwhile and in the end.

    Args:
        job: The job at home.
        home: Its home.
        attempt: Brings a job on, which it is given, calling what it is given now and then.

    Returns:
        What ``attempt`` returns.
    """
    with TemporaryDirectory(prefix="lw2g-") as scratch:
        place = Path(scratch)
        away = attrs.evolve(job, run=place / job.run.name, config=place / "cell.toml", log=place / "log")
        carrier = _Carrier(job, away, home)
        code = attempt(away, carrier.now_and_then)
        carrier.go()
        return code


class _Carrier:
    """Carries what changes in a scratch directory home.

    Args:
        job: The job at home.
        away: The job here.
        home: Its home.
    """

    def __init__(self, job: Job, away: Job, home: Home) -> None:
        self._job, self._away, self._home = job, away, home
        for name, content in home.fetch(job).items():
            path = away.run / name if name else away.config
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._known = _listing(away.run)
        self._said, self._next = 0, 0.0

    def now_and_then(self) -> None:
        """Carry, if it is time."""
        if time.monotonic() >= self._next:
            self.go()
            self._next = time.monotonic() + _SECONDS

    def go(self) -> None:
        """Carry what has changed, unless it changes at this moment."""
        run, found = self._away.run, _listing(self._away.run)
        changed = sorted(
            (name for name in found if self._known.get(name) != found[name]), key=found.__getitem__
        )
        try:
            files = {name: (run / name).read_bytes() for name in changed}
        except FileNotFoundError:
            return
        if _calm(_listing(run)) != _calm(found):
            return
        said = self._away.log.read_bytes()[self._said :] if self._away.log.exists() else b""
        asked = self._home.bring(self._job, files, frozenset(found), said)
        self._known, self._said = found, self._said + len(said)
        if asked and run.exists():
            (run / STOP).touch()


def _listing(run: Path) -> Listing:
    """Return when the files of a run were last written, and how large they are."""
    found: Listing = {}
    for path in run.rglob("*"):
        if path.is_file() and path.name != STOP and not path.match(LEFTOVER):
            try:
                known = path.stat()
            except FileNotFoundError:
                continue
            found[str(path.relative_to(run))] = (known.st_mtime_ns, known.st_size)
    return found


def _calm(listing: Listing) -> Listing:
    return {name: when for name, when in listing.items() if name not in _RESTLESS}
