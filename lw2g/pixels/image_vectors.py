"""Stored features in place of images: batches of vectors, read where they lie and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lw2g.errors import ConfigError, DataError
from lw2g.ground.spelling import expanded
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.stream import TaskStream
from lw2g.interfaces.vectors import VectorFacts, VectorSource
from lw2g.pixels.feature_containers import SUFFIXES, array_of_file
from lw2g.pixels.feature_files import FeatureFile, NumberedIds, open_features
from lw2g.pixels.feature_rows import Integers
from lw2g.pixels.image_set import ImageSet
from lw2g.pixels.pixels import Originals
from lw2g.vit.backbone import BackboneFingerprint

__all__ = ["VectorSet", "as_vectors", "facts_of_all", "named_vectors", "read_vectors", "require_made_by"]

_READ = 4096
"""Vectors read at once; batches are views of them."""


class VectorSet(ImageSet):
    """The vectors of some tasks, in order: an image set whose images are its queries.

    Args:
        originals: Where they are.
        device: Where they are wanted.
    """

    def __init__(self, originals: Originals, device: torch.device) -> None:
        self.originals = originals
        self._device = device
        self.labels = torch.as_tensor(np.concatenate([part.labels for part in originals.parts]))
        self._ends = np.cumsum(list(map(len, originals.parts)))

    @cached_property
    def ids(self) -> tuple[str, ...]:  # type: ignore[override]
        """The ids of the vectors."""
        return self.originals.ids

    def batches(self, order: Sequence[Sequence[int]], *, seed: int | None = None) -> Iterator[Batch]:
        """Yield one batch per list of positions.

        Args:
            order: Positions, batch by batch.
            seed: Not read: nothing is drawn.
        """
        for group in _together(order):
            positions = np.concatenate([np.asarray(batch, dtype=np.int64) for batch in group])
            sizes = list(map(len, group))
            rows = torch.split(self._vectors(positions), sizes)
            samples = torch.split(torch.from_numpy(positions), sizes)
            for positions_of_batch, vectors in zip(samples, rows, strict=True):
                labels = self.labels[positions_of_batch].to(self._device, non_blocking=True)
                # a batch asks for both when a step needs them; here both are there, and the same
                get_vectors = partial(_given, vectors)
                yield Batch(labels=labels, samples=positions_of_batch, images=get_vectors, query=get_vectors)

    def queries(self, positions: Sequence[int]) -> Tensor:
        """Return vectors by position, ``[n, dim]`` float32 on the device."""
        return self._vectors(np.asarray(positions, dtype=np.int64))

    def _vectors(self, positions: Integers) -> Tensor:
        """Return the vectors at some positions of one part or several, ``[n, dim]``, on the device."""
        owner = np.searchsorted(self._ends, positions, side="right")
        first = int(owner[0])
        if bool((owner == first).all()):  # of one task, as in training: read without a copy
            return self._of_part(first, positions).to(self._device)
        rows: Tensor | None = None
        for number in np.unique(owner).tolist():
            in_part = np.flatnonzero(owner == number)
            own = self._of_part(number, positions[in_part])
            if rows is None:
                rows = own.new_empty(len(positions), own.shape[1])
            rows[torch.from_numpy(in_part)] = own
        assert rows is not None  # a batch has a position at least
        return rows.to(self._device)

    def _of_part(self, number: int, positions: Integers) -> Tensor:
        part = self.originals.parts[number]
        start = int(self._ends[number]) - len(part)
        return cast(VectorSource, part.source).vectors(part.indices[positions - start])


def _given(vectors: Tensor) -> Tensor:
    return vectors


def _together(order: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield lists of batches that are read in one piece."""
    group: list[Sequence[int]] = []
    size = 0
    for batch in order:
        if group and size + len(batch) > _READ:
            yield group
            group = []
            size = 0
        group.append(batch)
        size += len(batch)
    if group:
        yield group


def facts_of_all(streams: Sequence[TaskStream]) -> VectorFacts | None:
    """Return where the vectors of streams come from that follow each other; None where they are of images.

    Raises:
        ConfigError: Some are of images, or the vectors are of several backbones.
    """
    facts = [stream.vectors for stream in streams]
    first = facts[0]
    for stream, other in zip(streams, facts, strict=True):
        if (first is None) != (other is None):
            what = ("images", "stored features")
            raise ConfigError(
                f"benchmark {stream.name!r} has {what[other is not None]}, and the run began with "
                f"{what[first is not None]}",
                "name one of the same kind",
            )
        if first is not None and other is not None and _made_by(first) != _made_by(other):
            raise ConfigError(
                f"the stored features of benchmark {stream.name!r} are of another backbone than the run's",
                "store features of the same backbone: lw2g data features",
            )
    return first


