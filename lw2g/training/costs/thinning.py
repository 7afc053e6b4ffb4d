"""Fewer images of every task, a few sizes of the same work, and the lines through what those take."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from lw2g.interfaces.stream import Task, TaskData, TaskStream

__all__ = ["PARTS", "Measured", "between", "on_a_line", "part_of", "thinned"]

PARTS = ("data", "evidence", "training", "spaces", "evaluation", "checkpoints")


@attrs.define(kw_only=True)
class Measured:
    """What one task takes, at its full size.

    Attributes:
        seconds: By part.
        checkpoint: Bytes of its checkpoint.
        step_checkpoint: Bytes of a checkpoint within it.
        trained: Parameters that its phases train.
        stored: Parameters of all modules after it.
    """

    seconds: dict[str, float] = attrs.field(factory=lambda: dict.fromkeys(PARTS, 0.0))
    checkpoint: float = 0.0
    step_checkpoint: float = 0.0
    trained: float = 0.0
    stored: float = 0.0


def part_of(data: TaskData, count: int) -> TaskData:
    """Return at most so many samples, of every class as many as of any other."""
    turns = np.zeros(len(data), dtype=np.int64)
    for label in np.unique(data.labels):
        where = np.flatnonzero(data.labels == label)
        turns[where] = np.arange(len(where))
    chosen = np.sort(np.argsort(turns, kind="stable")[:count])
    return TaskData(source=data.source, indices=data.indices[chosen], labels=data.labels[chosen])


def thinned(stream: TaskStream, train: int, test: int) -> TaskStream:
    """Return the stream with at most so many training and test images a task."""

    def thin(task: Task) -> Task:
        return attrs.evolve(task, train=part_of(task.train, train), test=part_of(task.test, test))

    return attrs.evolve(stream, tasks=tuple(map(thin, stream.tasks)))


def on_a_line(size: int, full: int, work: Callable[[int], float]) -> float:
    """Return the seconds of work at full size, continued from a smaller one and its half where need be."""
    if size >= full:
        return work(full)
    half = max(1, size // 2)
    little, more = work(half), work(size)
    return more + max(0.0, more - little) / max(1, size - half) * (full - size)


def between(measured: dict[int, Measured], index: int) -> Measured:
    """Return what a task takes, on the line through the two measured tasks around it or before it."""
    known = sorted(measured)
    if index in measured or len(known) == 1:
        return measured[min(index, known[-1])]
    right = next((one for one in known if one > index), known[-1])
    left = known[known.index(right) - 1]
    share = (index - left) / (right - left)

    def mix(a: float, b: float) -> float:
        return max(0.0, a + share * (b - a))

    one, other = attrs.asdict(measured[left]), attrs.asdict(measured[right])
    seconds = {part: mix(one["seconds"][part], other["seconds"][part]) for part in PARTS}
    rest = {name: mix(one[name], other[name]) for name in one if name != "seconds"}
    return Measured(seconds=seconds, **rest)
