"""From labelled images to a task stream: image arrays, remapping of labels and the content fingerprint."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.stream import ImageSource, IndexArray, Task, TaskData, TaskStream

__all__ = ["ArraySource", "HashedSource", "JoinedSource", "LabelledImages", "build_stream"]


class HashedSource(ImageSource, Protocol):
    """An image source with a hash of its content."""

    def digest(self) -> str:
        """Return a SHA-256 over the content of all images, in order."""
        ...


class ArraySource:
    """Images of one size held in memory."""

    def __init__(self, images: Tensor, ids: Sequence[str]) -> None:
        """Hold images uint8 [n, 3, H, W], or grey ones [n, 1, H, W], with one id each."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
            raise ValueError(f"expected uint8 [n, 3, H, W] but got {images.dtype} {tuple(images.shape)}")
        if len(ids) != len(images):
            raise ValueError(f"expected {len(images)} ids but got {len(ids)}")
        self._images = images.contiguous()
        self._ids = tuple(ids)

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int) -> Tensor:
        """Return a view of image ``index``, uint8 [3, H, W]."""
        return self._images[index].expand(3, -1, -1)

    @property
    def ids(self) -> tuple[str, ...]:
        """The stable ids of the images."""
        return self._ids

    def digest(self) -> str:
        """Return the SHA-256 of shape and pixels."""
        hasher = hashlib.sha256(repr(tuple(self._images.shape)).encode())
        hasher.update(self._images.numpy().data)
        return hasher.hexdigest()


class JoinedSource:
    """Several sources, one after the other."""

    def __init__(self, sources: Sequence[HashedSource]) -> None:
        """Hold the sources."""
        self._sources = tuple(sources)
        self._ends = tuple(accumulate(len(source) for source in sources))
        self._ids = tuple(image_id for source in sources for image_id in source.ids)

    def __len__(self) -> int:
        return self._ends[-1]

    def image(self, index: int) -> Tensor:
        """Return image ``index``, uint8 [3, H, W]."""
        at = bisect_right(self._ends, index)
        return self._sources[at].image(index - (self._ends[at - 1] if at else 0))

    @property
    def ids(self) -> tuple[str, ...]:
        """The stable ids of the images."""
        return self._ids

    def digest(self) -> str:
        """Return the SHA-256 of the sources' digests, in order."""
        return hashlib.sha256("".join(source.digest() for source in self._sources).encode()).hexdigest()


@attrs.frozen(kw_only=True, eq=False)
class LabelledImages:
    """One split of a data set: images and their raw labels, int64 [n]."""

    source: HashedSource
    labels: IndexArray


def build_stream(
    *,
    name: str,
    train: LabelledImages,
    test: LabelledImages,
    class_names: Sequence[str],
    order: Sequence[int],
    sizes: Sequence[int],
    planted_groups: tuple[int, ...] | None = None,
    deviations: Sequence[str] = (),
) -> TaskStream:
    """Cut labelled images into tasks.

    Args:
        name: Name of the benchmark.
        train: Training images with raw labels.
        test: Test images with raw labels.
        class_names: Names by raw label.
        order: Raw labels in the order in which the stream meets them.
        sizes: Classes of each task; their sum is ``len(order)``.
        planted_groups: See TaskStream.
        deviations: See TaskStream.

    Raises:
        ValueError: If the sizes do not add up or a sample has a label that is not in ``order``.
    """
    if sum(sizes) != len(order):
        raise ValueError(f"expected task sizes that add up to {len(order)} but got {sum(sizes)}")
    positions = {split: _positions(data.labels, order) for split, data in (("train", train), ("test", test))}
    names = tuple(class_names[label] for label in order)
    tasks = []
    for index, end in enumerate(accumulate(sizes)):
        start = end - sizes[index]
        tasks.append(
            Task(
                index=index,
                classes=tuple(range(start, end)),
                class_names=names[start:end],
                train=_task_data(train.source, positions["train"], start, end),
                test=_task_data(test.source, positions["test"], start, end),
            )
        )
    return TaskStream(
        name=name,
        tasks=tuple(tasks),
        class_order=tuple(order),
        class_names=names,
        fingerprint=_fingerprint(name, names, order, sizes, {"train": train, "test": test}, positions),
        planted_groups=planted_groups,
        deviations=tuple(deviations),
    )


def _positions(labels: IndexArray, order: Sequence[int]) -> IndexArray:
    """Map raw labels to their places in the class order."""
    place = np.full(max([*order, int(labels.max(initial=0))]) + 1, -1, dtype=np.int64)
    place[np.asarray(order)] = np.arange(len(order))
    positions: IndexArray = place[labels]
    if (positions < 0).any():
        raise ValueError(f"expected labels in the class order but got {int(labels[positions < 0][0])}")
    return positions


def _task_data(source: ImageSource, positions: IndexArray, start: int, end: int) -> TaskData:
    indices = np.flatnonzero((positions >= start) & (positions < end))
    return TaskData(source=source, indices=indices, labels=positions[indices])


def _fingerprint(
    name: str,
    names: Sequence[str],
    order: Sequence[int],
    sizes: Sequence[int],
    splits: dict[str, LabelledImages],
    positions: dict[str, IndexArray],
) -> str:
    header = {"benchmark": name, "classes": list(names), "order": list(order), "sizes": list(sizes)}
    hasher = hashlib.sha256(json.dumps(header).encode())
    for split, data in splits.items():
        samples = list(zip(data.source.ids, positions[split].tolist(), strict=True))
        hasher.update(json.dumps([split, samples, data.source.digest()]).encode())
    return hasher.hexdigest()
