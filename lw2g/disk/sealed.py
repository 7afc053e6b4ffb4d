"""Files that are written whole or not at all, and that carry a checksum.

Two kinds of file carry their own checksum, over every byte:

- sealed JSON has one key a line; the last key, ``sha256``, is that of all lines before it, so that
  ``head -n -2 record.json | sha256sum`` prints it;
- sealed safetensors have the metadata ``lw2g`` (a JSON object) and ``sha256``: that of the file with 64 zeros
  in its place.

Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lw2g.config.directory import UNFINISHED
from lw2g.config.toml import parse_json, read_text
from lw2g.errors import DataError

__all__ = [
    "LEFTOVER",
    "UNSEALED",
    "Lines",
    "hash_of",
    "read_header",
    "seal_json",
    "seal_tensors",
    "sha256_of",
    "sync",
    "unseal_json",
    "unseal_tensors",
    "write_atomically",
    "write_once",
]

UNSEALED = "0" * 64
"""Stands in safetensors' metadata where :func:`seal_tensors` puts the checksum."""
LEFTOVER = f".*{UNFINISHED}"
"""Glob of what a killed process may leave next to the files it was writing."""

_MARK = b'"sha256":"'
_SEAL = ' "sha256": "{}"\n}}\n'


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, even in a crash.

    The temporary name is unpredictable, so that nobody can place a link there.
    """
    _write(path, content, lambda temporary: temporary.replace(path))


def write_once(path: Path, content: bytes) -> None:
    """Write a file whole, unless it is there already: of several processes the first one writes it."""

    def put(temporary: Path) -> None:
        """Give the file its name unless another has it: who came first stays."""
        try:
            os.link(temporary, path)  # refused where the name is taken, which a rename would replace
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links: the last one writes it
            temporary.replace(path)
            return
        temporary.unlink()

    _write(path, content, put)


def _write(path: Path, content: bytes, put: Callable[[Path], object]) -> None:
    """Write a temporary file next to a path, and rename it to the path."""
    # a name that no other process makes at the same time, and the rights of any new file (less the umask)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            # synced before the rename: after a power cut the name could lead to an empty file
            os.fsync(file.fileno())
        put(temporary)
    except BaseException as error:  # a Ctrl-C, too: nothing half written stays
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # the error of a full disk does not name the file
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Write a file, or a folder's list of files, to the disk, so that it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 of a file in hexadecimal digits, None where there is no such file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


class Lines(list[str]):
    """A list for :func:`seal_json` whose entries are JSON text already."""


def seal_json(content: Mapping[str, Any]) -> bytes:
    """Return a JSON object with its checksum as the last key; lists of rows have a line a row."""
    body = _body(content)
    return (body + _SEAL.format(hashlib.sha256(body.encode()).hexdigest())).encode()


def hash_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 that :func:`seal_json` gives a JSON object."""
    return hashlib.sha256(_body(content).encode()).hexdigest()


def _body(content: Mapping[str, Any]) -> str:
    # a key a line, and the checksum on the last one: what stands before it can be hashed as text
    lines = [f" {json.dumps(key)}: {_value(value)},\n" for key, value in content.items()]
    return "{\n" + "".join(lines)


def _value(value: Any) -> str:
    """Return a value as JSON text; a list of rows has one line for each."""
    has_rows = isinstance(value, list) and len(value) > 0 and isinstance(value[0], list | dict)
    if has_rows and not isinstance(value, Lines):
        value = Lines(json.dumps(entry, allow_nan=False) for entry in value)
    if not isinstance(value, Lines):
        return json.dumps(value, allow_nan=False)
    if not value:
        return "[]"
    return "[\n  " + ",\n  ".join(value) + "\n ]"


def unseal_json(path: Path) -> dict[str, Any]:
    """Return the content of sealed JSON without its checksum.

    Raises:
        DataError: It cannot be read, or does not match its checksum.
    """
    text = read_text(path)
    content = parse_json(text, path)
    if not isinstance(content, dict) or "sha256" not in content:
        raise DataError(f"{str(path)!r} has no checksum: it was edited, or is of an older lw2g")
    written = content.pop("sha256")
    # the last line holds the checksum of all text before it
    body = text.removesuffix(_SEAL.format(written))
    has_seal = body != text
    if not has_seal or hashlib.sha256(body.encode()).hexdigest() != written:
        raise DataError(f"{str(path)!r} does not match its checksum: it is damaged or was edited")
    return content


def read_header(content: bytes) -> dict[str, Any]:
    """Return the header of safetensors.

    Raises:
        ValueError: It has none.
    """
    # the file begins with the header's length, in eight bytes
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if not isinstance(header, dict):
        raise ValueError(f"expected a header but got {header!r:.40}")
    return header


def seal_tensors(content: bytes) -> tuple[bytes, str]:
    """Put the checksum in its place; return the file's bytes and the checksum.

    Args:
        content: Safetensors whose metadata has ``sha256`` with the value :data:`UNSEALED`.
    """
    start = content.index(_MARK) + len(_MARK)
    checksum = hashlib.sha256(content).hexdigest()
    return content[:start] + checksum.encode() + content[start + len(checksum) :], checksum


def unseal_tensors(path: Path) -> tuple[bytes, dict[str, Any], str]:
    """Return the bytes of sealed safetensors, its ``lw2g`` metadata, and its checksum.

    Raises:
        DataError: It cannot be read, or does not match its checksum.
    """
    try:
        content = path.read_bytes()
        metadata = read_header(content)["__metadata__"]
        written = metadata["sha256"]
        entry = json.loads(metadata["lw2g"])
        start = content.index(_MARK) + len(_MARK)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path.name!r} cannot be read ({type(error).__name__})") from error
    # the checksum is that of the file with zeros in its place
    digest = hashlib.sha256(content[:start])
    digest.update(UNSEALED.encode())
    digest.update(memoryview(content)[start + len(UNSEALED) :])
    if digest.hexdigest() != written or not isinstance(entry, dict):
        raise DataError(f"{path.name!r} does not match its checksum")
    return content, entry, written
