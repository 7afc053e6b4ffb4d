"""One writer per run directory: a lock that says who holds it, and that a dead owner gives back by itself."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lw2g.config.directory import LOCK
from lw2g.errors import DataError

__all__ = ["one_writer", "writer_of"]


@contextmanager
def one_writer(directory: Path) -> Iterator[str | None]:
    """Hold the lock of a run directory, which must exist, within the block.

    The operating system frees the lock of a process that has ended, so that a run that was killed can be
    gone on with; what such a process left behind is said.

    Yields:
        What is known of an owner that ended without giving the lock back, else None.

    Raises:
        DataError: Another process writes there, or a process of another host may do so.
    """
    path = directory / LOCK
    handle, before = _acquire(path)
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now(UTC):%F %T} UTC"}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(owner).encode(), 0)
        yield before
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def writer_of(directory: Path) -> str | None:
    """Return who writes to a run directory, as far as can be seen without touching its lock; None for nobody.

    A process of another host is taken to be alive.
    """
    try:
        owner = json.loads((directory / LOCK).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(owner, dict):
        return None
    here = owner.get("host") == socket.gethostname()
    return None if here and not _is_alive(owner.get("pid")) else _text(owner)


def _acquire(path: Path) -> tuple[int, str | None]:
    """Return the locked file and what it says of an owner that is gone."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise DataError(f"{str(path)!r} is a link and no lock of lw2g; remove it") from error
        owner = _owner(handle)
        if not _locked(handle, owner):
            os.close(handle)
            raise DataError(
                f"{str(path.parent)!r} is being written by {_text(owner)}; wait for it, or stop it first"
            )
        if owner and owner.get("host") != socket.gethostname():
            os.close(handle)
            raise DataError(
                f"{str(path.parent)!r} was being written by {_text(owner)}; if that process has ended, "
                f"remove {str(path)!r} and go on"
            )
        with suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == path.stat().st_ino:
                return handle, _text(owner) if owner else None
        os.close(handle)  # its owner removed it as it ended: lock the new one


def _locked(handle: int, owner: dict[str, Any]) -> bool:
    """Take the lock; on file systems without locks believe what its owner's process says."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not (owner.get("host") == socket.gethostname() and _is_alive(owner.get("pid")))
    return True


def _is_alive(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, TypeError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _owner(handle: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    return f"process {owner.get('pid')} on host {owner.get('host')!r} since {owner.get('since')}"
