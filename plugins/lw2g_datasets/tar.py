"""Reads tar archives of strangers member by member, in memory that does not depend on what they state.

``tarfile`` reads what stands before a member (long names, PAX records, maps of sparse files) whole, of any
size: some megabytes of a compressed archive become gigabytes before it returns anything. Here only its parser
of one header block is used.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import IO, Any

import attrs

from lw2g.errors import DataError

__all__ = ["Content", "TarMember", "opened_tar", "too_large"]

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_CHUNK = 1 << 18
"""Bytes that are read at once."""
_LONGEST = 1 << 18
"""The most bytes of what stands before a member: paths and attributes of files have at most 64 KiB."""
_MOST_BEFORE = 8
"""The most headers before that of a member: a name, the target of a link, records of it and of all."""
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_LONG_NAME = tarfile.GNUTYPE_LONGNAME
_RECORDS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_PASSED_OVER = (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)
"""Targets of links, and records of all members, which name none."""
_HOLES = b"GNU.sparse."
_COMPRESSED: Mapping[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
    b"\x5d\0\0": lzma.open,
}
"""What reads a compressed archive, by how it begins."""


@attrs.frozen(kw_only=True)
class TarMember:
    """A member, whose content can be read until the next member is asked for.

    Attributes:
        name: Its path.
        size: Its bytes.
        is_plain: Whether it is a folder, or a file without holes.
        is_folder: Whether it is a folder.
        content: Its bytes.
    """

    name: str
    size: int
    is_plain: bool
    is_folder: bool
    content: Content


@contextmanager
def opened_tar(archive: Path, most: int) -> Iterator[Iterator[TarMember] | None]:
    """Open a tar archive, compressed or not, and yield its members; None where it is no tar archive.

    Args:
        archive: The archive.
        most: The most bytes that it may have when it is decompressed.

    Raises:
        DataError: It has more.
        tarfile.TarError: It is damaged or ends early.
    """
    with archive.open("rb") as file:
        begin = file.read(max(map(len, _COMPRESSED)))
    opener: Callable[..., Any] = open
    for magic, known in _COMPRESSED.items():
        if begin.startswith(magic):
            opener = known
    with opener(archive, "rb") as source:
        stream = _Stream(archive, source, most)
        first = _first_block(stream)
        yield None if first is None else _members(stream, first)


def too_large(archive: Path, most: int) -> DataError:
    """Return that an archive would unpack to too much."""
    return DataError(
        f"archive {str(archive)!r} of {archive.stat().st_size} bytes would unpack to more than {most}; "
        "it is not an archive of images",
        "fetch it from another source",
    )


class _Stream:
    """The bytes of an archive, decompressed, one after another."""

    def __init__(self, archive: Path, source: IO[bytes], most: int) -> None:
        self._archive = archive
        self._source = source
        self._most = most
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return at most this many bytes, none at the end."""
        data = self._source.read(min(size, _CHUNK))
        self.position += len(data)
        if self.position > self._most:
            raise too_large(self._archive, self._most)
        return data

    def exactly(self, size: int) -> bytes:
        """Return this many bytes."""
        parts = []
        while size:
            parts.append(self.read(size))
            if not parts[-1]:
                raise tarfile.ReadError(f"it ends at byte {self.position}")
            size -= len(parts[-1])
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Pass over bytes."""
        while size:
            size -= len(self.exactly(min(size, _CHUNK)))


class Content(RawIOBase):
    """The bytes of one member."""

    def __init__(self, stream: _Stream, size: int) -> None:
        self._stream = stream
        self.left = size

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or a part of it; return the bytes."""
        data = self._stream.exactly(min(len(buffer), self.left, _CHUNK))
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)


def _first_block(stream: _Stream) -> bytes | None:
    """Return the first header, or None where there is none."""
    try:
        block = stream.exactly(_BLOCK)
        if block != _END:
            _header(block)
    except (tarfile.TarError, EOFError, lzma.LZMAError):
        return None
    except OSError as error:
        if error.errno is not None:  # those of damaged gzip and bz2 have none
            raise
        return None
    return block


def _header(block: bytes) -> tarfile.TarInfo:
    header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    if header.size < 0:
        raise tarfile.ReadError(f"a size of {header.size}")
    return header


def _members(stream: _Stream, block: bytes) -> Iterator[TarMember]:
    """Yield the members from the first block on; blocks before a member may give its name and size."""
    records: dict[str, bytes] = {}  # what stands before a member and holds for it alone
    num_before = 0
    while block != _END:
        header = _header(block)
        if header.type in (_LONG_NAME, *_RECORDS, *_PASSED_OVER):
            num_before += 1
            if num_before > _MOST_BEFORE:
                raise tarfile.ReadError(f"no member after {_MOST_BEFORE} headers")
            before = _before(stream, header)
            if header.type == _LONG_NAME:
                records["path"] = before.partition(b"\0")[0]
            elif header.type in _RECORDS:
                records |= _parsed(before)
        else:
            member = _member(stream, header, records)
            yield member
            records = {}
            num_before = 0
            if not member.is_folder:
                stream.skip(member.content.left + -member.size % _BLOCK)
        block = stream.exactly(_BLOCK)
    # the checksum of a compressed archive is at its very end
    while stream.read(_CHUNK):
        pass


def _before(stream: _Stream, header: tarfile.TarInfo) -> bytes:
    """Return what stands before a member."""
    if header.size > _LONGEST:
        raise tarfile.ReadError(f"a name or records of {header.size} bytes before byte {stream.position}")
    content = stream.exactly(header.size + -header.size % _BLOCK)
    return content[: header.size]


def _parsed(content: bytes) -> dict[str, bytes]:
    """Return the PAX records that matter here; each is ``<its bytes> <key>=<value>`` and a line end."""
    records = {}
    start = 0
    while start < len(content):
        digits = content[start : start + 20].partition(b" ")[0]  # no length of 20 digits is there
        length = int(digits) if digits.isdigit() else 0
        record = content[start : start + length]
        if length <= len(digits) + 1 or len(record) < length or not record.endswith(b"\n"):
            raise tarfile.ReadError("records that do not follow each other")
        key, _, value = record[len(digits) + 1 : -1].partition(b"=")
        if key in (b"path", b"size") or key.startswith(_HOLES):
            records["holes" if key.startswith(_HOLES) else key.decode()] = value
        start += length
    return records


def _member(stream: _Stream, header: tarfile.TarInfo, records: Mapping[str, bytes]) -> TarMember:
    """Return the member of a header; name and size in the records before it are the true ones."""
    size = header.size
    if "size" in records:
        digits = records["size"]
        if not digits.isdigit() or len(digits) > 19:  # 2**63 has 19
            raise tarfile.ReadError("a size that is no number")
        size = int(digits)
    is_folder = header.isdir()
    if is_folder:  # whatever is stated, nothing follows
        size = 0
    name = header.name
    if "path" in records:
        name = records["path"].decode("utf-8", "surrogateescape")
    is_plain = (header.type in _PLAIN and "holes" not in records) or is_folder
    # a folder of the oldest archives is a file with a slash at its end
    is_folder = is_folder or (header.type == tarfile.AREGTYPE and name.endswith("/") and not size)
    return TarMember(
        name=name, size=size, is_plain=is_plain, is_folder=is_folder, content=Content(stream, size)
    )
