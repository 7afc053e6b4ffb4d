"""Unpacks untrusted archives: nothing is written outside the target, which appears whole or not at all.

Only plain files and folders are unpacked. The archive's size bounds the number of members and, with the free
disk space, their total size before a member is written.
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

import attrs

from lw2g.errors import DataError, counted, shown
from lw2g.pixels.found_images import is_hidden
from lw2g_datasets.download import Report, need_room
from lw2g_datasets.tar import TarMember, opened_tar, too_large

__all__ = ["extract", "put_in_place"]

_RATIO = 20
"""The largest ratio of unpacked to packed size; images hardly shrink, so a larger one is a bomb."""
_SMALL = 64 << 20
"""Up to so many unpacked bytes the ratio does not matter."""
_ENCRYPTED = 0x1
_ZIP_END = 22
"""Bytes of a zip archive's end record, without its comment."""
_ZIP_MOST = 0xFFFF
"""In that record: the number is in a larger record."""
_FEW_MEMBERS = 1_000
"""Up to so many members their number does not matter."""
_BYTES_PER_MEMBER = 8
"""The fewest bytes of an archive for each further member; the shortest image has some more."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members of a zip archive may be compressed: of the others zipfile decompresses all that it has read, at
once, which can be thousands of times as much."""
_CHUNK = 1 << 20
"""Bytes that are read at once."""
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, NotImplementedError),
    # zipfile's own of fields without sense
    *(ValueError, OverflowError, struct.error),
)


@attrs.frozen(kw_only=True)
class _Member:
    name: str
    size: int
    is_plain: bool
    is_folder: bool
    is_known: bool = True
    open: Callable[[], AbstractContextManager[IO[bytes]]]

    def write(self, place: Path, renamed: Mapping[str, str]) -> None:
        """Write a member that was found safe below ``place``, with its folders renamed.

        Written here, not by ``extract`` of zipfile: the owner, the mode and the date that an archive states
        never matter.
        """
        *folders, name = PurePosixPath(self.name).parts or (".",)
        folder = place.joinpath(*(renamed.get(part, part) for part in folders))
        if self.is_folder:
            folder.joinpath(renamed.get(name, name)).mkdir(parents=True, exist_ok=True)
            return
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        with self.open() as source, path.open("wb") as out:
            shutil.copyfileobj(source, out, _CHUNK)


