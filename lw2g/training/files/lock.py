"""One writer per run directory: a lock that says who holds it, shows that its owner lives, and outlives none.

A lock is a file that names its owner, that the owner's system keeps locked, and whose time the owner renews:
its heartbeat. On one host the system's lock decides, which a dead process gives back by itself. Another host
may not see that lock, or see it held for ever after a power cut; there the heartbeat decides: an owner that
was silent for as long as it said it never would be (:data:`STALE_AFTER`) is dead, and its directory is free.

Hosts have clocks of their own, so none is compared with another: the file system dates heartbeats by *its*
clock (a file server's, where there is one), and whoever would take a directory over asks the same clock what
time it is, by making a file there. Who only looks (:func:`writer_of`) goes by its own clock: one that is
wrong by a minute may call a run dead that lives, or the other way round, but takes nothing over.

If an owner was taken for dead, for it was cut off or suspended, it finds a stranger's name in its lock at its
next heartbeat and ends at once. All it could have written meanwhile are whole files of the same content.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.directory import LOCK, STOP
from lw2g.errors import ConfigError, DataError
from lw2g.training.files.heartbeat import heartbeat

__all__ = ["STALE_AFTER", "VARIABLE", "Writer", "ask_to_stop", "in_turn", "one_writer", "writer_of"]

STALE_AFTER = 60.0
"""Seconds of silence after which a writer on another host counts as dead."""
VARIABLE = "LW2G_STALE_AFTER"
"""The environment variable by which a writer says that it is dead after another time of silence."""

_LONGEST_BEAT, _BEATS = 5.0, 12
_SETTLING = 0.5
_PAUSE = 0.02


@attrs.frozen(kw_only=True)
class Writer:
    """Who holds a lock.

    Attributes:
        pid: Its process; None where it has not said so yet.
        host: The machine.
        since: When it began.
        silent: Seconds since its last heartbeat.
        stale_after: Seconds of silence after which it is dead.
        here: Whether it is a process of this machine, since it was last started.
    """

    pid: int | None
    host: str
    since: str
    silent: float
    stale_after: float
    here: bool

    @property
    def alive(self) -> bool:
        """Whether it still writes, as far as can be seen."""
        return self.silent < self.stale_after and not (self.here and not _is_alive(self.pid))

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid} on host {self.host!r} since {self.since}"


class _BusyError(DataError):
    """Somebody else holds the lock."""


@attrs.frozen(kw_only=True, eq=False)
class _Held:
    """A lock that this process holds.

    Attributes:
        path: Its file.
        handle: That file, open and locked.
        content: What it says of its owner, like no other.
        before: What is known of an owner that ended without giving it back.
    """

    path: Path
    handle: int
    content: bytes
    before: str | None

    def is_ours(self) -> bool:
        """Whether nobody has taken it over."""
        try:
            return self.path.read_bytes() == self.content
        except FileNotFoundError:
            return False
        except OSError:  # a file server that is away for a moment
            return True

    def give_back(self) -> None:
        """Let others have it."""
        with suppress(OSError):
            if self.is_ours():
                self.path.unlink()
        os.close(self.handle)


@contextmanager
def one_writer(directory: Path, asked: Callable[[], None] | None = None) -> Iterator[str | None]:
    """Hold the lock of a run directory, which must exist, within the block.

    Args:
        directory: The directory.
        asked: Is called, from another thread, when somebody has asked by :func:`ask_to_stop`.

    Yields:
        What is known of an owner that ended without giving the lock back, else None.

    Raises:
        DataError: Another process writes there, or one of another host that is not silent for long enough.
    """
    held = _take(directory)
    stop = directory / STOP

    def beat() -> None:
        with suppress(OSError):
            os.utime(held.handle)
        if not held.is_ours():
            os.write(2, f"error: {str(directory)!r} was taken over by another process; ended\n".encode())
            os._exit(1)
        if asked is not None and stop.exists():
            stop.unlink(missing_ok=True)
            asked()

    try:
        stop.unlink(missing_ok=True)  # it was meant for somebody before
        with heartbeat(min(_LONGEST_BEAT, _stale_after() / _BEATS), beat):
            yield held.before
    finally:
        stop.unlink(missing_ok=True)
        held.give_back()


@contextmanager
def in_turn(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory for what takes a moment, and wait for others that do."""
    while True:
        try:
            held = _take(directory)
            break
        except _BusyError:
            time.sleep(_PAUSE)
    try:
        yield
    finally:
        held.give_back()


