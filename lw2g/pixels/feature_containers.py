"""The containers of stored features, opened entry by entry: a zip of arrays, safetensors, or a folder.

Such files are written by strangers. What a container says of its sizes is compared with its bytes before
anything is read or made room for, and whatever a damaged one makes a reader raise ends in one line.
"""

from __future__ import annotations

import io
import json
import math
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open

from lw2g.errors import DataError, Lw2gError, first_line, shown
from lw2g.ground.spelling import is_name
from lw2g.ground.texts import text_of
from lw2g.pixels.found_images import is_hidden
from lw2g.pixels.stored_arrays import StoredArray, array_of, dtype_text, texts_of

__all__ = [
    "JSON_FILE",
    "LAYOUT",
    "SUFFIXES",
    "Readers",
    "array_of_file",
    "files_of",
    "open_archive",
    "open_container",
    "open_tensors",
    "read_entry",
    "strings_of",
]

Readers: TypeAlias = dict[str, Callable[[], Any]]
"""What opens each entry of a container, by its name: a :class:`StoredArray`, an array in memory, or text."""
JSON_FILE = "features.json"
"""The file of a folder that holds the JSON object."""
LAYOUT = "docs/howto/features.md shows the layout"
SUFFIXES = ".npz, .safetensors, or a folder of .npy files"
_EXPANSION = 100
"""How many times its own bytes a compressed archive may unpack to: vectors shrink by a few times at most."""
_SMALL = 1_000_000
"""Bytes that any archive may unpack to."""
_REASON = 200
"""Letters of a reader's reason in a message."""
_DIMENSIONS = 8
_HEADER = 10_000
"""The longest header of an array in bytes; one of vectors has 128."""
_ENCRYPTED = 1
"""The flag of an encrypted member."""
_BLOCK = 1 << 20
_OF_SAFETENSORS: Mapping[str, np.dtype[Any] | torch.dtype] = {
    "BF16": torch.bfloat16,
    "BOOL": np.dtype(np.bool_),
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}


def open_container(path: Path) -> Readers:
    """Return what opens each entry of a container of stored features, by name.

    Raises:
        DataError: There is no such file, it is of another kind, or it is damaged.
    """
    if not path.exists():
        raise DataError(f"no stored features at {str(path)!r}", f"give {SUFFIXES}; {LAYOUT}")
    if path.is_dir():
        return _folder(path)
    match path.suffix:
        case ".npz":
            return open_archive(path)
        case ".safetensors":
            readers, notes = open_tensors(path)
            if "metadata" in notes:
                readers["metadata"] = lambda: notes["metadata"]
            return readers
    remedies = {".npy": "give the folder that holds train_x.npy, train_y.npy, test_x.npy and test_y.npy"}
    packed = "extract it, and give the folder of its .npy files"
    remedies |= dict.fromkeys((".gz", ".tgz", ".tar", ".zip"), packed)
    raise DataError(
        f"{str(path)!r} is no file of stored features",
        remedies.get(path.suffix, f"give {SUFFIXES}; {LAYOUT}"),
    )


def files_of(path: Path) -> list[Path]:
    """Return the files of a container of stored features: the path itself, or those in a folder."""
    if not path.is_dir():
        return [path]
    # macOS writes ._NAME.npy next to NAME.npy
    files = sorted(file for file in path.glob("*.npy") if not is_hidden(file.name))
    described = path / JSON_FILE
    if described.exists():
        files.append(described)
    return files


def read_entry(path: Path, name: str, readers: Readers) -> Any:
    """Return an entry: a :class:`StoredArray`, an array in memory, or text; None where there is none.

    Raises:
        DataError: It cannot be read.
    """
    if name not in readers:
        return None
    with _told(path, name):
        return readers[name]()


def array_of_file(path: Path) -> npt.NDArray[Any]:
    """Return the array of a ``.npy`` file.

    Raises:
        DataError: It cannot be read, or holds Python objects.
    """
    _require_plain(path)
    with _told(path, path.name):
        return array_of(_in_file(path))


