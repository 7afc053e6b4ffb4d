"""Text vectors of class names, and the file that holds them.

A file of text vectors is a ``.safetensors`` file with float ``vectors [n, dim]`` and, in its metadata, the
JSON list ``sentences`` of what each row says; or an ``.npz`` file with the arrays ``vectors`` and
``sentences``. A row may say a whole sentence (``"A photo of apple."``) or just a class (``"apple"``), which
then stands for its sentence.

Three entries more may stand in it. ``classes``, as ``sentences``: the class that each row speaks of, so that
a class may have several sentences. ``projection [d, dim]``: the map of a CLIP model from features of the
image to the width of text. ``logit_scale``: the factor on its cosines, in the metadata of ``.safetensors``.
``python -m lw2g_constraints.export`` writes such files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from lw2g.errors import ConfigError, DataError, counted, first_line, nearest
from lw2g.ground.spelling import composed, composed_names
from lw2g.pixels.feature_containers import open_archive, open_tensors, read_entry, strings_of
from lw2g.pixels.stored_arrays import StoredArray, array_of, dtype_text

__all__ = [
    "TextVectors",
    "class_sentence",
    "read_text_vectors",
    "task_sentence",
    "words",
    "write_vectors",
]

_BEFORE = "A photo of "
_AFTER = "."
_ENTRIES = ("vectors", "sentences", "classes", "projection", "logit_scale")
_HOW = "write one with python -m lw2g_constraints.export"


def words(name: str) -> str:
    """Return a class name in words: ``aquarium fish`` for ``aquarium_fish``."""
    return name.replace("_", " ")


def class_sentence(name: str) -> str:
    """Return the sentence of a class.

    >>> class_sentence("aquarium_fish")
    'A photo of aquarium fish.'
    """
    return task_sentence([name])


def task_sentence(names: Sequence[str]) -> str:
    """Return the sentence of a task, which names its classes in their order.

    >>> task_sentence(["apple", "aquarium_fish"])
    'A photo of apple or aquarium fish.'
    """
    return _BEFORE + " or ".join(map(words, names)) + _AFTER


@attrs.frozen(kw_only=True, eq=False)
class TextVectors:
    """What a file of text vectors holds.

    Attributes:
        path: The file, for messages.
        option: The option that names it, for messages.
        vectors: ``[n, dim]`` float32, of any length.
        sentences: What each row says.
        classes: The class that each row speaks of; empty if the file does not say.
        projection: Map from features of images to the width of text, ``[d, dim]``; None without one.
        logit_scale: Factor on cosines; None if the file does not say.
    """

    path: Path
    option: str
    vectors: Tensor
    sentences: tuple[str, ...]
    classes: tuple[str, ...] = ()
    projection: Tensor | None = None
    logit_scale: float | None = None

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self.vectors.shape[1]

    def sentence(self, sentence: str) -> Tensor | None:
        """Return the vector ``[dim]`` of a sentence, or of the class that it names; None without one."""
        sentence = composed(sentence)
        subject = sentence.removeprefix(_BEFORE).removesuffix(_AFTER)
        for text in (sentence, subject):
            if text in self.sentences:
                return self.vectors[self.sentences.index(text)]
        return None

    def of_class(self, name: str) -> Tensor:
        """Return the unit vector of a class, ``[dim]``: of the mean of its sentences' unit vectors.

        Raises:
            DataError: The file has none.
        """
        called = words(composed(name))
        # not strict: a file may say of no row which class it speaks of
        rows = [row for row, of in zip(self.vectors, self.classes, strict=False) if words(of) == called]
        if not rows:
            row = self.sentence(class_sentence(name))
            if row is not None:
                rows = [row]
        if not rows:
            raise DataError(
                f"{self.option}: {str(self.path)!r} has no vector for class {name!r}"
                f"{nearest(called, self.classes or self.sentences)}",
                "add it, under the name that the data have for the class",
            )
        # each sentence at length 1 before the mean: a long vector has no greater say
        units = functional.normalize(torch.stack(rows), dim=1)
        return functional.normalize(units.mean(0), dim=0)


def read_text_vectors(path: Path, option: str) -> TextVectors:
    """Read a file of text vectors.

    Args:
        path: The file.
        option: The option that names it, for messages.

    Raises:
        ConfigError: There is no such file.
        DataError: It is not a file of text vectors.
    """
    if not path.is_file():
        raise ConfigError(f"{option}: no file {str(path)!r}", _HOW)
    read = _read(path, option)
    rows = len(read.sentences)
    dim = 0
    if read.vectors.ndim:
        dim = read.vectors.shape[-1]
    # with classes a sentence may stand for several of them
    repeated = len(set(read.sentences)) < rows and not read.classes
    if read.vectors.ndim != 2 or not dim or len(read.vectors) != rows or repeated:
        raise DataError(
            f"{option}: {str(path)!r} has vectors of shape {tuple(read.vectors.shape)} for "
            f"{len(set(read.sentences))} different sentences",
            "it needs one row per sentence, each named once",
        )
    if read.classes and len(read.classes) != rows:
        raise DataError(
            f"{option}: {str(path)!r} names {counted(len(read.classes), 'class')} for {counted(rows, 'row')}",
            "'classes' says of each row which class it speaks of",
        )
    # a length is NaN or infinite if a value is, or if float32 cannot hold its square
    lengths = torch.linalg.vector_norm(read.vectors, dim=1)
    if not bool(lengths.isfinite().all()) or not bool(read.vectors.any(dim=1).all()):
        raise DataError(
            f"{option}: {str(path)!r} has a vector that is zero or not finite, or too long for float32", _HOW
        )
    if read.projection is not None:
        _require_projection(read.projection, dim, path, option)
    scale = read.logit_scale
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise DataError(
            f"{option}: {str(path)!r} has the logit_scale {scale!r}",
            "it is the factor on cosines, 100 in most CLIP models",
        )
    return read


def _require_projection(projection: Tensor, dim: int, path: Path, option: str) -> None:
    """Refuse a projection that does not map to vectors of width ``dim``, or is not finite."""
    if projection.ndim != 2 or projection.shape[1] != dim:
        is_turned = projection.ndim == 2 and projection.shape[0] == dim
        turned = "; transpose it" if is_turned else ""
        raise DataError(
            f"{option}: {str(path)!r} has a projection of shape {tuple(projection.shape)} to vectors of "
            f"width {dim}",
            f"it maps rows of features to rows of text: [d, {dim}]{turned}",
        )
    if not bool(projection.isfinite().all()):
        raise DataError(
            f"{option}: {str(path)!r} has a projection that is not finite, or too large for float32", _HOW
        )


def write_vectors(
    path: Path,
    vectors: Tensor,
    sentences: Sequence[str],
    encoder: str,
    classes: Sequence[str] = (),
    *,
    projection: Tensor | None = None,
    logit_scale: float | None = None,
) -> None:
    """Write a file of text vectors.

    Args:
        path: Ends in ``.safetensors``.
        vectors: ``[n, dim]``.
        sentences: What each row says.
        encoder: What made the vectors; kept as a note.
        classes: The class that each row speaks of, where classes have several sentences.
        projection: Map from features of images to the width of text, ``[d, dim]``.
        logit_scale: Factor on cosines.

    Raises:
        ValueError: Rows and sentences differ in number.
    """
    if vectors.ndim != 2 or len(vectors) != len(sentences):
        raise ValueError(f"expected {len(sentences)} rows but got {tuple(vectors.shape)}")
    note = {"sentences": json.dumps(list(sentences)), "encoder": encoder, "dim": str(vectors.shape[1])}
    if classes:
        note["classes"] = json.dumps(list(classes))
    if logit_scale is not None:
        note["logit_scale"] = str(logit_scale)
    tensors = {"vectors": vectors.float().contiguous()}
    if projection is not None:
        tensors["projection"] = projection.float().contiguous()
    save_file(tensors, path, metadata=note)


def _read(path: Path, option: str) -> TextVectors:
    """Return what a file holds, whatever its shapes."""
    try:
        stored = _archived(path) if path.suffix == ".npz" else _tensors(path)
        vectors, projection = (_floats(path, name, stored.get(name)) for name in ("vectors", "projection"))
        sentences, classes = (_texts(path, name, stored.get(name)) for name in ("sentences", "classes"))
        scale = stored.get("logit_scale")
        logit_scale = None if scale is None else float(scale)
    except (DataError, ValueError, TypeError, RecursionError) as error:
        reason = error.what if isinstance(error, DataError) else first_line(error)
        raise _no_vectors(path, option, reason.removeprefix(f"{str(path)!r}: ")) from error
    if vectors is None or sentences is None:
        raise _no_vectors(path, option, "'vectors' and 'sentences'")
    return TextVectors(
        path=path,
        option=option,
        vectors=vectors,
        sentences=composed_names(sentences),
        classes=composed_names(classes or ()),
        projection=projection,
        logit_scale=logit_scale,
    )


def _no_vectors(path: Path, option: str, reason: str) -> DataError:
    return DataError(f"{option}: {str(path)!r} holds no text vectors ({reason})", _HOW)


def _archived(path: Path) -> dict[str, Any]:
    """Return the entries of an ``.npz`` file."""
    readers = open_archive(path)
    stored = {name: read_entry(path, name, readers) for name in _ENTRIES}
    if stored["logit_scale"] is not None:
        stored["logit_scale"] = array_of(stored["logit_scale"]).item()
    return stored


def _tensors(path: Path) -> dict[str, Any]:
    """Return the entries of a ``.safetensors`` file; strings are JSON in its header."""
    readers, notes = open_tensors(path)
    stored = {name: read_entry(path, name, readers) for name in ("vectors", "projection")}
    for name in ("sentences", "classes"):
        if name in notes:
            stored[name] = json.loads(notes[name])
    return {**stored, "logit_scale": notes.get("logit_scale")}


def _floats(path: Path, name: str, stored: Any) -> Tensor | None:
    """Return an entry of numbers, float32."""
    if stored is None:
        return None
    if isinstance(stored.dtype, np.dtype) and stored.dtype.kind not in "fiu":
        raise DataError(f"{str(path)!r}: expected numbers in {name} but got {dtype_text(stored.dtype)}")
    if isinstance(stored, StoredArray) and isinstance(stored.dtype, torch.dtype):
        pairs = torch.from_numpy(stored.array())
        return pairs.view(stored.dtype).view(stored.shape).float()
    with np.errstate(over="ignore"):  # callers refuse rows that are not finite
        return torch.from_numpy(array_of(stored).astype(np.float32, order="C"))


def _texts(path: Path, name: str, stored: Any) -> tuple[str, ...] | None:
    return None if stored is None else tuple(strings_of(path, name, stored))
