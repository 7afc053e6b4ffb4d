"""Building block: files of stored features, read without loading them and without unpickling anything.

The layout ``lw2g-features/1`` has these entries; C classes, N rows a split, d numbers a row::

    train_x, test_x            [N, d]  float16 or float32 (bfloat16 in safetensors), finite
    train_y, test_y            [N]     integers 0 to C - 1, each class in train_y
    train_domain, test_domain  [N]     integers, optional: the domain of each row
    train_id, test_id          [N]     strings or integers, optional: a name of each row
    class_names, domain_names          strings, optional: by label, and by number of the domain
    metadata                           a JSON object, optional: where the rows come from

A file is one ``.npz``, one ``.safetensors`` (with strings in the JSON of its header), or a folder of ``.npy``
files with a ``features.json``. Entries that are strings may stand in the JSON object instead, by their name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lw2g.errors import DataError, nearest, shown
from lw2g.ground.spelling import composed_names, is_name
from lw2g.pixels.feature_containers import (
    JSON_FILE,
    LAYOUT,
    Readers,
    files_of,
    open_container,
    read_entry,
    strings_of,
)
from lw2g.pixels.stamps import Stamp, stamp_of
from lw2g.pixels.stored_arrays import StoredArray, array_of, dtype_text, texts_of
from lw2g.vit.pool_words import POOLS, Pool

__all__ = [
    "ENTRIES",
    "FORMAT",
    "JSON_FILE",
    "FeatureFile",
    "NumberedIds",
    "Rows",
    "Split",
    "Vectors",
    "open_features",
]

FORMAT = "lw2g-features/1"
ENTRIES = (
    *(f"{split}_{kind}" for split in ("train", "test") for kind in ("x", "y", "domain", "id")),
    *("class_names", "domain_names", "metadata"),
)
_DTYPES = {
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    torch.bfloat16: torch.bfloat16,
}
_LARGEST = int(np.iinfo(np.int64).max)
_ROWS = 4096
"""Rows that are looked at together."""

Split: TypeAlias = Literal["train", "test"]
Integers: TypeAlias = npt.NDArray[np.int64]


class NumberedIds(Sequence[str]):
    """The ids ``PREFIX/0``, ``PREFIX/1`` and so on, made when they are asked for."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix = prefix
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(f"{self._prefix}/{number}" for number in self._numbers[index])
        return f"{self._prefix}/{self._numbers[index]}"


@attrs.frozen(kw_only=True, eq=False)
class Vectors:
    """The vectors of a split, which lie on the disk until they are read; those of a packed file, in memory.

    Attributes:
        shape: How many they are, and the width of each.
        dtype: In which they are stored.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    _stored: StoredArray | Tensor

    def __getitem__(self, numbers: slice | Sequence[int] | Integers) -> Tensor:
        """Return some vectors, ``[n, d]``: a copy in memory.

        Raises:
            DataError: Their file has become shorter.
        """
        if isinstance(self._stored, StoredArray):
            return self._stored.rows(numbers)
        if isinstance(numbers, slice):
            return self._stored[numbers].clone()
        return self._stored[torch.as_tensor(numbers, dtype=torch.int64)]


@attrs.frozen(kw_only=True, eq=False)
class Rows:
    """One split of a file.

    Attributes:
        x: The vectors, ``[N, d]``.
        y: Their labels, int64 ``[N]``.
        domain: Their domains by number, int64 ``[N]``; None where the file has none.
        ids: A name of each.
    """

    x: Vectors
    y: Integers
    domain: Integers | None
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.y)

    def chunks(self) -> Iterator[Tensor]:
        """Yield the vectors in parts of a few thousand."""
        for first in range(0, len(self), _ROWS):
            yield self.x[first : first + _ROWS]


@attrs.frozen(kw_only=True, eq=False)
class FeatureFile:
    """A file of stored features that keeps the layout.

    Attributes:
        path: Where it is.
        splits: Its splits: train, test, or both.
        class_names: The name of each label.
        domain_names: The name of each domain; empty where there are none.
        metadata: Where the rows come from; empty where nobody says.
        stamps: What its files looked like before they were read.
    """

    path: Path
    splits: Mapping[Split, Rows]
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    metadata: Mapping[str, Any]
    stamps: Mapping[Path, Stamp]

    def changed(self) -> Path | None:
        """Return the first of its files that has changed since it was opened; None without one."""
        for path, stamp in self.stamps.items():
            if stamp_of(path) != stamp:
                return path
        return None

    @property
    def dim(self) -> int:
        """Width of a row."""
        return int(next(iter(self.splits.values())).x.shape[1])

    @property
    def dtype(self) -> str:
        """The dtype in which rows are stored, such as ``float16``."""
        return str(next(iter(self.splits.values())).x.dtype).removeprefix("torch.")

    def said(self, name: str) -> str:
        """Return what the metadata say of the backbone; empty where they say nothing, or something else."""
        # anybody writes such files: nothing is taken for granted of what stands in their JSON
        backbone = self.metadata.get("backbone")
        if not isinstance(backbone, dict):
            return ""
        value = backbone.get(name)
        if not isinstance(value, str):
            return ""
        return value

    @property
    def pool(self) -> Pool | None:
        """How the backbone's output was pooled, as its fingerprint names it; None where nobody says."""
        said = self.said("pool")
        if not said and self.metadata.get("token") == "cls":
            # files of the first layout have class tokens alone, and say so
            return "token"
        for pool in POOLS:
            if pool == said:
                return pool
        return None

    @property
    def layers(self) -> int | None:
        """Of how many of the backbone's last layers rows are joined; None where nobody says."""
        backbone = self.metadata.get("backbone")
        if not isinstance(backbone, dict):
            # files of the first layout know the last one alone, and say so
            return 1 if self.metadata.get("token") == "cls" else None
        # files of releases that knew one layer do not speak of it
        value = backbone.get("layers", 1)
        # type, not isinstance: true in JSON is an int to Python
        return value if type(value) is int and value >= 1 else None


