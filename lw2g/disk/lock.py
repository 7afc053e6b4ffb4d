"""One writer per run directory: a lock that the operating system holds for a process and frees when it dies.

The lock is ``flock``, over a network file system as far as that passes locks on: NFS 4 does, and its server
frees the locks of a host that died once their lease is over. The file says who holds the lock, for messages.

Our own, because ``filelock`` cannot say who holds a lock without taking it, needs a writable folder for that,
leaves its file, and takes a file that no kernel frees where a file system has no locks.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs

from lw2g.config.directory import LOCK
from lw2g.errors import DataError

__all__ = ["BusyError", "Writer", "held_here", "holder_of", "locked", "one_writer", "writer_of"]

_TRIES = 25
_PAUSE = 0.02
"""Seconds between two tries."""


@attrs.frozen(kw_only=True)
class Writer:
    """Who holds a lock.

    Attributes:
        pid: Its process; None where the file does not say so.
        host: The machine.
        since: When it took the lock.
    """

    pid: int | None = None
    host: str = ""
    since: str = ""

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid} on host {self.host!r} since {self.since}"


class BusyError(DataError):
    """Another process holds the lock."""


@contextmanager
def one_writer(
    place: Path, *, lock: Path | None = None, or_else: str = "stop it first"
) -> Iterator[Writer | None]:
    """Be the one writer of a run directory, which must exist, or of a file, within the block.

    Args:
        place: The directory or the file.
        lock: The lock's file; None for that of a run directory.
        or_else: What a user who meets another writer can do beside waiting.

    Yields:
        The writer before, if it ended without giving the lock back, else None.

    Raises:
        BusyError: Another process writes there.
        DataError: The file system has no locks, or a link stands in the lock's place.
    """
    try:
        with locked(lock or place / LOCK) as before:
            yield before
    except BusyError as error:
        raise BusyError(
            f"{str(place)!r} is being written by {error}", f"wait for it, or {or_else}"
        ) from error


def writer_of(directory: Path) -> Writer | None:
    """Return who writes a run directory, or None."""
    return holder_of(directory / LOCK)


@contextmanager
def locked(path: Path) -> Iterator[Writer | None]:
    """Hold the lock of a file within the block; the file is removed afterwards.

    Yields:
        As for :func:`one_writer`.

    Raises:
        BusyError: Another process holds it; the message says which.
        DataError: As for :func:`one_writer`.
    """
    handle = _locked(path)
    try:
        before = None
        if os.fstat(handle).st_size:  # whoever gives the lock back removes its file
            before = _owner(handle)
        _sign(handle)
        yield before
    finally:
        if handle in _held:  # not in a process that was forked within the block
            if _is_at(handle, path):
                path.unlink()
            del _held[handle]
            os.close(handle)


def holder_of(path: Path) -> Writer | None:
    """Return who holds the lock of a file, or None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(handle)
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(handle)
    return None


_held: dict[int, Path] = {}
"""The files that this process holds, by handle."""


def held_here() -> list[Path]:
    """Return the files of the locks that this process holds, whichever thread took them."""
    return [path for handle, path in list(_held.items()) if _is_at(handle, path)]


def _forget() -> None:
    """Close the locks of the process that this one was forked from: a copy would outlive it."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_forget)


def _locked(path: Path) -> int:
    """Return the file, open and locked."""
    owner = Writer()
    for _ in range(_TRIES):  # holder_of takes it for a moment, too
        handle = _opened(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(handle)
            os.close(handle)
            if not isinstance(error, BlockingIOError):
                raise DataError(
                    f"{str(path)!r} cannot be locked ({error.strerror}): two processes could write there",
                    "name a place on a file system that has locks",
                ) from error
            time.sleep(_PAUSE)
            continue
        if _is_at(handle, path):
            _held[handle] = path
            return handle
        os.close(handle)  # its owner removed it in the meantime: lock the new one
    raise BusyError(str(owner))


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DataError(f"{str(path)!r} is a link and no lock of lw2g", "remove it") from error


def _is_at(handle: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now(UTC):%F %T} UTC"}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(holder).encode(), 0)


def _owner(handle: int) -> Writer:
    """Return what a lock's file says of its owner."""
    try:
        holder = json.loads(os.pread(handle, 4096, 0))  # no more: `_sign` writes less than 400 bytes
    except (ValueError, RecursionError):
        holder = None
    match holder:
        case {"pid": int(pid), "host": str(host), "since": str(since)}:
            return Writer(pid=pid, host=host, since=since)
    return Writer()