def extract(
    archive: Path, target: Path, report: Report, least: int = 0, renamed: Mapping[str, str] | None = None
) -> None:
    """Unpack a tar or zip archive, so that its innermost folder becomes ``target``.

    The innermost folder has the target's name, or contains more than a single folder; hidden ones and
    ``__MACOSX`` do not count.

    Args:
        archive: The archive.
        target: The new folder; must not exist.
        report: Receives the progress.
        least: The smallest number of files that the target must have.
        renamed: Names of folders in the archive, and what they are called in the target.

    Raises:
        DataError: The target exists, the archive is damaged, truncated or hostile, or the disk is full;
            nothing is left behind.
    """
    with put_in_place(target, least) as place:
        try:
            most = max(_SMALL, _RATIO * archive.stat().st_size)
            with _opened(archive, most) as members:
                _unpack(archive, members, most, place, report, renamed or {})
        except (*_DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(
                    f"no room left in {str(target.parent)!r}", "make room and run the command again"
                ) from error
            # gzip and bz2 raise OSError without errno; zipfile seeks to invalid places of a damaged list
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                where = "" if error.filename is None else f" at {shown(str(error.filename))}"
                raise DataError(
                    f"archive {str(archive)!r} cannot be unpacked: {(error.strerror or '').lower()}{where}",
                    "check that the folder can be written and takes such names, or fetch another archive",
                ) from error
            raise DataError(
                f"archive {str(archive)!r} is damaged or truncated ({error})", "delete it and fetch it again"
            ) from error


@contextmanager
def put_in_place(target: Path, least: int = 0) -> Iterator[Path]:
    """Yield an empty folder that becomes ``target`` on success, and is removed after an error.

    Args:
        target: The final folder.
        least: The smallest number of files that it must have.

    Raises:
        DataError: The target exists, or the folder has too few files.
    """
    if target.exists():
        raise DataError(f"{str(target)!r} exists already", "move it away and run the command again")
    target.parent.mkdir(parents=True, exist_ok=True)
    place = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(place, ignore_errors=True)  # left by a killed command
    place.mkdir()
    try:
        yield place
        inner = _innermost(place, target.name)
        if not any(inner.iterdir()):
            raise DataError(f"nothing was found for {str(target)!r}", "the archive is empty, fetch it again")
        count = sum(len(files) for _, _, files in os.walk(inner))
        if count < least:
            raise DataError(
                f"found {counted(count, 'file')} for {str(target)!r}, where {least} images are published",
                "fetch them again, or name a folder of yours with --from",
            )
        inner.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _innermost(folder: Path, name: str) -> Path:
    """Return the folder called ``name``, else the first one that contains more than a single folder.

    Archives wrap their files in folders of various depths.
    """
    entries = [path for path in folder.iterdir() if not is_hidden(path.name)]
    for path in entries:
        if path.name == name and path.is_dir():
            return _innermost(path, name)
    if len(entries) == 1 and entries[0].is_dir():
        return _innermost(entries[0], name)
    return folder


@contextmanager
def _opened(archive: Path, most: int) -> Iterator[Iterator[_Member]]:
    """Open a zip or a tar archive and give its members, within the context."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield _zip_members(file)
        return
    with opened_tar(archive, most) as members:
        if members is None:
            raise DataError(f"{str(archive)!r} is neither a tar nor a zip archive", "fetch it again")
        yield _tar_members(members)


def _zip_members(file: zipfile.ZipFile) -> Iterator[_Member]:
    """Yield the members of a zip archive, and refuse one whose list has been cut off."""
    for info in file.infolist():
        kind = (info.external_attr >> 16) & 0o170000  # of Unix, where the archive has it
        yield _Member(
            name=info.filename,
            size=info.file_size,
            # of an unknown kind, a file or a folder; others are links and devices
            is_plain=kind in (0, 0o100000, 0o040000) and not info.flag_bits & _ENCRYPTED,
            is_known=info.compress_type in _METHODS,
            is_folder=info.filename.endswith("/"),
            open=partial(file.open, info),
        )
    # zipfile ends the list at a damaged length; the end record has the true number of members
    stream = cast(IO[bytes], file.fp)
    stream.seek(-_ZIP_END - len(file.comment), os.SEEK_END)
    count = int.from_bytes(stream.read(_ZIP_END)[10:12], "little")
    # it has 16 bits: all set, they refer to another record; and a writer may count on from 0
    if count != _ZIP_MOST and count != len(file.infolist()) % (_ZIP_MOST + 1):
        raise zipfile.BadZipFile(f"{len(file.infolist())} of {count} members are listed")


def _tar_members(members: Iterator[TarMember]) -> Iterator[_Member]:
    """Yield the members of a tar archive; each can be read until the next one is asked for."""
    for member in members:
        yield _Member(
            name=member.name,
            size=member.size,
            is_plain=member.is_plain,
            is_folder=member.is_folder,
            open=cast(Callable[[], AbstractContextManager[IO[bytes]]], partial(nullcontext, member.content)),
        )


def _unpack(
    archive: Path,
    members: Iterator[_Member],
    most: int,
    place: Path,
    report: Report,
    renamed: Mapping[str, str],
) -> None:
    """Write the members of an archive into a folder: safe ones, not too many, not too large.

    Args:
        archive: The archive.
        members: Its members.
        most: The most bytes that they may have together.
        place: The folder.
        report: Is told what is done: a label, and the bytes so far.
        renamed: Other names of some members.
    """
    most_members = _FEW_MEMBERS + archive.stat().st_size // _BYTES_PER_MEMBER
    total = 0
    for number, member in enumerate(members, 1):
        _require_safe(archive, member)
        total += member.size
        if total > most or number > most_members:
            raise too_large(archive, most)
        need_room(place, member.size)
        member.write(place, renamed)
        report(f"unpacking {archive.name}", total, None)  # nobody knows the total


def _require_safe(archive: Path, member: _Member) -> None:
    """Refuse an unsafe member, whose path zipfile and tarfile would silently change.

    Raises:
        DataError: Its path leads outside, or it is a link, a device, sparse, encrypted or compressed oddly.
    """
    if _leads_out(member.name):
        what = "leads outside"
    elif not member.is_plain:
        what = "is a link, a device, full of holes or encrypted"
    elif not member.is_known:
        what = "is compressed by another method than deflate"
    else:
        return
    raise DataError(
        f"archive {str(archive)!r} is not safe: member {shown(member.name)} {what}",
        "fetch it from another source",
    )


def _leads_out(name: str) -> bool:
    """Whether a member's path leads, or may lead on another system, out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return True
    if "\\" in name or "\0" in name:
        return True
    return bool(path.parts) and ":" in path.parts[0]  # a drive of Windows