def strings_of(path: Path, name: str, stored: Any) -> list[str]:
    """Return an entry of names: an array of strings, or of whole numbers where ``name`` is of ids.

    Args:
        path: The file, for messages.
        name: The entry.
        stored: What it holds: an array, or a value of the JSON object, which should be a list.

    Raises:
        DataError: It holds something else, or a name that cannot be printed.
    """
    if isinstance(stored, list):
        # a list stays one: an array would give the shortest name the room of the longest
        if not all(isinstance(text, str) for text in stored):
            raise _no_strings(path, name, "values of other types")
        texts = list(stored)
    elif not isinstance(stored, StoredArray | np.ndarray):
        raise _no_strings(path, name, shown(stored))
    else:
        kind = getattr(stored.dtype, "kind", "")
        numbers = name.endswith("_id") and kind in "iu"
        if len(stored.shape) != 1 or (kind != "U" and not numbers):
            raise _no_strings(path, name, f"{dtype_text(stored.dtype)} {shown(list(stored.shape))}")
        try:
            array = array_of(stored)
            texts = list(map(str, array.tolist())) if numbers else texts_of(array)
        except ValueError as error:
            raise _no_strings(path, name, "what is no text") from error
    for text in texts:
        if not is_name(text):
            raise DataError(
                f"{str(path)!r}: {name} holds {shown(text)}", "leave control characters and ends of lines out"
            )
    return texts


def _no_strings(path: Path, name: str, got: str) -> DataError:
    return DataError(
        f"{str(path)!r}: expected a list of strings in {name} but got {got}",
        "save names as numpy.array(names, dtype=str)",
    )


# -- containers ----------------------------------------------------------------------------------------------


def _folder(path: Path) -> Readers:
    """Return the readers of a folder of .npy files, one an entry."""
    readers: Readers = {}
    for file in files_of(path):
        _require_plain(file)
        if file.name == JSON_FILE:
            readers["metadata"] = partial(text_of, file)
        else:
            readers[file.stem] = partial(_in_file, file)
    return readers


def _in_file(path: Path) -> StoredArray | npt.NDArray[Any]:
    with path.open("rb") as file:
        return _lying_in(path, file, path.stat().st_size)


def open_archive(path: Path) -> Readers:
    """Return what opens each array of a ``.npz`` file, by name.

    Raises:
        DataError: It is damaged, or unpacks to far more than it has bytes.
    """
    _require_plain(path)

    def reader(info: zipfile.ZipInfo) -> Callable[[], Any]:
        if info.compress_type == zipfile.ZIP_STORED:
            return lambda: _in_archive(path, info)
        return lambda: _unpacked(path, info)

    with _told(path):
        with zipfile.ZipFile(path) as archive:
            # a Mac adds __MACOSX/._NAME.npy
            members = [
                info for info in archive.infolist() if not any(map(is_hidden, info.filename.split("/")))
            ]
        size = path.stat().st_size
    total = sum(info.file_size for info in members)
    if total > _SMALL + _EXPANSION * size:
        raise DataError(
            f"{str(path)!r} has {size} bytes and unpacks to {total}", "save it uncompressed: numpy.savez"
        )
    readers: Readers = {}
    for info in members:
        name = info.filename.removesuffix(".npy")
        if name in readers:
            raise DataError(f"{str(path)!r} holds {shown(name)} twice", "write it again")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{str(path)!r}: {shown(name)} is packed in a way that numpy never uses")
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{str(path)!r}: {shown(name)} is encrypted", "save it with numpy.savez")
        readers[name] = reader(info)
    return readers


def _in_archive(path: Path, info: zipfile.ZipInfo) -> StoredArray | npt.NDArray[Any]:
    """Return an uncompressed member of a zip file: its bytes lie in the file as they are."""
    with path.open("rb") as file:
        # the directory of the archive tells where the member's own header lies, and not how long that is
        file.seek(info.header_offset)
        # 30 bytes of fixed size, of which the last four are the lengths of a name and of further fields
        header = file.read(30)
        name, extra = struct.unpack("<HH", header[26:30])
        start = info.header_offset + 30 + name + extra
        file.seek(start)
        end = min(start + info.file_size, path.stat().st_size)
        return _lying_in(path, file, end)


def _lying_in(path: Path, file: IO[bytes], end: int) -> StoredArray | npt.NDArray[Any]:
    """Return the array whose header begins where a file stands; its bytes go to ``end``."""
    shape, is_fortran, dtype = _array_header(file)
    offset = file.tell()
    _require_bytes(shape, dtype, end - offset)
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return StoredArray(
        shape=shape, dtype=dtype, path=path, offset=offset, is_fortran=is_fortran and len(shape) > 1
    )


