"""Combined streams: several sources one after another, or all tasks as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np
import numpy.typing as npt
from torch import Tensor

from lw2g.config.model import Chosen
from lw2g.errors import ConfigError, counted
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import Contents, ImageSource, Task, TaskData, TaskStream
from lw2g.interfaces.vectors import VectorSource

__all__ = ["Source", "as_one_task", "hold_back", "joined"]


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
        self._ids = tuple(prefix + name for name in source.ids)

    def __len__(self) -> int:
        return len(self._source)

    def image(self, index: int) -> Tensor:
        return self._source.image(index)

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
    whole = streams[0]
    for number, (benchmark, stream) in enumerate(zip(benchmarks, streams, strict=True)):
        if stream.fingerprint in {source.own for source in sources}:
            raise ConfigError(
                f"benchmark {benchmark.name!r} is what the run has learned already",
                "name another one, or other classes of it",
            )
        first = 0 if number == 0 else len(whole.tasks)
        if number:
            whole = _after(whole, stream, f"{benchmark.name}-{number + 1}/")
        sources.append(
            Source(benchmark=benchmark, first=first, own=stream.fingerprint, fingerprint=whole.fingerprint)
        )
    return tuple(sources), whole


def _after(before: TaskStream, stream: TaskStream, prefix: str) -> TaskStream:
    """Return two streams as one; ids and clashing names of the second get the prefix."""
    shift, labels = before.num_classes, 1 + max(before.class_order)
    known = len(before.target_names)
    targets = before.class_map.targets
    targets += tuple(known + target for target in stream.class_map.targets)
    renamed: dict[int, _Renamed] = {}
    taken = set(before.class_names)

    def moved(data: TaskData) -> TaskData:
        source = renamed.setdefault(id(data.source), _renamed(data.source, prefix))
        return attrs.evolve(data, source=source, labels=data.labels + shift)

    names = tuple(prefix + name if name in taken else name for name in stream.class_names)
    tasks = tuple(
        Task(
            index=len(before.tasks) + task.index,
            classes=tuple(position + shift for position in task.classes),
            class_names=names[task.classes[0] : task.classes[-1] + 1],
            train=moved(task.train),
            test=moved(task.test),
            domain=task.domain,
        )
        for task in stream.tasks
    )
    chained = f"{before.fingerprint} {stream.fingerprint}"
    note = (
        f"continued after task {len(before.tasks)} with {counted(stream.num_classes, 'class')} of "
        f"{stream.name!r}, of which nothing was known before"
    )
    return TaskStream(
        name=before.name,
        tasks=(*before.tasks, *tasks),
        class_order=(*before.class_order, *(labels + label for label in stream.class_order)),
        class_names=(*before.class_names, *names),
        fingerprint=hashlib.sha256(chained.encode()).hexdigest(),
        targets=targets if (before.targets or stream.targets) else None,
        deviations=(*before.deviations, *stream.deviations, note),
        vectors=before.vectors,
    )


def as_one_task(stream: TaskStream) -> TaskStream:
    """Return the stream with all its tasks merged into one, for controls that see everything at once.

    A class that comes in several tasks is one class there.
    """
    tasks, raw = stream.tasks, dict.fromkeys(stream.class_order)

    def merged(parts: Sequence[TaskData]) -> TaskData:
        source = parts[0].source
        if any(part.source is not source for part in parts):
            raise ConfigError("benchmark: tasks come from several image sources", "joint training needs one")
        return TaskData(
            source=source,
            indices=np.concatenate([part.indices for part in parts]),
            labels=stream.class_map.targets_at(np.concatenate([part.labels for part in parts])),
            contents=_all_contents(parts),
        )

    whole = Task(
        index=0,
        classes=tuple(range(len(raw))),
        class_names=stream.target_names,
        train=merged([task.train for task in tasks]),
        test=merged([task.test for task in tasks]),
    )
    note = f"{counted(len(tasks), 'task')} learned as one: an upper bound, not continual learning"
    return attrs.evolve(
        stream,
        tasks=(whole,),
        class_order=tuple(raw),
        class_names=stream.target_names,
        targets=None,
        planted_groups=None,
        deviations=(*stream.deviations, note),
    )


def _all_contents(parts: Sequence[TaskData]) -> Contents | None:
    contents = [part.contents for part in parts if part.contents is not None]
    return np.concatenate(contents) if len(contents) == len(parts) else None


_LARGEST_SHARE = 5
"""At most one in this many images of a class is held back."""


def hold_back(stream: TaskStream, images: int, seed: int) -> tuple[TaskStream, tuple[TaskData | None, ...]]:
    """Return the stream without some training images of each task, and those images (None for none).

    Args:
        stream: The stream.
        images: How many images of each task, spread evenly over its classes.
        seed: Chooses them; a task's do not depend on other tasks.
    """
    tasks, held = [], []
    for task in stream.tasks:
        draw = np.random.default_rng(derive_seed(seed, "task", task.index, "held back"))
        each = -(-images // len(task.classes))
        places = []
        for label in task.classes:
            own = np.flatnonzero(task.train.labels == label)
            places.append(draw.permutation(own)[: min(each, len(own) // _LARGEST_SHARE)])
        taken = np.zeros(len(task.train), dtype=bool)
        taken[np.concatenate(places)[:images] if len(places) else []] = True
        tasks.append(attrs.evolve(task, train=_part(task.train, ~taken)))
        held.append(_part(task.train, taken) if taken.any() else None)
    return attrs.evolve(stream, tasks=tuple(tasks)), tuple(held)


def _part(data: TaskData, rows: npt.NDArray[np.bool_]) -> TaskData:
    contents = None if data.contents is None else data.contents[rows]
    return attrs.evolve(data, indices=data.indices[rows], labels=data.labels[rows], contents=contents)
