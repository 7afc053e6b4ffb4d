"""Archives unpacked without trust: nothing leaves the target, and it is there whole or not at all.

Only plain files and folders are taken. The total size is bounded by that of the archive, and by the room on
the disk, before a byte of a member is written.
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import attrs

from lw2g.data.download import Report, need_room
from lw2g.errors import DataError

__all__ = ["extract", "put_in_place"]

_RATIO = 20
"""Images hardly shrink in an archive: more than this is a bomb."""
_SMALL = 64 << 20
"""Archives that unpack to no more bytes than this may shrink as they like."""
_ENCRYPTED = 0x1
_ZIP_END = 22
"""Bytes of the record that ends the list of a zip archive's members, without its comment."""
_ZIP_MOST = 0xFFFF
"""Stands in that record for a number that a larger record holds."""
_MOST_MEMBERS = 5_000_000
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, NotImplementedError)


@attrs.frozen(kw_only=True)
class _Member:
    name: str
    size: int
    is_folder: bool
    is_plain: bool
    source: Any


def extract(archive: Path, target: Path, report: Report, least: int = 0) -> None:
    """Unpack a tar or zip archive, so that its innermost folder becomes ``target``.

    That is the one of the target's name, or that below which there is more than a single folder; hidden ones
    and ``__MACOSX`` do not count.

    Args:
        archive: The archive.
        target: The folder that it becomes; must not be there.
        report: Is told of the progress.
        least: The number of files that the target must have.

    Raises:
        DataError: If the target is there, the archive is damaged, cut short or hostile, or there is no room;
            nothing is left behind.
    """
    with put_in_place(target, least) as place:
        try:
            with _opened(archive) as (members, read):
                _unpack(archive, members, read, place, report)
        except (*_DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(
                    f"no room left in {str(target.parent)!r}; make room and run the command again"
                ) from error
            # gzip and bz2 raise it without a number, zipfile seeks to where a damaged list points
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise DataError(
                f"archive {str(archive)!r} is damaged or cut short ({error}); delete it and fetch it again"
            ) from error


@contextmanager
def put_in_place(target: Path, least: int = 0) -> Iterator[Path]:
    """Give an empty folder that becomes ``target`` when all went well, and is taken away when not.

    Args:
        target: What the folder becomes.
        least: The number of files that it must then have.

    Raises:
        DataError: If the target is there, or fewer files, or none, were put into the folder.
    """
    if target.exists():
        raise DataError(f"{str(target)!r} is there already; move it away, and it is made anew")
    target.parent.mkdir(parents=True, exist_ok=True)
    place = target.with_name(f".{target.name}.unpacking")
    shutil.rmtree(place, ignore_errors=True)  # of a command that was killed
    place.mkdir()
    try:
        yield place
        inner = _innermost(place, target.name)
        if not any(inner.iterdir()):
            raise DataError(f"nothing was found for {str(target)!r}; the archive is empty, fetch it again")
        found = sum(len(files) for _, _, files in os.walk(inner))
        if found < least:
            raise DataError(
                f"{found} files were found for {str(target)!r}, where {least} images are published; fetch "
                "them again, or name a folder of yours with --from"
            )
        inner.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _innermost(folder: Path, name: str) -> Path:
    """Return the folder called ``name``, else the one below which there is more than a single folder."""
    entries = [one for one in folder.iterdir() if not one.name.startswith(".") and one.name != "__MACOSX"]
    folders = [one for one in entries if one.is_dir()]
    inner = [one for one in folders if one.name == name] or (folders if len(entries) == 1 else [])
    return _innermost(inner[0], name) if inner else folder


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[Iterator[_Member], Any]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield _zip_members(file), file.open
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as file:
            yield _tar_members(file), file.extractfile
    else:
        raise DataError(f"{str(archive)!r} is neither a tar nor a zip archive; fetch it again")


def _zip_members(file: zipfile.ZipFile) -> Iterator[_Member]:
    for info in file.infolist():
        kind = (info.external_attr >> 16) & 0o170000  # of Unix, where the archive has it
        yield _Member(
            name=info.filename,
            size=info.file_size,
            is_folder=info.is_dir(),
            is_plain=kind in (0, 0o100000, 0o040000) and not info.flag_bits & _ENCRYPTED,
            source=info,
        )
    # a damaged length makes zipfile pass over the rest of the list, whose end tells how many there are
    stream = cast(IO[bytes], file.fp)
    stream.seek(-_ZIP_END - len(file.comment), os.SEEK_END)
    count = int.from_bytes(stream.read(_ZIP_END)[10:12], "little")
    if count != _ZIP_MOST and count != len(file.infolist()) % (_ZIP_MOST + 1):
        raise zipfile.BadZipFile(f"{len(file.infolist())} of {count} members are listed")


def _tar_members(file: tarfile.TarFile) -> Iterator[_Member]:
    for info in file:
        yield _Member(
            name=info.name,
            size=info.size,
            is_folder=info.isdir(),
            is_plain=info.isreg() or info.isdir(),
            source=info,
        )
    # tarfile takes a damaged header, or the end of a file that was cut between two members, for the end
    stream = cast(IO[bytes], file.fileobj)
    stream.seek(file.offset)
    end = stream.read(2 * tarfile.BLOCKSIZE)
    if len(end) < tarfile.BLOCKSIZE or any(end):
        raise tarfile.ReadError(f"no header and no end at byte {file.offset}")
    while stream.read(1 << 20):  # where it is compressed, the checksum stands at its very end
        pass


def _unpack(archive: Path, members: Iterator[_Member], read: Any, place: Path, report: Report) -> None:
    most = max(_SMALL, _RATIO * archive.stat().st_size)
    total = 0
    for number, member in enumerate(members, 1):
        parts = _safe_parts(archive, member)
        total += member.size
        if total > most or number > _MOST_MEMBERS:
            raise DataError(
                f"archive {str(archive)!r} of {archive.stat().st_size} bytes would unpack to more than "
                f"{most}; it is no archive of images, fetch it from another source"
            )
        path = place.joinpath(*parts)
        if member.is_folder:
            path.mkdir(parents=True, exist_ok=True)
            continue
        need_room(place, member.size)
        path.parent.mkdir(parents=True, exist_ok=True)
        with read(member.source) as source, path.open("wb") as out:
            _copy(source, out, member)
        report(f"unpacking {archive.name}", total, None)


def _copy(source: IO[bytes], out: IO[bytes], member: _Member) -> None:
    shutil.copyfileobj(source, out)
    if out.tell() != member.size:
        raise EOFError(f"{member.name} has {out.tell()} of {member.size} bytes")


def _safe_parts(archive: Path, member: _Member) -> tuple[str, ...]:
    """Return the parts of a member's name.

    Raises:
        DataError: If it leads out of the archive, or the member is a link or a device.
    """
    path = PurePosixPath(member.name)
    unsafe = path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name
    if unsafe or ":" in (path.parts[0] if path.parts else "") or not member.is_plain:
        what = "is a link, a device or encrypted" if not unsafe and not member.is_plain else "leads out of it"
        raise DataError(
            f"archive {str(archive)!r} is not safe: member {member.name!r} {what}; fetch it from "
            "another source"
        )
    return path.parts