def open_features(path: Path, splits: Sequence[Split] = ("train", "test")) -> FeatureFile:
    """Open a file of stored features; labels and names are read, vectors are looked at in parts.

    Args:
        path: A ``.npz`` or ``.safetensors`` file, or a folder of ``.npy`` files.
        splits: The splits that must be there; others are not read.

    Raises:
        DataError: It is missing, damaged, or does not keep the layout: one line says where.
    """
    stamps = {file: stamp_of(file) for file in files_of(path)}
    readers = open_container(path)
    unknown = [name for name in readers if name not in ENTRIES]
    if unknown:
        raise DataError(
            f"{str(path)!r}: no entry can be called {shown(unknown[0])}{nearest(unknown[0], ENTRIES)}",
            f"entries are {', '.join(ENTRIES)}",
        )
    metadata, strings = _metadata(path, readers)

    def names_of(name: str) -> list[str] | None:
        """Return the strings of an entry, which may stand in the metadata; None where there is none."""
        stored = strings[name] if name in strings else read_entry(path, name, readers)
        return None if stored is None else strings_of(path, name, stored)

    found = {split: _rows(path, split, readers, names_of) for split in splits}
    widths = {split: rows.x.shape[1] for split, rows in found.items()}
    if len(set(widths.values())) > 1:
        raise DataError(
            f"{str(path)!r}: rows of train_x have {widths['train']} numbers and rows of test_x "
            f"{widths['test']}",
            "store features of one backbone",
        )
    if len({rows.x.dtype for rows in found.values()}) > 1:
        raise DataError(f"{str(path)!r}: train_x and test_x differ in dtype", "store both in one")
    classes = _class_names(path, found, names_of("class_names"))
    domains = _domain_names(path, found, names_of("domain_names"))
    # checked last, because it reads all vectors from the disk: every other mistake is reported without that
    for split, rows in found.items():
        _require_finite(path, split, rows)
    return FeatureFile(
        path=path,
        splits=found,
        class_names=classes,
        domain_names=domains,
        metadata=metadata,
        stamps=stamps,
    )


# -- entries -------------------------------------------------------------------------------------------------


