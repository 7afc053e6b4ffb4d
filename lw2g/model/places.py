"""Where a new model is written: a folder that is kept for one process, and what killed processes left there.

Beside the folder ``MODEL`` stand, while it is made, ``.MODEL.<digits>.lw2g-part`` with its files and the lock
``.MODEL.lw2g-lock``. Both go when the model has its name. A killed process leaves them, and whoever makes the
next model in the same place removes them: the operating system has freed their lock.
"""

from __future__ import annotations

import errno
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from lw2g.config.directory import UNFINISHED, require_outside
from lw2g.disk.lock import BusyError, held_here, holder_of, locked
from lw2g.disk.sealed import sync, write_atomically
from lw2g.errors import ConfigError, DataError

__all__ = [
    "free_folder",
    "is_left_behind",
    "leave_unmade",
    "part_of",
    "require_free",
    "reserved",
    "write_folder",
]

_PART = re.compile(rf"\.(?P<name>.+)\.[0-9a-f]{{16}}{re.escape(UNFINISHED)}")
_LOCK = ".lw2g-lock"
_LOCK_NAME = re.compile(rf"\..+{re.escape(_LOCK)}")


def require_free(out: Path) -> None:
    """Refuse a folder that is in use.

    Raises:
        ConfigError: It is.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise ConfigError(f"{str(out)!r} is there already", "choose another folder")


def free_folder(directory: Path) -> Path:
    """Return the next free ``MODEL-2``, ``MODEL-3`` next to a model."""
    directory = Path(directory.absolute())
    stem = directory.name
    number = 2
    # after MODEL-2 comes MODEL-3, not MODEL-2-2; more digits are a date or the like, and part of the name
    if match := re.fullmatch(r"(.+)-(\d{1,6})", stem):
        stem = match[1]
        number = int(match[2]) + 1
    while _is_there(found := directory.with_name(f"{stem}-{number}")):
        number += 1
    return found


@contextmanager
def reserved(
    out: Path | None, model: Path | None = None, *, inputs: Sequence[Path | None] = ()
) -> Iterator[Path]:
    """Keep a folder for a new model within the block, and remove what killed processes left next to it.

    Args:
        out: The folder that the user has named; None for the next free one, which passes over those that
            other processes are making.
        model: The model that the free one is named after, which is read.
        inputs: What else is read; None for nothing.

    Yields:
        The folder, which is free.

    Raises:
        ConfigError: The named folder is in use, or lies in what is read.
        BusyError: Another process is making it.
        DataError: The file system has no locks.
    """
    with ExitStack() as stack:
        if out is not None:
            require_outside(out, model, *inputs)
            require_free(out)
            stack.enter_context(_kept(out))
            require_free(out)  # whoever held the lock may have made it
        else:
            out = _keep_next(stack, Path("model") if model is None else model)
        _remove_leftovers(out)
        yield out


def leave_unmade(folder: Path) -> None:
    """Remove what this process makes in a folder, and its locks, though threads may not be done with it.

    For a process that ends at once, and a folder in which no other one makes anything.
    """
    locks = [lock for lock in held_here() if lock.parent == folder and _LOCK_NAME.fullmatch(lock.name)]
    if not locks:
        return
    for part in folder.glob(f".*{UNFINISHED}"):
        shutil.rmtree(part, ignore_errors=True)
    for lock in locks:
        lock.unlink(missing_ok=True)


def is_left_behind(folder: Path) -> bool:
    """Whether a folder holds only what a killed process has left, which was making the first thing in it."""
    entries = [] if folder.is_symlink() or not folder.is_dir() else list(folder.iterdir())
    locks = [entry for entry in entries if _LOCK_NAME.fullmatch(entry.name)]
    parts = [entry for entry in entries if _PART.fullmatch(entry.name)]
    if not locks or len(locks) + len(parts) < len(entries):
        return False
    return all(holder_of(lock) is None for lock in locks)


def part_of(out: Path) -> Path:
    """Return where files are written before their folder gets its name; nobody can foresee the path."""
    return out.with_name(f".{out.name}.{secrets.token_hex(8)}{UNFINISHED}")


def write_folder(
    out: Path, files: Mapping[str, bytes], *, look: Callable[[Path], None] = lambda made: None
) -> None:
    """Write files into a new folder, which is either whole or not there.

    Args:
        out: The folder.
        files: Contents by name.
        look: Reads what was written before it gets its name, and raises where it cannot be used.

    Raises:
        ConfigError: The folder is in use.
    """
    require_free(out)
    # everything is written under a name that nobody looks for: the rename makes the folder, whole
    made = part_of(out)
    made.mkdir(parents=True)
    try:
        for name, content in files.items():
            write_atomically(made / name, content)
        look(made)
        made.rename(out)
    except BaseException as error:
        # whatever ends the writing, a Ctrl-C too: nothing half written stays
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            require_free(out)  # somebody has taken the name meanwhile: say so
        raise
    sync(out.parent)


def _keep_next(stack: ExitStack, model: Path) -> Path:
    """Keep the next free folder after a model until the stack ends, and return it."""
    out = free_folder(model)
    while True:
        with ExitStack() as own, suppress(BusyError):
            own.enter_context(_kept(out))
            if not _is_there(out):  # whoever held the lock may have made it
                stack.push(own.pop_all())  # the lock outlives this block
                return out
        out = free_folder(out)


@contextmanager
def _kept(out: Path) -> Iterator[None]:
    """Hold the lock of a folder within the block; folders above it are made, and stay if they are used.

    Raises:
        BusyError: Another process holds it.
    """
    above = [folder for folder in out.parents if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(_lock_of(out.parent, out.name)))
            except BusyError as error:
                raise BusyError(
                    f"{str(out)!r} is being made by {error}", "wait for it, or choose another folder"
                ) from error
            except OSError as error:  # of a lock that no user knows of
                raise OSError(error.errno, error.strerror, str(out)) from error
            yield
    finally:
        for folder in above:
            with suppress(OSError):  # not empty: the model lies there
                folder.rmdir()


def _remove_leftovers(out: Path) -> None:
    """Remove the unfinished folders next to a kept one that no living process makes."""
    for part in out.parent.glob(f".*{UNFINISHED}"):
        match = _PART.fullmatch(part.name)
        if match is None or part.is_symlink() or not part.is_dir():
            continue
        if match["name"] == out.name:  # this process holds its lock
            shutil.rmtree(part, ignore_errors=True)
            continue
        with suppress(DataError), locked(_lock_of(part.parent, match["name"])):
            shutil.rmtree(part, ignore_errors=True)


def _lock_of(folder: Path, name: str) -> Path:
    return folder / f".{name}{_LOCK}"


def _is_there(out: Path) -> bool:
    return out.exists() or out.is_symlink()
