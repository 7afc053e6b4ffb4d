"""Files from the net: with a checksum, resumed where they stopped.

No well-kept library in reach goes on with a broken download from any host, so this is our own, over
``urllib``. A file under its own name is whole; until then it is ``NAME.part``.
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
"""Takes what is being done, the bytes that are, and of how many, if known."""

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
    """Make sure that a folder's disk has room.

    Raises:
        DataError: If it has not.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"no room in {str(folder)!r}: {size / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free; make "
            "room, or name another place with --root"
        )


def download(file: RemoteFile, folder: Path, report: Report) -> Path:
    """Fetch a file into a folder; what is there already and whole is not fetched again.

    Args:
        file: What to fetch. Without a checksum an interrupted download starts from its beginning, since
            nothing would tell whether both parts belong together.
        folder: Where to; made where it is missing.
        report: Is told of the progress.

    Raises:
        DataError: If it cannot be had, ends early, has another checksum, or there is no room. What has
            arrived stays, but for a file of another checksum.
    """
    if urlsplit(file.url).scheme not in ("http", "https"):
        raise DataError(
            f"address {file.url!r} is not of http or https; save the file and name it with --from"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / file.name, folder / f"{file.name}.part"
    if path.is_file():
        if file.checksum is not None and not matches(path, file.checksum):
            raise DataError(f"{str(path)!r} is not {file.checksum}; move it away, and it is fetched anew")
        return path
    if file.checksum is None:
        part.unlink(missing_ok=True)
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        total = _fetch(file, part, report)
        size = part.stat().st_size
        if total is None or size >= total:
            break
        if size <= before or attempt == _ATTEMPTS - 1:
            raise DataError(
                f"{file.url} ended after {size} of {total} bytes; run the command again, it goes on "
                "from there"
            )
    if file.checksum is not None and not matches(part, file.checksum):
        found = checksum_of(part, file.checksum.partition(":")[0])
        part.unlink()
        raise DataError(
            f"{file.url} is not the published file: expected {file.checksum} but got {found}; it was "
            "deleted, try again or another source with --from"
        )
    return part.replace(path)


def _fetch(file: RemoteFile, part: Path, report: Report) -> int | None:
    """Append what is missing of a file; return its whole size, if the host says so."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"User-Agent": "lw2g"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            if answer.status != 206:  # the whole file, whatever was asked for
                start = 0
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length is not None else None
            need_room(part.parent, total - start if total is not None else 0)
            with part.open("ab" if start else "wb") as out:
                _copy(answer, out, file.name, start, total, report)
            return total
    except HTTPError as error:
        error.close()
        if error.code == _UNSATISFIABLE and start:  # nothing is missing, as the checksum will say
            return None
        raise DataError(
            f"{file.url} answers {error.code} ({error.reason}); try another source with --from"
        ) from error
    except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        raise DataError(
            f"cannot fetch {file.url} ({error}); run the command again, it goes on from there"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataError(
            f"no room left in {str(part.parent)!r}; make room and run the command again, it goes on "
            "from there"
        ) from error


def _copy(answer: Any, out: Any, name: str, start: int, total: int | None, report: Report) -> None:
    done = start
    while block := answer.read(_BLOCK):
        out.write(block)
        done += len(block)
        report(name, done, total)
