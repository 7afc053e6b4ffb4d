"""Sizes and times of files: whether a file is still what it was when it was first read."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

__all__ = ["Stamp", "stamp_of"]

Stamp: TypeAlias = tuple[int, int]
"""A file's bytes, and when it was last written, in nanoseconds."""


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file; one that no file has where it is gone."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns
