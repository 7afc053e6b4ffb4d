"""The containers of stored features, opened entry by entry: a zip of arrays, safetensors, or a folder."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lw2g.errors import DataError, first_line
from lw2g.texts import text_of

__all__ = ["JSON_FILE", "LAYOUT", "Readers", "open_container", "read_entry"]

Readers: TypeAlias = dict[str, Callable[[], Any]]
"""What reads each entry of a container, by its name."""
JSON_FILE = "features.json"
"""The file of a folder that holds the JSON object."""
_SUFFIXES = ".npz, .safetensors, or a folder of .npy files"
LAYOUT = "docs/howto/features.md shows the layout"
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, SafetensorError)


def open_container(path: Path) -> Readers:
    """Return what reads each entry of a container, by name.

    Raises:
        DataError: There is no such file, it is of another kind, or it is damaged.
    """
    if not path.exists():
        raise DataError(f"no stored features at {str(path)!r}", f"give {_SUFFIXES}; {LAYOUT}")
    try:
        if path.is_dir():
            return _folder(path)
        match path.suffix:
            case ".npz":
                return _archive(path)
            case ".safetensors":
                return _safetensors(path)
    except _UNREADABLE as error:
        raise _damaged(path, error) from error
    remedies = {".npy": "give the folder that holds train_x.npy, train_y.npy, test_x.npy and test_y.npy"}
    packed = "extract it, and give the folder of its .npy files"
    remedies |= dict.fromkeys((".gz", ".tgz", ".tar", ".zip"), packed)
    raise DataError(
        f"{str(path)!r} is no file of stored features",
        remedies.get(path.suffix, f"give {_SUFFIXES}; {LAYOUT}"),
    )


def _folder(path: Path) -> Readers:
    # "c" maps privately: torch warns of arrays that must not be written to
    def reader(file: Path) -> Callable[[], Any]:
        return lambda: np.load(file, mmap_mode="c", allow_pickle=False)

    readers: Readers = {file.stem: reader(file) for file in sorted(path.glob("*.npy"))}
    described = path / JSON_FILE
    if described.is_file():
        readers["metadata"] = lambda: text_of(described)
    return readers


def _archive(path: Path) -> Readers:
    def reader(info: zipfile.ZipInfo) -> Callable[[], Any]:
        if info.compress_type == zipfile.ZIP_STORED:
            return lambda: _mapped(path, info)
        return lambda: _unpacked(path, info)

    with zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): reader(info) for info in archive.infolist()}


def _mapped(path: Path, info: zipfile.ZipInfo) -> Any:
    """Map an uncompressed member of a zip file: its bytes lie in the file as they are."""
    with path.open("rb") as file:
        # the directory of the archive tells where the member's own header lies, and not how long that is
        file.seek(info.header_offset)
        header = file.read(30)
        name, extra = struct.unpack("<HH", header[26:30])
        file.seek(info.header_offset + 30 + name + extra)
        shape, fortran, dtype = _array_header(file)
        offset = file.tell()
    if dtype.hasobject or not int(np.prod(shape)):
        return _unpacked(path, info)  # refused there, or nothing to map
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.memmap(path, dtype, mode="c", offset=offset, shape=shape, order=order)


def _array_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _unpacked(path: Path, info: zipfile.ZipInfo) -> Any:
    with zipfile.ZipFile(path) as archive, archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _safetensors(path: Path) -> Readers:
    def reader(name: str) -> Callable[[], Any]:
        def read() -> Tensor:
            with safe_open(path, "pt") as file:
                tensor: Tensor = file.get_tensor(name)
                return tensor

        return read

    with safe_open(path, "pt") as file:
        readers: Readers = {name: reader(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata() or {}
    if "metadata" in header:
        readers["metadata"] = lambda: header["metadata"]
    return readers


def _damaged(path: Path, error: BaseException, entry: str = "") -> DataError:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return DataError(
            f"{str(path)!r}: {entry} holds Python objects, which are never unpickled",
            "save names as an array of strings: numpy.array(names, dtype=str)",
        )
    what = f"{str(path)!r}:"
    if entry:
        what += f" {entry}"
    return DataError(
        f"{what} cannot be read ({first_line(error)})", "it is damaged or half written: write it again"
    )


def read_entry(path: Path, name: str, readers: Readers) -> Any:
    """Return an entry as it is stored; None where there is none.

    Raises:
        DataError: It cannot be read.
    """
    if name not in readers:
        return None
    try:
        return readers[name]()
    except _UNREADABLE as error:
        raise _damaged(path, error, name) from error
