"""From labelled images to a task stream: image arrays, remapping of labels and the content fingerprint."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence, Set

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.plugin import (
    ConfigError,
    Contents,
    ImageSource,
    IndexArray,
    ReadsFiles,
    Task,
    TaskData,
    TaskStream,
    composed,
)
from lw2g_benchmarks.listed_images import FileFacts, HashedSource, content_of, no_files, tell_progress
from lw2g_benchmarks.options import OrderOptions
from lw2g_benchmarks.recurrence import Portion, drawn, in_tail, portions
from lw2g_benchmarks.same_pixels import same_contents

__all__ = ["ArraySource", "JoinedSource", "LabelledImages", "PartSource", "build_stream"]


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

    def contents(self) -> Contents:
        """Return a hash of the pixels of each image as RGB, S16 ``[n]``."""
        # rows of an array: making a tensor of each takes longer than its hash
        pixels = self._images.numpy()
        # as RGB: a grey image and its copy in three channels look the same
        rgb = np.broadcast_to(pixels, (len(pixels), 3, *pixels.shape[2:]))
        hashes = [content_of(image) for image in tell_progress(rgb, len(rgb))]
        return np.array(hashes, dtype="S16")

    def facts(self) -> FileFacts:
        """Return that no image is a file of its own."""
        return no_files(len(self._ids))


class JoinedSource:
    """Several sources, one after the other."""

    def __init__(self, sources: Sequence[HashedSource]) -> None:
        """Hold the sources."""
        self._sources = tuple(sources)
        self._starts: list[int] = []
        self._length = 0
        ids: list[str] = []
        for source in sources:
            self._starts.append(self._length)
            self._length += len(source)
            ids += source.ids
        self._ids = tuple(ids)

    def __len__(self) -> int:
        return self._length

    def image(self, index: int) -> Tensor:
        """Return image ``index``, uint8 [3, H, W]."""
        # the last source that starts at or before it
        number = bisect_right(self._starts, index) - 1
        return self._sources[number].image(index - self._starts[number])

    def changed(self, indices: IndexArray) -> str | None:
        """Return the first file of some images that has changed; None without one."""
        owner = np.searchsorted(self._starts, indices, side="right") - 1
        for number, (source, start) in enumerate(zip(self._sources, self._starts, strict=True)):
            positions = indices[owner == number] - start
            file = source.changed(positions) if isinstance(source, ReadsFiles) else None
            if file is not None:
                return file
        return None

    @property
    def ids(self) -> tuple[str, ...]:
        """The stable ids of the images."""
        return self._ids

    def digest(self) -> str:
        """Return the SHA-256 of the sources' digests, in order."""
        digests = "".join(source.digest() for source in self._sources)
        return hashlib.sha256(digests.encode()).hexdigest()

    def contents(self) -> Contents:
        """Return a hash of the content of each image, S16 ``[n]``."""
        return np.concatenate([source.contents() for source in self._sources])

    def facts(self) -> FileFacts:
        """Return size and encoding of each image's file, ``[n]``."""
        return np.concatenate([source.facts() for source in self._sources])


class PartSource:
    """Some images of a source, under the ids that they have there."""

    def __init__(self, source: HashedSource, rows: Sequence[int]) -> None:
        """Hold the source and the numbers of the images."""
        self._source = source
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def image(self, index: int) -> Tensor:
        """Return image ``index``, uint8 [3, H, W]."""
        return self._source.image(self._rows[index])

    def changed(self, indices: IndexArray) -> str | None:
        """Return the first file of some images that has changed; None without one."""
        rows = np.asarray(self._rows, dtype=np.int64)[indices]
        return self._source.changed(rows) if isinstance(self._source, ReadsFiles) else None

    @property
    def ids(self) -> tuple[str, ...]:
        """The stable ids of the images."""
        ids = self._source.ids
        return tuple(ids[row] for row in self._rows)

    def digest(self) -> str:
        """Return a SHA-256 over the source's digest and the numbers."""
        rows = ",".join(map(str, self._rows))
        return hashlib.sha256(f"{self._source.digest()}/{rows}".encode()).hexdigest()

    def contents(self) -> Contents:
        """Return a hash of the content of each image, S16 ``[n]``."""
        return self._source.contents()[list(self._rows)]

    def facts(self) -> FileFacts:
        """Return size and encoding of each image's file, ``[n]``."""
        return self._source.facts()[list(self._rows)]


