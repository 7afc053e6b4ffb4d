"""How names and paths are written: names in one Unicode form, paths with ``~`` as the home folder."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

__all__ = ["composed", "composed_list", "composed_names", "expanded", "path_order"]


def composed(name: str) -> str:
    """Return a name in Unicode's composed form (NFC), in which names are compared.

    A Mac's file systems and archives decompose names: ``é`` becomes ``e`` and an accent, and looks the same.

    >>> composed("cafe\\u0301") == "caf\\u00e9"
    True
    """
    # what is ASCII has one form; most names are, and a data set has a million
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def composed_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in the form in which they are compared (:func:`composed`)."""
    return tuple(map(composed, names))


def composed_list(names: Iterable[str]) -> list[str]:
    """Return names as :func:`composed_names` does, where a file has them as a list."""
    return list(map(composed, names))


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of ``~``; without such a home it stays as it is.

    >>> expanded("photos/~")
    PosixPath('photos/~')
    """
    return Path(os.path.expanduser(path))


def path_order(path: Path) -> tuple[str, ...]:
    """Return by what paths are sorted: as paths are, whichever form their names have on this disk."""
    return tuple(map(composed, path.parts))
