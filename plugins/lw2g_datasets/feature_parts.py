"""A file of stored features that is being written, and can be continued after a kill.

The folder ``FILE.part`` next to the file has the rows computed so far, a checksum of each block of them, and
what they were computed from. A later call with the same images, backbone and precision continues from there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file

from lw2g.disk.protocol import digest_of
from lw2g.disk.sealed import sync, write_atomically
from lw2g.errors import DataError
from lw2g.interfaces.stream import TaskData
from lw2g.pixels.feature_files import JSON_FILE, Split

__all__ = ["Dtype", "Part"]

Dtype: TypeAlias = Literal["float32", "float16"]
_COPY_BYTES = 1 << 20
_PLAN = "plan.json"
"""What a half file is of."""
_DONE = "done.json"
"""What it holds: a sum of each block of rows that was computed."""


class _RowsFile:
    """The vectors of a split in the making, ``[n, d]``, in a ``.npy`` file.

    Never written through a map: a full disk is an error here, and ends the process there.

    Args:
        path: The file; what a half one holds in place of rows stays.
        size: Its rows.
        dim: Their width.
        dtype: In which they are stored.
    """

    def __init__(self, path: Path, size: int, dim: int, dtype: Dtype) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._width = dim * self.dtype.itemsize
        header = io.BytesIO()
        described = {"descr": self.dtype.str, "fortran_order": False, "shape": (size, dim)}
        np.lib.format.write_array_header_1_0(header, described)
        self._start = len(header.getvalue())
        path.touch()
        with path.open("r+b") as file:
            file.write(header.getvalue())
            file.truncate(self._start + size * self._width)

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        """Return some rows, ``[last - first, d]``."""
        with self.path.open("rb") as file:
            file.seek(self._start + first * self._width)
            content = bytearray(file.read((last - first) * self._width))
        return np.frombuffer(content, self.dtype).reshape(last - first, -1)

    def write(self, first: int, rows: npt.NDArray[Any]) -> None:
        """Put rows in their place, and on the disk."""
        with self.path.open("r+b") as file:
            file.seek(self._start + first * self._width)
            file.write(np.ascontiguousarray(rows).data)
            file.flush()
            os.fsync(file.fileno())


@attrs.frozen(kw_only=True)
class Part:
    """A file in the making.

    Attributes:
        out: The file.
        folder: Where it is made.
        rows: The vectors of each split.
        sums: Of each split, the SHA-256 of the rows of each block that was computed. Nothing else says so:
            what is damaged, rows or note, is computed again.
    """

    out: Path
    folder: Path
    rows: Mapping[Split, _RowsFile]
    sums: Mapping[Split, list[str]]

    @classmethod
    def open(
        cls, out: Path, metadata: Mapping[str, Any], sizes: Mapping[Split, int], dim: int, dtype: Dtype
    ) -> Part:
        """Begin a file, or go on with a half one.

        Raises:
            DataError: A half one is of something else.
        """
        folder = out.with_name(out.name + ".part")
        plan = json.dumps({"of": digest_of(metadata), "rows": sizes}).encode()
        if (folder / _PLAN).is_file():
            if (folder / _PLAN).read_bytes() != plan:
                raise DataError(
                    f"{str(folder)!r} was begun with other images, weights or options",
                    "remove it, or name another file",
                )
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        rows = {
            split: _RowsFile(folder / f"{split}_x.npy", size, dim, dtype) for split, size in sizes.items()
        }
        # the plan last: without it, a kill in between begins anew
        write_atomically(folder / _PLAN, plan)
        return cls(out=out, folder=folder, rows=rows, sums=_noted(folder / _DONE, sizes))

    def fill(
        self,
        split: Split,
        blocks: Iterable[TaskData],
        features: Callable[[TaskData], torch.Tensor],
        progress: Callable[[int], None],
    ) -> float:
        """Compute the rows of a split that are missing, and return the mean length of all.

        Args:
            split: The split.
            blocks: Its images, the same ones together whenever it is called.
            features: Computes the rows of a block.
            progress: Told how many rows are there.

        Raises:
            DataError: A feature is not finite as it is stored.
        """
        rows = self.rows[split]
        sums = self.sums[split]
        first = 0
        length = 0.0
        for number, part in enumerate(blocks):
            last = first + len(part)
            block = rows.read(first, last)
            if sums[number : number + 1] != [_sum_of(block)]:
                # float16 overflows to infinity, which is refused below
                with np.errstate(over="ignore"):
                    block = features(part).numpy().astype(rows.dtype)
                rows.write(first, block)
                # after the rows: what it speaks of must be on the disk
                sums[number : number + 1] = [_sum_of(block)]
                write_atomically(self.folder / _DONE, json.dumps(self.sums).encode())
            wide = block.astype(np.float64)
            lengths = np.sqrt((wide * wide).sum(axis=1))
            if not np.isfinite(lengths).all():
                name = part.ids[int((~np.isfinite(lengths)).argmax())]
                raise DataError(
                    f"the feature of image {name!r} is not finite as {rows.dtype}",
                    "look at weights and precision, or store float32",
                )
            length += float(lengths.sum())
            first = last
            progress(first)
        return length / first

    def finish(self, metadata: Mapping[str, Any], entries: Mapping[str, Any]) -> None:
        """Write the file whole, put it in its place, and remove the part."""
        strings = {name: value for name, value in entries.items() if isinstance(value, list)}
        arrays = {name: value for name, value in entries.items() if name not in strings}
        whole = self.folder / ("whole" + self.out.suffix)
        match self.out.suffix:
            case ".npz":
                for name, value in strings.items():
                    arrays[name] = np.array(value, dtype=str)
                arrays["metadata"] = np.array(json.dumps(metadata))
                self._archive(whole, arrays)
            case ".safetensors":
                tensors = {
                    f"{split}_x": np.load(rows.path, mmap_mode="r") for split, rows in self.rows.items()
                }
                described = json.dumps({**metadata, **strings})  # the format holds numbers alone
                save_file({**tensors, **arrays}, whole, metadata={"metadata": described})
            case _:
                self._directory(whole, arrays, {**metadata, **strings})
        sync(whole)
        os.replace(whole, self.out)
        shutil.rmtree(self.folder)

    def _archive(self, whole: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the entries as one .npz: rows, which are on disk, by copying, other arrays from memory."""
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for rows in self.rows.values():
                with _member(archive, rows.path.name) as member, rows.path.open("rb") as file:
                    shutil.copyfileobj(file, member, _COPY_BYTES)
            for name, array in arrays.items():
                with _member(archive, f"{name}.npy") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    def _directory(
        self, whole: Path, arrays: Mapping[str, npt.NDArray[Any]], described: Mapping[str, Any]
    ) -> None:
        """Write the entries as a folder of .npy files: rows, which are on disk, by a second name."""
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        for rows in self.rows.values():
            os.link(rows.path, whole / rows.path.name)
        for name, array in arrays.items():
            np.save(whole / f"{name}.npy", array, allow_pickle=False)
        (whole / JSON_FILE).write_text(json.dumps(described, indent=1), encoding="utf-8")


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member to be written; it has no date, so that equal arrays make equal files."""
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


def _noted(path: Path, splits: Iterable[Split]) -> dict[Split, list[str]]:
    """Return the sums of blocks that a note has of each split; none where it is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    noted: dict[Split, list[str]] = {}
    for split in splits:
        sums = content.get(split) if isinstance(content, dict) else None
        noted[split] = sums if isinstance(sums, list) else []
    return noted


def _sum_of(rows: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()