def _metadata(path: Path, readers: Readers) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON object without the entries that stand in it, and those.

    Raises:
        DataError: It is no JSON object, or of another format.
    """
    stored = read_entry(path, "metadata", readers)
    if stored is None:
        return {}, {}
    if not isinstance(stored, str):
        stored = _text_of(path, stored)
    try:
        content = json.loads(stored)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{str(path)!r}: metadata is no JSON ({error})", LAYOUT) from error
    if not isinstance(content, dict):
        raise DataError(f"{str(path)!r}: metadata is no JSON object but {shown(content)}", LAYOUT)
    if content.get("format", FORMAT) != FORMAT:
        raise DataError(
            f"{str(path)!r} has the format {shown(content['format'])}, and this lw2g reads {FORMAT!r}",
            "update lw2g, or write the file again",
        )
    strings = {name: content.pop(name) for name in ENTRIES if name in content}
    backbone = content.get("backbone")
    if isinstance(backbone, dict):
        for value in backbone.values():
            # a record and a report name the backbone as the file does
            if isinstance(value, str) and not is_name(value):
                raise DataError(
                    f"{str(path)!r}: metadata names the backbone by {shown(value)}",
                    "leave control characters and ends of lines out",
                )
    return content, strings


def _text_of(path: Path, stored: Any) -> str:
    """Return the text that an archive holds as an array of one string.

    Raises:
        DataError: It is none.
    """
    if getattr(stored.dtype, "kind", "") != "U" or stored.shape:
        raise DataError(
            f"{str(path)!r}: expected a string in metadata but got {dtype_text(stored.dtype)} "
            f"{list(stored.shape)}",
            LAYOUT,
        )
    try:
        return texts_of(array_of(stored).reshape(1))[0]
    except ValueError as error:
        raise DataError(f"{str(path)!r}: metadata is no text", LAYOUT) from error


def _rows(path: Path, split: Split, readers: Readers, names_of: Callable[[str], list[str] | None]) -> Rows:
    """Return vectors, labels, domains and ids of a split; ids are numbers where the file has none."""
    vectors = _vectors(path, f"{split}_x", _needed(path, f"{split}_x", readers))
    count = vectors.shape[0]
    labels = _integers(path, f"{split}_y", _needed(path, f"{split}_y", readers), count)
    domain = read_entry(path, f"{split}_domain", readers)
    if domain is not None:
        domain = _integers(path, f"{split}_domain", domain, count)
    ids: Sequence[str] | None = names_of(f"{split}_id")
    if ids is None:
        ids = NumberedIds(split, count)
    else:
        _require_ids(path, split, ids, count)
        ids = tuple(ids)
    return Rows(x=vectors, y=labels, domain=domain, ids=ids)


def _needed(path: Path, name: str, readers: Readers) -> Any:
    found = read_entry(path, name, readers)
    if found is None:
        raise DataError(
            f"{str(path)!r} has no entry {name!r} (found {', '.join(sorted(readers)) or 'none'})", LAYOUT
        )
    return found


def _vectors(path: Path, name: str, stored: StoredArray | npt.NDArray[Any]) -> Vectors:
    """Return an entry of vectors without reading them from the disk."""
    dtype = _DTYPES.get(stored.dtype)
    if dtype is None:
        raise DataError(
            f"{str(path)!r}: expected float16 or float32 in {name} but got {dtype_text(stored.dtype)}",
            "convert it, as by .astype('float32')",
        )
    shape = stored.shape
    if len(shape) != 2 or not all(shape):
        raise DataError(
            f"{str(path)!r}: expected {name} [rows, numbers] but got {shown(list(shape))}",
            "store one vector for each image",
        )
    if isinstance(stored, StoredArray) and stored.rows_lie_together:
        return Vectors(shape=(shape[0], shape[1]), dtype=dtype, stored=stored)
    whole = np.ascontiguousarray(array_of(stored))
    return Vectors(shape=(shape[0], shape[1]), dtype=dtype, stored=torch.from_numpy(whole))


def _integers(path: Path, name: str, stored: StoredArray | npt.NDArray[Any], count: int) -> Integers:
    """Return an entry of a whole number for each row."""
    if not isinstance(stored.dtype, np.dtype) or stored.dtype.kind not in "iu":
        raise DataError(
            f"{str(path)!r}: expected integers in {name} but got {dtype_text(stored.dtype)}", "convert it"
        )
    if stored.shape != (count,):
        rows = name.rpartition("_")[0] + "_x"
        raise DataError(
            f"{str(path)!r}: {rows} has {count} rows, and {name} has the shape {shown(list(stored.shape))}",
            "store one number for each row",
        )
    array = array_of(stored)
    least, most = int(array.min()), int(array.max())
    if least < 0 or most > _LARGEST:
        raise DataError(f"{str(path)!r}: {name} holds {least if least < 0 else most}", "count from 0")
    return array.astype(np.int64)


def _require_ids(path: Path, split: Split, ids: Sequence[str], count: int) -> None:
    """Refuse ids of which there is not exactly one for each row."""
    if len(ids) != count:
        raise DataError(
            f"{str(path)!r}: {split}_x has {count} rows, and {split}_id has {len(ids)}",
            "store one id for each row",
        )
    if len(set(ids)) < count:
        raise DataError(f"{str(path)!r}: {split}_id repeats an id", "give each row an id of its own")


def _class_names(path: Path, splits: Mapping[Split, Rows], names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the name of each label, and refuse labels that are not 0 to C - 1."""
    # every class must be learned from: where there are training rows, they say which classes there are
    reference: Split = "train" if "train" in splits else "test"
    there = np.unique(splits[reference].y)
    if names is None:
        count = int(there[-1]) + 1
        source = f"{reference}_y"
    else:
        count = len(names)
        source = f"class_names, which has {count} names,"
    for split, rows in splits.items():
        most = int(rows.y.max())
        if most >= count:
            raise DataError(
                f"{str(path)!r}: {split}_y holds the label {most}, of which {source} knows nothing",
                "number classes from 0, and give each one training rows",
            )
    # gaps are sought among the labels that are there, no more than rows: a label may be any number
    if len(there) < count:
        gaps = np.flatnonzero(there != np.arange(len(there)))
        lacking = int(gaps[0]) if len(gaps) else len(there)
        raise DataError(
            f"{str(path)!r}: no row of {reference}_y has the label {lacking} of {count}",
            "number classes from 0 without gaps",
        )
    if names is None:
        names = tuple(map(str, range(count)))
    names = composed_names(names)
    if "" in names:
        raise DataError(f"{str(path)!r}: class_names has an empty name", "give each class a name")
    if len(set(names)) < count:
        raise DataError(f"{str(path)!r}: class_names repeats a name", "give each class a name of its own")
    if "test" in splits:
        untested = [names[label] for label in np.setdiff1d(there, splits["test"].y).tolist()]
        if untested:
            raise DataError(
                f"train and test of {str(path)!r} hold different classes: {count} in train, "
                f"{count - len(untested)} in test, in one only {shown(untested[:5])}",
                "give each class test rows, or leave it out",
            )
    return names