@attrs.frozen(kw_only=True, eq=False)
class LabelledImages:
    """One split of a data set: images, their raw labels and, where there are any, domains, int64 [n] each."""

    source: HashedSource
    labels: IndexArray
    domain: IndexArray | None = None


def build_stream(
    *,
    name: str,
    train: LabelledImages,
    test: LabelledImages,
    class_names: Sequence[str],
    order: Sequence[int],
    sizes: Sequence[int] = (),
    planned: Sequence[Portion] = (),
    options: OrderOptions | None = None,
    domains: Sequence[str] = (),
    planted_groups: tuple[int, ...] | None = None,
    deviations: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> TaskStream:
    """Cut labelled images into tasks. A test image belongs to the first task with its class and domain.

    Args:
        name: Name of the benchmark.
        train: Training images with raw labels.
        test: Test images with raw labels.
        class_names: Names by raw label.
        order: Raw labels in the order in which the stream meets them.
        sizes: Classes of each group that tasks are made of; their sum is ``len(order)``, except for
            repetition.
        planned: What each task gets, instead of sizes.
        options: Say which kind of stream; by default each group is a task.
        domains: Names of the domains by number.
        planted_groups: See TaskStream; where tasks have domains, these; none where classes come again.
        deviations: See TaskStream.
        notes: See TaskStream.

    Raises:
        ConfigError: If the images cannot be cut so.
        ValueError: If the sizes do not add up or a sample has a label that is not in ``order``.
    """
    if options is None:
        options = OrderOptions()
    if not planned and options.stream != "repetition" and sum(sizes) != len(order):
        raise ValueError(f"expected task sizes that add up to {len(order)} but got {sum(sizes)}")
    _require_known_labels((train, test), order)

    # the long tail first: shots are drawn from what it leaves, and parts are cut of it
    is_kept = np.isin(np.arange(len(train.labels)), in_tail(options, train.labels, order))
    if not planned:
        # a label that no class has stands for an image that the tail has lost
        planned = portions(options, np.where(is_kept, train.labels, -1), train.domain, order, sizes)
    if options.shots is not None and options.shots_from >= len(planned):
        raise ConfigError(
            f"benchmark.shots_from: {options.shots_from} leaves no task with few shots, as the last is task "
            f"{len(planned) - 1} (from 0)",
            "lower it, or leave benchmark.shots out",
        )
    labels: list[int] = []
    for portion in planned:
        labels += portion.labels
    names = tuple(composed(class_names[label]) for label in labels)

    # each image has the position of its class in the stream, or -1 if it is in no task
    positions = {
        "train": np.full(len(train.labels), -1, dtype=np.int64),
        "test": np.full(len(test.labels), -1, dtype=np.int64),
    }
    train_contents, test_contents, not_compared = same_contents(train.source, test.source)
    tasks: list[Task] = []
    met: set[tuple[int | None, int]] = set()  # domains and labels of the tasks so far
    end = 0
    for index, portion in enumerate(planned):
        start = end
        end = start + len(portion.labels)
        of_task = _positions_in(train, portion, set(portion.labels), start)
        if portion.rows is not None:
            of_task[np.isin(np.arange(len(of_task)), portion.rows, invert=True)] = -1
        of_task = drawn(options, index, np.where(is_kept, of_task, -1))
        positions["train"] = np.where(of_task >= 0, of_task, positions["train"])

        # a test image stays with the first task that brings its class in its domain
        of_task = _positions_in(test, portion, _labels_not_met(portion, met), start)
        positions["test"] = np.where(of_task >= 0, of_task, positions["test"])
        tasks.append(
            Task(
                index=index,
                classes=tuple(range(start, end)),
                class_names=names[start:end],
                train=_task_data(train.source, positions["train"], train_contents, start, end),
                test=_task_data(test.source, positions["test"], test_contents, start, end),
                domain="" if portion.domain is None else domains[portion.domain],
            )
        )

    # what the fingerprint is of: what is learned in which order, and nothing that says where files lie
    domain_of_task = [task.domain for task in tasks]
    header: dict[str, object] = {"benchmark": name, "classes": list(names), "order": labels}
    header["sizes"] = [len(task.classes) for task in tasks]
    if any(domain_of_task):
        # only where there are any, or every stream of classes would get another fingerprint
        header["domains"] = domain_of_task
        planted_groups = _numbered(domain_of_task)
    elif options.stream != "classes":
        planted_groups = None

    targets = None
    if len(set(labels)) < len(labels):  # a class comes again: it has several positions and one target
        targets = _numbered(labels)
    return TaskStream(
        name=name,
        tasks=tuple(tasks),
        class_order=tuple(labels),
        class_names=names,
        targets=targets,
        fingerprint=_fingerprint(header, {"train": train, "test": test}, positions),
        planted_groups=planted_groups,
        deviations=(*deviations, *_deviations(options)),
        notes=tuple(filter(None, (*notes, not_compared))),
    )


def _require_known_labels(splits: Sequence[LabelledImages], order: Sequence[int]) -> None:
    for images in splits:
        unknown = images.labels[~np.isin(images.labels, order)]
        if len(unknown):
            raise ValueError(f"expected labels in the class order but got {int(unknown[0])}")


def _labels_not_met(portion: Portion, met: set[tuple[int | None, int]]) -> set[int]:
    """Return the labels that no task before had in the portion's domain, and add them to ``met``."""
    new: set[int] = set()
    for label in portion.labels:
        if (portion.domain, label) not in met:
            met.add((portion.domain, label))
            new.add(label)
    return new


def _numbered(values: Sequence[Hashable]) -> tuple[int, ...]:
    """Return the number of each value among the distinct ones, in the order in which they come first."""
    number_of: dict[Hashable, int] = {}
    for value in values:
        number_of.setdefault(value, len(number_of))
    return tuple(number_of[value] for value in values)


def _positions_in(data: LabelledImages, portion: Portion, labels: Set[int], start: int) -> IndexArray:
    """Return the position in the stream of each image's class, int64 ``[n]``; -1 outside a portion.

    Args:
        data: The images of a split.
        portion: What a task gets.
        labels: Those of its raw labels whose images are wanted.
        start: The position of its first class.
    """
    # a table by label: to look up a million images one by one takes seconds, and every task does so
    largest = max(max(portion.labels), int(data.labels.max(initial=0)))
    position_of = np.full(1 + largest, -1, dtype=np.int64)
    for position, label in enumerate(portion.labels, start):
        if label in labels:
            position_of[label] = position
    positions: IndexArray = position_of[data.labels]
    if portion.domain is not None and data.domain is not None:
        positions[data.domain != portion.domain] = -1
    return positions


def _deviations(options: OrderOptions) -> list[str]:
    """Return in words what a stream does otherwise than the usual one of disjoint classes with all images."""
    differences = []
    if options.stream != "classes":
        differences.append(f"tasks are {options.stream}, not disjoint classes")
    if options.shots is not None:
        first = options.shots_from + 1
        differences.append(f"{options.shots} drawn training images of each class from task {first} on")
    if options.imbalance > 1:
        differences.append(
            f"long-tailed training images, {options.imbalance:g} times fewer of the last class"
        )
    return differences


def _task_data(
    source: ImageSource, positions: IndexArray, contents: Contents, start: int, end: int
) -> TaskData:
    indices = np.flatnonzero((positions >= start) & (positions < end))
    return TaskData(source=source, indices=indices, labels=positions[indices], contents=contents[indices])


def _fingerprint(
    header: Mapping[str, object], splits: Mapping[str, LabelledImages], positions: Mapping[str, IndexArray]
) -> str:
    """Return the digest of a stream: its tasks, and the ids, positions and contents of its images."""
    hasher = hashlib.sha256(json.dumps(header).encode())
    for split, data in splits.items():
        # composed: a copy that a Mac has made is the same data set
        samples = list(zip(map(composed, data.source.ids), positions[split].tolist(), strict=True))
        hasher.update(json.dumps([split, samples, data.source.digest()]).encode())
    return hasher.hexdigest()
