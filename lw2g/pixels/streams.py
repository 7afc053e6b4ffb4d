"""Combined streams: several sources one after another, or all tasks as one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np
import numpy.typing as npt
from torch import Tensor

from lw2g.config.settings import Chosen
from lw2g.errors import ConfigError, counted
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageSource, IndexArray, ReadsFiles, Task, TaskData, TaskStream
from lw2g.interfaces.vectors import VectorSource
from lw2g.pixels.shared import all_contents

__all__ = ["Source", "as_one_task", "hold_back", "joined", "part_of"]


@attrs.frozen(kw_only=True)
class Source:
    """The source of a part of a stream.

    Attributes:
        benchmark: What it is.
        first: Its first task.
        own: SHA-256 of its own stream.
        fingerprint: SHA-256 of the whole stream up to its end.
    """

    benchmark: Chosen
    first: int
    own: str
    fingerprint: str


class _Renamed:
    """Images under other ids."""

    def __init__(self, source: ImageSource, prefix: str) -> None:
        self._source = source
        self._ids = tuple(map(prefix.__add__, source.ids))

    def __len__(self) -> int:
        return len(self._source)

    def image(self, index: int) -> Tensor:
        return self._source.image(index)

    def changed(self, indices: IndexArray) -> str | None:
        return self._source.changed(indices) if isinstance(self._source, ReadsFiles) else None

    @property
    def ids(self) -> tuple[str, ...]:
        return self._ids


class _RenamedVectors(_Renamed):
    """Vectors under other ids."""

    def vectors(self, indices: Any) -> Tensor:
        return cast(VectorSource, self._source).vectors(indices)


def _renamed(source: ImageSource, prefix: str) -> _Renamed:
    kind = _RenamedVectors if isinstance(source, VectorSource) else _Renamed
    return kind(source, prefix)


def joined(
    benchmarks: Sequence[Chosen], streams: Sequence[TaskStream]
) -> tuple[tuple[Source, ...], TaskStream]:
    """Return the sources of a stream, and the stream of all of them one after another.

    From the second source on, ids of samples get its name and number as a prefix, so do class names that are
    taken, and raw labels count on.

    Args:
        benchmarks: What the streams are of.
        streams: At least one.

    Raises:
        ConfigError: A stream is there twice.
    """
    sources: list[Source] = []
    learned = set[str]()
    whole = streams[0]
    for number, (benchmark, stream) in enumerate(zip(benchmarks, streams, strict=True)):
        if stream.fingerprint in learned:
            raise ConfigError(
                f"benchmark {benchmark.name!r} is what the run has learned already",
                "name another one, or other classes of it",
            )
        learned.add(stream.fingerprint)
        first = 0
        if number:
            first = len(whole.tasks)
            whole = _after(whole, stream, f"{benchmark.name}-{number + 1}/")
        source = Source(
            benchmark=benchmark, first=first, own=stream.fingerprint, fingerprint=whole.fingerprint
        )
        sources.append(source)
    return tuple(sources), whole


def _after(before: TaskStream, stream: TaskStream, prefix: str) -> TaskStream:
    """Return two streams as one; ids and clashing names of the second get the prefix."""
    renamed: dict[int, _Renamed] = {}
    first_position = before.num_classes

    def moved(data: TaskData) -> TaskData:
        """Return images of the second stream with their new ids and labels."""
        # tasks share their source, and must go on sharing it: it is opened once
        if id(data.source) not in renamed:
            renamed[id(data.source)] = _renamed(data.source, prefix)
        source = renamed[id(data.source)]
        return attrs.evolve(data, source=source, labels=data.labels + first_position)

    taken = set(before.class_names)
    names = [prefix + name if name in taken else name for name in stream.class_names]
    tasks = []
    for task in stream.tasks:
        moved_task = Task(
            index=len(before.tasks) + task.index,
            classes=tuple(map(first_position.__add__, task.classes)),
            class_names=tuple(names[task.classes[0] : task.classes[-1] + 1]),
            train=moved(task.train),
            test=moved(task.test),
            domain=task.domain,
        )
        tasks.append(moved_task)

    targets = None
    if before.targets or stream.targets:  # else a class's target is its position
        first_target = len(before.target_names)
        targets = before.class_map.targets + tuple(map(first_target.__add__, stream.class_map.targets))
    first_label = 1 + max(before.class_order)
    chained = f"{before.fingerprint} {stream.fingerprint}"
    note = (
        f"continued after task {len(before.tasks)} with {counted(stream.num_classes, 'class')} of "
        f"{stream.name!r}, of which nothing was known before"
    )
    return TaskStream(
        name=before.name,
        tasks=(*before.tasks, *tasks),
        class_order=(*before.class_order, *map(first_label.__add__, stream.class_order)),
        class_names=(*before.class_names, *names),
        fingerprint=hashlib.sha256(chained.encode()).hexdigest(),
        targets=targets,
        deviations=(*before.deviations, *stream.deviations, note),
        notes=(*before.notes, *stream.notes),
        vectors=before.vectors,
    )


def as_one_task(stream: TaskStream) -> TaskStream:
    """Return the stream with all its tasks merged into one, for controls that see everything at once.

    A class that comes in several tasks is one class there.
    """
    labels = tuple(dict.fromkeys(stream.class_order))  # each once, in the order of their targets

    def merged(parts: Sequence[TaskData]) -> TaskData:
        """Return the images of all tasks as those of one, with targets for labels."""
        source = parts[0].source
        if any(part.source is not source for part in parts):
            raise ConfigError("benchmark: tasks come from several image sources", "joint training needs one")
        return TaskData(
            source=source,
            indices=np.concatenate([part.indices for part in parts]),
            labels=stream.class_map.targets_at(np.concatenate([part.labels for part in parts])),
            contents=all_contents(parts),
        )

    whole = Task(
        index=0,
        classes=tuple(range(len(labels))),
        class_names=stream.target_names,
        train=merged([task.train for task in stream.tasks]),
        test=merged([task.test for task in stream.tasks]),
    )
    note = f"{counted(len(stream.tasks), 'task')} learned as one: an upper bound, not continual learning"
    return attrs.evolve(
        stream,
        tasks=(whole,),
        class_order=labels,
        class_names=stream.target_names,
        targets=None,
        planted_groups=None,
        deviations=(*stream.deviations, note),
    )


_LARGEST_SHARE = 5
"""At most one in this many images of a class is held back."""


def hold_back(stream: TaskStream, images: int, seed: int) -> tuple[TaskStream, tuple[TaskData | None, ...]]:
    """Return the stream without some training images of each task, and those images (None for none).

    Args:
        stream: The stream.
        images: How many images of each task, spread evenly over its classes.
        seed: Chooses them; a task's do not depend on other tasks.
    """
    tasks = []
    held_back: list[TaskData | None] = []
    for task in stream.tasks:
        rng = np.random.default_rng(derive_seed(seed, "task", task.index, "held back"))
        is_held_back = np.zeros(len(task.train), dtype=bool)
        is_held_back[_spread_over_classes(task, images, rng)] = True
        tasks.append(attrs.evolve(task, train=part_of(task.train, ~is_held_back)))
        if is_held_back.any():
            held_back.append(part_of(task.train, is_held_back))
        else:  # its classes are too small
            held_back.append(None)
    return attrs.evolve(stream, tasks=tuple(tasks)), tuple(held_back)


def _spread_over_classes(task: Task, images: int, rng: np.random.Generator) -> list[int]:
    """Draw places of training images, of each class as many; at most ``images`` in all."""
    per_class = math.ceil(images / len(task.classes))
    places: list[int] = []
    for label in task.classes:
        of_class = np.flatnonzero(task.train.labels == label)
        number = min(per_class, len(of_class) // _LARGEST_SHARE)
        places += rng.permutation(of_class)[:number].tolist()
    # rounded up for each class, the sum may be too many
    return places[:images]


def part_of(data: TaskData, rows: npt.NDArray[Any]) -> TaskData:
    """Return some images of a task, by their places or by a mask."""
    contents = data.contents
    if contents is not None:
        contents = contents[rows]
    return attrs.evolve(data, indices=data.indices[rows], labels=data.labels[rows], contents=contents)