def _domain_names(path: Path, splits: Mapping[Split, Rows], names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the name of each domain, and refuse domains of one split alone."""
    domains = {split: rows.domain for split, rows in splits.items() if rows.domain is not None}
    if not domains:
        return ()
    if len(domains) < len(splits):
        given = next(iter(domains))
        raise DataError(f"{str(path)!r}: {given} has domains, and the other split has none", "store both")
    count = 1 + max(int(domain.max()) for domain in domains.values())
    rows = sum(map(len, splits.values()))
    if count > rows:
        raise DataError(
            f"{str(path)!r}: a row is of the domain {count - 1}, and there are {rows} rows",
            "number domains from 0",
        )
    if names is None:
        return tuple(map(str, range(count)))
    names = composed_names(names)
    if "" in names:
        raise DataError(f"{str(path)!r}: domain_names has an empty name", "give each domain a name")
    if len(names) < count or len(set(names)) < len(names):
        raise DataError(
            f"{str(path)!r}: expected {count} distinct domain_names but got {len(names)}",
            "give each domain a name of its own",
        )
    return names


def _require_finite(path: Path, split: Split, rows: Rows) -> None:
    """Refuse rows that hold what is no number, or whose length float32 cannot hold."""
    for number, part in enumerate(rows.chunks()):
        part = part.float()
        # the length is NaN or infinite if a value is
        sound = torch.linalg.vector_norm(part, dim=1).isfinite()
        if bool(sound.all()):
            continue
        row = int((~sound).int().argmax())
        first = f"first in row {number * _ROWS + row}"
        if bool(part[row].isfinite().all()):
            largest = float(part[row].abs().max())
            raise DataError(
                f"{str(path)!r}: {split}_x holds numbers of up to {largest:g}, whose squares float32 cannot "
                f"hold, {first}",
                "scale all rows of the file down",
            )
        raise DataError(
            f"{str(path)!r}: {split}_x holds NaN or infinity, {first}",
            "float16 overflows above 65504: store float32, or look at how it was made",
        )