def _unpacked(path: Path, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return a compressed member of a zip file in memory."""
    with zipfile.ZipFile(path) as archive, archive.open(info) as member:
        shape, is_fortran, dtype = _array_header(member)
        count = info.file_size - member.tell()
        _require_bytes(shape, dtype, count)
        content = np.empty(count, dtype=np.uint8)
        done = 0
        while block := member.read(_BLOCK):  # to its end, where its checksum is compared
            content[done : done + len(block)] = np.frombuffer(block, dtype=np.uint8)
            done += len(block)
    if done < count:
        raise EOFError(f"{done} of {count} bytes are there")
    return content.view(dtype).reshape(shape, order="F" if is_fortran else "C")


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype of the array at whose beginning a file stands.

    Raises:
        ValueError: It is none, or one of Python objects.
    """
    # read by hand: numpy would make room for the four gigabytes that a header may claim
    # eight bytes: a mark of six and the version, of which 1 has two bytes for the length, and others four
    prefix = file.read(8)
    length = file.read(2 if prefix[6:7] == b"\x01" else 4)
    count = int.from_bytes(length, "little")
    if count > _HEADER:
        raise ValueError(f"its header claims {count} bytes")
    header = io.BytesIO(prefix + length + file.read(count))
    version = np.lib.format.read_magic(header)
    read = np.lib.format.read_array_header_2_0
    if version == (1, 0):
        read = np.lib.format.read_array_header_1_0
    try:
        with warnings.catch_warnings():
            # a damaged header is parsed as Python's source, whose warnings say nothing to a user
            warnings.simplefilter("ignore")
            shape, is_fortran, dtype = read(header)
    except MemoryError as error:  # brackets that are nested too deeply
        raise ValueError("its header cannot be parsed") from error
    if dtype.hasobject:
        raise ValueError("allow_pickle=False")
    return shape, is_fortran, dtype


def _require_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> None:
    """Refuse an array that claims other bytes than there are, before room is made for it.

    Raises:
        ValueError: It does.
    """
    sound = len(shape) <= _DIMENSIONS and all(type(size) is int and size >= 0 for size in shape)
    values = math.prod(shape)
    if not sound or values * dtype.itemsize != count or (values and not dtype.itemsize):
        raise ValueError(f"{shown(list(shape))} of {dtype_text(dtype)} is not what {count} bytes hold")


def open_tensors(path: Path) -> tuple[Readers, Mapping[str, str]]:
    """Return what opens each tensor of a ``.safetensors`` file, by name, and the strings of its header.

    Raises:
        DataError: It is damaged.
    """
    _require_plain(path)
    with _told(path):
        # it compares the header with the bytes, and parses it in steps and memory in proportion
        with safe_open(path, "np"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    notes: dict[str, str] = header.pop("__metadata__", None) or {}

    def reader(entry: Mapping[str, Any]) -> Callable[[], Any]:
        """Return what opens a tensor; numbers begin behind the header and the eight bytes of its length."""
        return lambda: _tensor(path, entry, 8 + length)

    return {name: reader(entry) for name, entry in header.items()}, notes


def _tensor(path: Path, entry: Mapping[str, Any], data: int) -> StoredArray | npt.NDArray[Any]:
    """Return an entry of a safetensors file: where its numbers lie, or an array without any if it is empty.

    Args:
        path: The file.
        entry: What its header says of the entry.
        data: The byte at which the numbers of the file begin.
    """
    dtype = _OF_SAFETENSORS.get(entry["dtype"])
    if dtype is None:
        raise ValueError(f"no entry is of {shown(entry['dtype'])}")
    shape = tuple(entry["shape"])
    if not math.prod(shape):
        return np.empty(shape, np.uint8 if isinstance(dtype, torch.dtype) else dtype)
    return StoredArray(shape=shape, dtype=dtype, path=path, offset=data + entry["data_offsets"][0])


# -- what is wrong -------------------------------------------------------------------------------------------


def _require_plain(path: Path) -> None:
    """Refuse what is no file on a disk: a pipe would be waited for, and a device has no end.

    Raises:
        DataError: It is none.
    """
    if not path.is_file():
        raise DataError(f"{str(path)!r} is no plain file", f"give {SUFFIXES}; {LAYOUT}")


@contextmanager
def _told(path: Path, entry: str = "") -> Iterator[None]:
    """Say in one line what a reader raises of a damaged file."""
    try:
        yield
    except (Lw2gError, MemoryError):
        raise
    except Exception as error:  # given noise, a parser may raise anything
        raise _damaged(path, error, entry) from error


def _damaged(path: Path, error: BaseException, entry: str = "") -> DataError:
    """Return the error of a file, or of an entry of it, that cannot be read."""
    # the words of numpy, and of :func:`_array_header`
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return DataError(
            f"{str(path)!r}: {entry} holds Python objects, which are never unpickled",
            "save names as an array of strings: numpy.array(names, dtype=str)",
        )
    what = f"{str(path)!r}:"
    if entry:
        what += f" {entry}"
    return DataError(
        f"{what} cannot be read ({first_line(error)[:_REASON]})",
        "it is damaged or half written: write it again",
    )
