"""What a download leaves in place of a file: a pointer of Git LFS, or a web page."""

from __future__ import annotations

from pathlib import Path

from lw2g.errors import DataError

__all__ = ["require_content"]

_POINTER = b"version https://git-lfs.github.com/spec/"
_PAGES = (b"<!doctype html", b"<html")


def require_content(path: Path) -> None:
    """Refuse what stands where a file of weights should be.

    Raises:
        DataError: It is a pointer or a page.
    """
    with path.open("rb") as file:
        head = file.read(len(_POINTER))
    if head == _POINTER:
        raise DataError(
            f"{str(path)!r} is a pointer of Git LFS and not the file itself",
            "fetch it: git lfs pull, in the folder of its repository",
        )
    if head.lstrip().lower().startswith(_PAGES):
        raise DataError(
            f"{str(path)!r} is a web page and not the file itself", "download the file that the page offers"
        )
