"""Downloads files over ``urllib``, checks their checksums, and continues interrupted downloads.

A file under its own name is complete; until then it is called ``NAME.part``.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from lw2g.errors import DataError
from lw2g.interfaces.dataset import RemoteFile

__all__ = ["Report", "checksum_of", "download", "matches", "need_room"]

Report: TypeAlias = Callable[[str, int, int | None], None]
"""Receives progress: the name of a step, the bytes done, and their total if known."""

_BLOCK = 1 << 20
_TIMEOUT = 30.0
_ATTEMPTS = 5
_UNSATISFIABLE = 416


def checksum_of(path: Path, algorithm: str) -> str:
    """Return the checksum of a file, ``"md5:..."`` or ``"sha256:..."``."""
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has a checksum."""
    return checksum_of(path, checksum.partition(":")[0]) == checksum


def need_room(folder: Path, size: int) -> None:
    """Check that a folder's disk has room for ``size`` bytes.

    Raises:
        DataError: It has less.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"no room in {str(folder)!r}: {size / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free",
            "make room, or name another place with --root",
        )


def download(file: RemoteFile, folder: Path, report: Report) -> Path:
    """Fetch a file into a folder, unless it is there already.

    Args:
        file: The file. Without a checksum an interrupted download starts again, since nothing would show
            whether both parts belong together.
        folder: The folder; created if missing.
        report: Receives the progress.

    Raises:
        DataError: The download fails, ends early or has another checksum, or the disk is full. The part that
            arrived stays, unless its checksum is wrong.
    """
    if urlsplit(file.url).scheme not in ("http", "https"):
        raise DataError(
            f"address {file.url!r} is neither http nor https", "save the file and name it with --from"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file.name
    part = folder / f"{file.name}.part"
    if path.is_file():
        if file.checksum is not None and not matches(path, file.checksum):
            raise DataError(
                f"{str(path)!r} does not match {file.checksum}", "move it away and run the command again"
            )
        return path
    if file.checksum is None:
        part.unlink(missing_ok=True)
    for attempt in range(_ATTEMPTS):
        size_before = part.stat().st_size if part.exists() else 0
        total = _fetch(file, part, report)
        size = part.stat().st_size
        if total is None or size >= total:
            break
        # a connection that breaks is tried again as long as something arrives
        if size <= size_before or attempt == _ATTEMPTS - 1:
            raise DataError(
                f"{file.url} ended after {size} of {total} bytes",
                "run the command again, it continues from there",
            )
    if file.checksum is not None and not matches(part, file.checksum):
        actual = checksum_of(part, file.checksum.partition(":")[0])
        part.unlink()
        raise DataError(
            f"{file.url} is not the published file: expected {file.checksum} but got {actual}",
            "it was deleted, try again or another source with --from",
        )
    return part.replace(path)


def _fetch(file: RemoteFile, part: Path, report: Report) -> int | None:
    """Append the missing part of a file; return the total size if the host gives it."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"User-Agent": "lw2g"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            if answer.status != 206:  # no partial content: the host sends the whole file
                start = 0
            total = None
            length = answer.headers.get("Content-Length")
            if length is not None:
                total = start + int(length)
                need_room(part.parent, int(length))
            with part.open("ab" if start else "wb") as out:
                _copy(answer, out, file.name, start, total, report)
            return total
    except HTTPError as error:
        error.close()
        if error.code == _UNSATISFIABLE and start:  # nothing is missing; the checksum decides
            return None
        raise DataError(
            f"{file.url} answers {error.code} ({error.reason})", "try another source with --from"
        ) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        raise DataError(
            f"cannot fetch {file.url} ({error})", "run the command again, it continues from there"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataError(
            f"no room left in {str(part.parent)!r}",
            "make room and run the command again, it continues from there",
        ) from error


def _copy(answer: Any, out: Any, name: str, start: int, total: int | None, report: Report) -> None:
    done = start
    while block := answer.read(_BLOCK):
        out.write(block)
        done += len(block)
        report(name, done, total)
