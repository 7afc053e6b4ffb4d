"""Reading files of strangers: nothing is parsed before its kind, size and depth are known to be bounded."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lw2g.config.toml import is_deeper
from lw2g.errors import DataError, shown

__all__ = ["Integers", "names_in", "read_columns", "read_json", "require_sizes"]

Integers = npt.NDArray[np.signedinteger[Any]]

_MB = 1_000_000
_FOLDER = 25 * _MB
_LARGEST = {".safetensors": 10 * _MB, ".json": 5 * _MB, ".toml": _MB}
"""The largest file that is read, by its kind. 1,000 tasks, or 1,000,000 test images, need less."""
_FILES = 10
_DEPTH = 20
_HEADER = 10_000
"""The longest header of columns in bytes: one of nine columns has about 700."""
_TYPES: Mapping[str, np.dtype[Any]] = {"I16": np.dtype("<i2"), "I32": np.dtype("<i4")}


def names_in(folder: Path, allowed: tuple[str, ...]) -> None:
    """Refuse a folder with anything but the allowed files: no links, no programs, no further names.

    Raises:
        DataError: There is such an entry; the message names the first one.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise DataError(f"{folder.name!r} is no folder")
    names = []
    # entry by entry, because a stranger's folder may have millions
    with os.scandir(folder) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            names.append(entry.name)
            if not stat.S_ISREG(mode):
                raise DataError(f"{entry.name!r} is no plain file")
            if entry.name not in allowed:
                raise DataError(f"{entry.name!r} is none of {', '.join(allowed)}")
            if mode & 0o111:  # by its owner, its group or anybody
                raise DataError(f"{entry.name!r} may be executed", "chmod -x")
            if len(names) > _FILES:
                raise DataError(f"more than {_FILES} files")
    for name in allowed:
        if name not in names:
            raise DataError(f"{name!r} is missing")


def require_sizes(folder: Path) -> int:
    """Return the bytes of a folder's files.

    Raises:
        DataError: One file or all of them are too large.
    """
    total = 0
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        limit = _LARGEST[path.suffix]
        if size > limit:
            raise DataError(f"{path.name!r} has {size / _MB:.1f} MB, more than {limit // _MB}")
        total += size
    if total > _FOLDER:
        raise DataError(f"all files have {total / _MB:.1f} MB, more than {_FOLDER // _MB}")
    return total


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: It is no JSON, too large, nested too deeply, or holds a key twice or what is no number.
    """
    largest = _LARGEST[".json"]
    if path.is_symlink() or not path.is_file() or path.stat().st_size > largest:
        raise DataError(f"{path.name!r} is no plain file of at most {largest // _MB} MB")
    return _parsed(path.read_bytes(), path)


def _parsed(content: bytes, path: Path) -> Any:
    """Return the value of JSON, in steps and memory in proportion to its bytes."""
    try:
        # json is linear in its input and refuses what is nested deeper than the interpreter's limit
        value = json.loads(
            content.decode(), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once
        )
    except RecursionError as error:
        raise DataError(f"{path.name!r} is nested more than {_DEPTH} levels deep") from error
    except ValueError as error:
        raise DataError(f"{path.name!r} is no JSON: {str(error)[:100]}") from error
    if is_deeper(value, _DEPTH):
        raise DataError(f"{path.name!r} is nested more than {_DEPTH} levels deep")
    return value


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _finite(word: str) -> float:
    # 1e999 is legal JSON and becomes infinity without a word
    number = float(word)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{word[:40]} is no number that can be stored")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    # of two values for a key one reader takes the first and another the last: a check would see neither
    if len(table) < len(pairs):
        raise ValueError("a key stands there twice")
    return table


def read_columns(path: Path, known: Collection[str]) -> dict[str, Integers]:
    """Return the vectors of integers in a file of safetensors.

    Args:
        path: The file.
        known: The names that a vector may have.

    Raises:
        DataError: The header is too long or does not describe such vectors, one after another, to the end.
    """
    # by hand: the reader of safetensors would parse a header of up to 100 MB
    content = path.read_bytes()
    # eight bytes with the length of the header, the header, and the numbers of all vectors
    length = int.from_bytes(content[:8], "little")
    if length > min(_HEADER, len(content) - 8):
        raise DataError(
            f"{path.name!r}: the header has {length} bytes, more than {_HEADER} or than there are"
        )
    header = _parsed(content[8 : 8 + length], path)
    if not isinstance(header, dict):
        raise DataError(f"{path.name!r} has no header of safetensors")
    if strange := sorted(header.keys() - set(known)):
        raise DataError(
            f"{path.name!r} holds {shown(strange[0][:40])}, which is no column of predictions "
            f"({len(strange)} such names)"
        )
    data = memoryview(content)[8 + length :]
    columns: dict[str, Integers] = {}
    end = 0
    try:
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
            kind = entry["dtype"]
            (count,) = entry["shape"]
            first, last = entry["data_offsets"]
            if kind not in _TYPES:
                raise DataError(f"{path.name!r}: {name!r} is no vector of int16 or int32")
            # exactly int: True and 1.0 are equal to 1, and would pass as a length
            if {type(count), type(first), type(last)} != {int}:
                raise DataError(f"{path.name!r}: length and place of {name!r} are no whole numbers")
            if count < 0 or first != end or last - first != count * _TYPES[kind].itemsize:
                raise DataError(f"{path.name!r}: the tensors do not follow each other")
            columns[name] = np.frombuffer(data[first:last], _TYPES[kind])
            end = last
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path.name!r} has no header of safetensors ({type(error).__name__})") from error
    if end != len(data):
        raise DataError(f"{path.name!r}: bytes follow the last tensor")
    return columns