def writer_of(directory: Path) -> Writer | None:
    """Return who writes to a run directory, as far as can be seen without touching its lock, or None."""
    try:
        handle = os.open(directory / LOCK, os.O_RDONLY)  # a file that is opened shows its newest time
    except OSError:
        return None
    try:
        found = _writer(handle, time.time())
    finally:
        os.close(handle)
    return found if found.pid is not None and found.alive else None


def ask_to_stop(directory: Path) -> bool:
    """Ask the writer of a run directory to stop where it can be gone on with; return whether there is one."""
    if writer_of(directory) is None:
        return False
    (directory / STOP).touch()
    return True


def _take(directory: Path) -> _Held:
    """Take the lock of a directory."""
    path = directory / LOCK
    content = json.dumps(
        {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot": _boot(),
            "since": f"{datetime.now(UTC):%F %T} UTC",
            "stale_after": _stale_after(),
            "token": secrets.token_hex(8),
        }
    ).encode()
    handle, before, foreign = _acquire(path)
    os.ftruncate(handle, 0)
    os.pwrite(handle, content, 0)
    held = _Held(path=path, handle=handle, content=content, before=before)
    if foreign:  # others may be taking it over at the same moment: the last one has it
        time.sleep(_SETTLING)
        if not held.is_ours():
            os.close(handle)
            raise _busy(path)
    return held


def _acquire(path: Path) -> tuple[int, str | None, bool]:
    """Return the locked file, what it says of an owner that is gone, and whether that was another host's."""
    while True:
        handle, made = _opened(path)
        owner = _writer(handle, 0.0)
        ours = made or (owner.here and owner.pid is not None)
        locked = _locked(handle, owner)
        if not ours and not _is_dead(handle, path):
            os.close(handle)
            raise _busy(path, owner)
        if not locked:
            os.close(handle)
            if ours:
                raise _busy(path, owner)
            path.unlink(missing_ok=True)  # a file server keeps what a dead host has locked: begin a new file
            continue
        with suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle, None if made else str(owner), not ours
        os.close(handle)  # its owner removed it as it ended: lock the new one


def _opened(path: Path) -> tuple[int, bool]:
    """Return the file of a lock, and whether it was made just now."""
    while True:
        for flags in (os.O_CREAT | os.O_EXCL, 0):
            try:
                return os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o666), flags != 0
            except (FileExistsError, FileNotFoundError):
                if not path.parent.is_dir():
                    raise
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise DataError(f"{str(path)!r} is a link and no lock of lw2g; remove it") from error


def _is_dead(handle: int, path: Path) -> bool:
    """Whether an owner of another host was silent for too long, by the clock of the file system."""
    with tempfile.TemporaryFile(dir=path.parent) as now:
        found = _writer(handle, os.fstat(now.fileno()).st_mtime)
    return found.silent >= found.stale_after


def _locked(handle: int, owner: Writer) -> bool:
    """Take the lock; on file systems without locks believe what its owner's process says."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not (owner.here and _is_alive(owner.pid))
    return True


def _busy(path: Path, owner: Writer | None = None) -> _BusyError:
    remedy = "wait for it, or stop it first"
    if owner is not None and not owner.here:
        remedy += f"; without a sign of life its directory is free after {owner.stale_after:.0f} s"
    return _BusyError(f"{str(path.parent)!r} is being written by {owner or 'another process'}; {remedy}")


def _is_alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _writer(handle: int, now: float) -> Writer:
    """Return what a lock's file says of its owner."""
    try:
        found = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        found = {}
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    pid, stale_after = told.get("pid"), told.get("stale_after")
    return Writer(
        pid=pid if isinstance(pid, int) else None,
        host=str(told.get("host", "")),
        since=str(told.get("since", "")),
        silent=max(0.0, now - os.fstat(handle).st_mtime),
        stale_after=float(stale_after) if isinstance(stale_after, int | float) else STALE_AFTER,
        here=told.get("host") == socket.gethostname() and told.get("boot", _boot()) == _boot(),
    )


def _boot() -> str:
    """Return what tells this start of this machine from all others, empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _stale_after() -> float:
    told = os.environ.get(VARIABLE)
    try:
        found = STALE_AFTER if told is None else float(told)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ConfigError(f"{VARIABLE}: expected a number of seconds above 0 but got {told!r}")
    return found
