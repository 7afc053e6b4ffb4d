"""Arrays that lie in files: read from there, piece by piece.

Nothing is mapped into memory: if a mapped file is truncated, the process ends (SIGBUS); if a file is
truncated while it is read, that is an error with a message.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lw2g.errors import DataError

__all__ = ["StoredArray", "array_of", "dtype_text", "texts_of"]

_BLOCK = 1 << 20
"""Bytes that are read at once."""
_LONGEST = 60
"""Letters of a dtype in a message: one of a stranger may have thousands."""


class _OpenFile:
    """A file that stays open to be read at any place; the system closes it with the last who holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        """Close the file."""
        number = getattr(self, "_number", None)
        if number is not None:
            os.close(number)

    def __reduce__(self) -> tuple[type[_OpenFile], tuple[Path]]:
        """Another process opens the file by itself."""
        return _OpenFile, (self.path,)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill a buffer of bytes from a place on.

        Raises:
            DataError: The file ends before, or cannot be read.
        """
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._number, [buffer[done : done + _BLOCK]], offset + done)
            except OSError as error:
                raise DataError(
                    f"{str(self.path)!r} cannot be read ({error.strerror})", "look at its disk"
                ) from error
            if not count:
                raise DataError(
                    f"{str(self.path)!r} is shorter than it was when it was opened",
                    "put it back, and leave it as it is while it is read",
                )
            done += count


@attrs.frozen(kw_only=True, eq=False)
class StoredArray:
    """An array that lies in a file as it is, and is read from there.

    Attributes:
        shape: Its shape.
        dtype: That of numpy, or of torch for bfloat16, which numpy does not have.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | torch.dtype
    _file: _OpenFile = attrs.field(alias="path", converter=_OpenFile)
    _offset: int
    _is_fortran: bool = False

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def rows_lie_together(self) -> bool:
        """Whether each row is one piece of the file."""
        return not self._is_fortran

    def array(self) -> npt.NDArray[Any]:
        """Return all of it in memory; bfloat16 as pairs of bytes.

        Raises:
            DataError: The file has become shorter.
        """
        content = np.empty(math.prod(self.shape) * self.dtype.itemsize, dtype=np.uint8)
        self._file.read_into(content.data, self._offset)
        if isinstance(self.dtype, torch.dtype):
            return content.reshape(*self.shape, self.dtype.itemsize)
        return content.view(self.dtype).reshape(self.shape, order="F" if self._is_fortran else "C")

    def rows(self, numbers: slice | Sequence[int] | npt.NDArray[np.int64]) -> Tensor:
        """Return some rows in memory.

        Args:
            numbers: A slice without a step, or the numbers of the rows.

        Raises:
            DataError: The file has become shorter.
            IndexError: There is no such row.
        """
        wanted = np.arange(len(self))[numbers] if isinstance(numbers, slice) else np.asarray(numbers)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"expected rows below {len(self)} but got {wanted.min()} to {wanted.max()}")
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        content = np.empty((len(wanted), width), dtype=np.uint8)
        # rows that follow each other are read in one piece
        cuts = np.flatnonzero(np.diff(wanted) != 1) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(wanted)], strict=True):
            if start < end:
                piece = content[start:end].reshape(-1).data
                self._file.read_into(piece, self._offset + int(wanted[start]) * width)
        if isinstance(self.dtype, torch.dtype):  # one that numpy lacks
            return torch.from_numpy(content).view(self.dtype).view(-1, *self.shape[1:])
        return torch.from_numpy(content.view(self.dtype).reshape(-1, *self.shape[1:]))


def array_of(stored: Any) -> npt.NDArray[Any]:
    """Return an entry of numbers or strings in memory.

    Raises:
        DataError: The file has become shorter.
    """
    if isinstance(stored, StoredArray):
        return stored.array()
    array: npt.NDArray[Any] = np.asarray(stored)
    return array


def texts_of(array: npt.NDArray[Any]) -> list[str]:
    """Return an array of strings ``[n]`` as strings.

    Raises:
        ValueError: A number in it stands for no letter.
    """
    native = array.astype(array.dtype.newbyteorder("="))
    # numpy raises SystemError for such a number; an array of empty strings has no numbers
    if native.size and native.dtype.itemsize:
        letters = native.view(np.uint32)
        if int(letters.max()) > sys.maxunicode:
            raise ValueError("a number in it stands for no letter")
    texts: list[str] = native.tolist()
    return texts


def dtype_text(dtype: np.dtype[Any] | torch.dtype) -> str:
    """Return the name of a dtype for a message."""
    return str(dtype).removeprefix("torch.")[:_LONGEST]
