"""The entry points of installed packages."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoints

__all__ = ["entry_points"]


def entry_points(*, group: str) -> EntryPoints:
    """Return those of a group; files of all packages are read again only after something was installed.

    That it was, importlib sees in the same way: in when the folders of packages were changed.
    """
    return _read(group, tuple((place, _changed(place)) for place in sys.path))


@lru_cache(maxsize=8)
def _read(group: str, places: tuple[tuple[str, int | None], ...]) -> EntryPoints:
    return importlib.metadata.entry_points(group=group)


def _changed(place: str) -> int | None:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:  # there is no such place, so far
        return None
