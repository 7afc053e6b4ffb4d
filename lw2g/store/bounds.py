"""Reading files of strangers: nothing is parsed before its kind, size and depth are known to be bounded."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lw2g.errors import DataError

__all__ = ["Integers", "names_in", "read_columns", "read_json", "require_sizes"]

Integers = npt.NDArray[np.signedinteger[Any]]

_MB = 1_000_000
_FILE, _FOLDER, _JSON = 10 * _MB, 25 * _MB, 5 * _MB
_FILES, _DEPTH, _TENSORS, _HEADER = 10, 20, 1_000, _MB
_TYPES: Mapping[str, np.dtype[Any]] = {"I16": np.dtype("<i2"), "I32": np.dtype("<i4")}
_STRING, _BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL), re.compile(rb"[\[\]{}]")


def names_in(folder: Path, allowed: tuple[str, ...]) -> None:
    """Refuse a folder with anything but the allowed files: no links, no programs, no further names.

    Raises:
        DataError: It is so; the first name is told.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise DataError(f"{folder.name!r} is no folder")
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            names.append(entry.name)
            if not stat.S_ISREG(mode):
                raise DataError(f"{entry.name!r} is no plain file")
            if entry.name not in allowed:
                raise DataError(f"{entry.name!r} is none of {', '.join(allowed)}")
            if mode & 0o111:
                raise DataError(f"{entry.name!r} may be executed", "chmod -x")
            if len(names) > _FILES:
                raise DataError(f"more than {_FILES} files")
    if missing := [name for name in allowed if name not in names]:
        raise DataError(f"{missing[0]!r} is missing")


def require_sizes(folder: Path) -> int:
    """Return the bytes of a folder's files.

    Raises:
        DataError: One file or all of them are too large.
    """
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    for name, size in sizes.items():
        limit = _FILE if name.endswith(".safetensors") else _JSON
        if size > limit:
            raise DataError(f"{name!r} has {size / _MB:.1f} MB, more than {limit // _MB}")
    if sum(sizes.values()) > _FOLDER:
        raise DataError(f"all files have {sum(sizes.values()) / _MB:.1f} MB, more than {_FOLDER // _MB}")
    return sum(sizes.values())


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: It is no JSON, too large, nested too deeply, or holds a key twice or what is no number.
    """
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _JSON:
        raise DataError(f"{path.name!r} is no plain file of at most {_JSON // _MB} MB")
    content = path.read_bytes()
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", content)):
        depth += 1 if bracket in b"[{" else -1
        if depth > _DEPTH:
            raise DataError(f"{path.name!r} is nested more than {_DEPTH} levels deep")

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key stands there twice")
        return table

    try:
        return json.loads(content.decode(), parse_constant=refuse, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name!r} is no JSON: {str(error)[:100]}") from error


def read_columns(path: Path) -> dict[str, Integers]:
    """Return the vectors of integers in a file of safetensors.

    Raises:
        DataError: The header is too long or does not describe such vectors, one after another, to the end.
    """
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    if length > min(_HEADER, len(content) - 8):
        raise DataError(
            f"{path.name!r}: the header has {length} bytes, more than {_HEADER} or than there are"
        )
    try:
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        if len(header) > _TENSORS:
            raise DataError(f"{path.name!r} holds {len(header)} tensors, more than {_TENSORS}")
        columns, end = {}, 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
            kind, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if kind not in _TYPES or len(shape) != 1:
                raise DataError(f"{path.name!r}: {name[:40]!r} is no vector of int16 or int32")
            if first != end or last - first != shape[0] * _TYPES[kind].itemsize:
                raise DataError(f"{path.name!r}: the tensors do not follow each other")
            columns[name] = np.frombuffer(content[8 + length + first : 8 + length + last], _TYPES[kind])
            end = last
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path.name!r} has no header of safetensors ({type(error).__name__})") from error
    if end != len(content) - 8 - length:
        raise DataError(f"{path.name!r}: bytes follow the last tensor")
    return columns