def _made_by(facts: VectorFacts) -> tuple[int, str, str, str | None, int | None]:
    return facts.dim, facts.model, facts.sha256, facts.pool, facts.layers


# -- a user's own --------------------------------------------------------------------------------------------


def named_vectors(given: Any, known: BackboneFingerprint) -> tuple[list[Any], list[str | None]]:
    """Return a user's vectors one by one, and the ids of those that lie in files.

    Args:
        given: A tensor or array ``[n, dim]`` or ``[dim]``, the path of a file of them, or several of these.
        known: The backbone that they must be of.

    Raises:
        DataError: As :func:`as_vectors`.
    """
    if isinstance(given, str | Tensor | np.ndarray) or not isinstance(given, Iterable):
        given = [given]
    vectors: list[Any] = []
    names: list[str | None] = []
    for one in given:
        if isinstance(one, str | Path):
            ids, rows = read_vectors(expanded(one), known)
            names.extend(ids)
        else:
            rows = as_vectors(one, known.width)
            names.extend([None] * len(rows))
        vectors.extend(rows)
    if not vectors:
        raise DataError("no vector was given", "give at least one")
    return vectors, names


def as_vectors(given: Any, dim: int) -> Tensor:
    """Return a user's vectors, ``[n, dim]`` float32.

    Args:
        given: A tensor or array, ``[n, dim]`` or ``[dim]``.
        dim: The width that is expected.

    Raises:
        DataError: Something is no vector of this width, or holds values that are no numbers.
    """
    if not isinstance(given, Tensor | np.ndarray) or not torch.as_tensor(given).is_floating_point():
        raise DataError(
            f"a {type(given).__name__} is no vector of floating numbers",
            f"give arrays or tensors [n, {dim}], or a file of them",
        )
    vectors = torch.as_tensor(given)
    if vectors.ndim == 1:
        vectors = vectors[None]
    if vectors.ndim != 2 or vectors.shape[1] != dim or not len(vectors):
        raise DataError(
            f"expected vectors [n, {dim}] but got {list(vectors.shape)}",
            "give features of the backbone that the model was made with",
        )
    vectors = vectors.float()
    if not bool(vectors.isfinite().all()):
        raise DataError("a vector holds values that are no finite numbers", "look at how it was made")
    return vectors


def read_vectors(path: Path, known: BackboneFingerprint) -> tuple[Sequence[str], Tensor]:
    """Return ids and vectors of a ``.npy`` file, or of the test split of a file of stored features.

    Args:
        path: The file.
        known: The backbone that they must be of.

    Raises:
        DataError: It cannot be read, or holds other vectors.
    """
    if path.suffix == ".npy":
        array = array_of_file(path)
        try:
            vectors = as_vectors(array, known.width)
        except DataError as error:
            raise DataError(f"{str(path)!r}: {error.what}", error.remedy) from error
        return NumberedIds(path.name, len(vectors)), vectors
    if path.is_file() and path.suffix not in (".npz", ".safetensors"):
        raise DataError(
            f"{str(path)!r} holds no vectors, and the model takes no images", f"give a .npy file, {SUFFIXES}"
        )
    file = open_features(path, ("test",))
    require_made_by(file, known)
    rows = file.splits["test"]
    return rows.ids, as_vectors(rows.x[:], known.width)


def require_made_by(file: FeatureFile, known: BackboneFingerprint) -> None:
    """Refuse a file that says it is of another backbone; one that says nothing is believed.

    Raises:
        DataError: It is of another one.
    """
    said = file.said("sha256")
    same_form = file.pool in (None, known.pool) and file.layers in (None, known.layers)
    if file.dim == known.width and said in ("", known.sha256) and same_form:
        return
    name = file.said("timm_name") or "a backbone"
    form = f"layers {file.layers or 'unknown'}, pooling {file.pool or 'unknown'}"
    whose = f"{name} ({file.dim} numbers, weights {said[:12] or 'unknown'}, {form})"
    raise DataError(
        f"{str(file.path)!r} holds features of {whose}, and the model knows those of {known.timm_name} "
        f"({known.width} numbers, weights {known.sha256[:12]}, layers {known.layers}, pooling {known.pool})",
        "store features of the same backbone: lw2g data features",
    )
