"""Which classes and images each task gets: every class once, again and again, or in one domain after another.

Sizes are few shots, drawn per class and task, and long tails as of LT-CIL (Liu et al., ECCV 2022).

Repetition is the slot-based generator of Hemati et al., "Class-Incremental Learning with Repetition" (CoLLAs
2023); unlike theirs it drops no image. Versatile streams are those of ICON (Park et al., ECCV 2024).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import attrs
import numpy as np

from lw2g.plugin import ConfigError, IndexArray, counted
from lw2g_benchmarks.data_set_facts import PUBLISHED
from lw2g_benchmarks.options import OrderOptions
from lw2g_benchmarks.orders import task_sizes

__all__ = ["Portion", "drawn", "in_tail", "portions", "sizes_of"]


@attrs.frozen(kw_only=True, eq=False)
class Portion:
    """What a task gets.

    Attributes:
        labels: Its raw labels, in order.
        domain: The number of its domain; None where all images may be its.
        rows: Its training images; None: all of these classes and this domain.
    """

    labels: tuple[int, ...]
    domain: int | None = None
    rows: IndexArray | None = None


def sizes_of(options: OrderOptions, num_classes: int) -> tuple[int, ...]:
    """Return the number of classes of each group that tasks are made of.

    Raises:
        ConfigError: As :func:`~lw2g_benchmarks.orders.task_sizes`.
    """
    if options.stream == "domains":
        return (num_classes,)  # each task has all classes, in a domain of its own
    # a benchmark whose classes all come at once has no such option
    increment: int = getattr(options, "increment", num_classes)
    if options.stream == "repetition":
        return (min(increment, num_classes),)  # all tasks have as many, and ``tasks`` says how many there are
    # digits and glyphs have neither of these options; None keeps 'uneven' out of what an error advises
    uneven: bool | None = getattr(options, "uneven", None)
    base: int = getattr(options, "base", 0)
    return task_sizes(num_classes, increment, uneven, base)


def in_tail(options: OrderOptions, labels: IndexArray, order: Sequence[int]) -> IndexArray:
    """Return which training images a long tail keeps, by number: all where the options ask for none.

    Class k of C keeps ``n_max * imbalance ** (-k / (C - 1))`` drawn images, and at least one.

    Args:
        options: Say how long the tail is.
        labels: Raw labels of the training images, ``[n]``.
        order: Raw labels from the class with most images to the one with fewest.
    """
    if options.imbalance == 1:
        return np.arange(len(labels))
    draw = np.random.default_rng(options.order_seed)
    ranks = np.asarray(order)
    if options.imbalance_shuffled:
        ranks = draw.permutation(order)
    most = int(np.bincount(labels).max())
    last = max(1, len(ranks) - 1)  # C - 1; a single class keeps all
    kept = []
    for rank, label in enumerate(ranks):
        # n_max is that of the largest class for all: a class that has fewer keeps what it has
        count = max(1, int(most * options.imbalance ** (-rank / last)))
        positions = draw.permutation(np.flatnonzero(labels == label))
        kept.append(positions[:count])
    return np.sort(np.concatenate(kept))


def drawn(options: OrderOptions, task: int, positions: IndexArray) -> IndexArray:
    """Return the positions of a task's training images, -1 for images beyond the shots of a class.

    Args:
        options: Say how many shots.
        task: The number of the task.
        positions: Class position of each image, ``[n]``; -1 where it is none of the task's.
    """
    if options.shots is None or task < options.shots_from:
        return positions
    # of its own for each task: what one draws does not depend on the tasks before it
    draw = np.random.default_rng([options.order_seed, task])
    chosen = np.full_like(positions, -1)
    for position in np.unique(positions[positions >= 0]):
        rows = draw.permutation(np.flatnonzero(positions == position))[: options.shots]
        chosen[rows] = position
    return chosen


def portions(
    options: OrderOptions,
    labels: IndexArray,
    domain: IndexArray | None,
    order: Sequence[int],
    sizes: Sequence[int],
) -> list[Portion]:
    """Return what each task gets.

    Args:
        options: Say which kind of stream.
        labels: Raw labels of the training images, ``[n]``.
        domain: Their domains by number, ``[n]``; None where the data has none.
        order: Raw labels in the order in which the stream meets them.
        sizes: What :func:`sizes_of` returned.

    Raises:
        ConfigError: The data cannot be cut so.
    """
    if options.stream == "repetition":
        return list(_slots(labels, order, options.tasks, sizes[0], options.order_seed))
    groups: list[tuple[int, ...]] = []
    start = 0
    for size in sizes:
        groups.append(tuple(order[start : start + size]))
        start += size
    if options.stream == "classes":
        return [Portion(labels=group) for group in groups]
    # "domains" and "versatile": a task is a group of classes in a domain
    if domain is None:
        published = [name for name, known in PUBLISHED.items() if known.data.domains]
        raise ConfigError(
            f"benchmark.stream: {options.stream!r} needs domains, and these images have none",
            f"take --benchmark {', '.join(['glyphs', *published])}, or folder with a folder for each domain",
        )
    pairs = list(product(range(1 + int(domain.max())), groups))  # domain after domain
    if options.stream == "versatile":
        random.Random(options.order_seed).shuffle(pairs)
    tasks = []
    for number, group in pairs:
        in_domain = set(labels[domain == number].tolist())
        labels_of_task = tuple(label for label in group if label in in_domain)
        if labels_of_task:  # a domain may have no image of a group, and a task has to have a class
            tasks.append(Portion(labels=labels_of_task, domain=number))
    return tasks


def _slots(labels: IndexArray, order: Sequence[int], tasks: int, slots: int, seed: int) -> Iterator[Portion]:
    """Yield tasks of ``slots`` equal parts of classes each, drawn from the last task to the first.

    Where fewer classes than slots have parts left, a task gets several parts of one class, as one.
    """
    if tasks * slots < len(order):
        raise ConfigError(
            f"benchmark.stream: {counted(tasks, 'task')} of {counted(slots, 'class')} cannot hold "
            f"{len(order)} classes",
            "raise benchmark.tasks or benchmark.increment",
        )
    draw = np.random.default_rng(seed)
    # how often each class comes; what does not divide evenly goes to drawn classes, once each
    each, more = divmod(tasks * slots, len(order))
    left = dict.fromkeys(order, each)
    for place in draw.permutation(len(order))[:more].tolist():
        left[order[place]] += 1
    parts = {}
    for label, count in left.items():
        positions = np.flatnonzero(labels == label)
        if len(positions) < count:
            raise ConfigError(
                f"benchmark.stream: a class of {counted(len(positions), 'training image')} cannot come "
                f"{count} times",
                "lower benchmark.tasks or benchmark.increment",
            )
        parts[label] = np.array_split(draw.permutation(positions), count)
    made = []
    for _ in range(tasks):
        chosen: list[int] = []
        while len(chosen) < slots:
            # each round takes a class at most once: a second round begins only when all of them are taken
            there = [label for label in order if left[label]]
            for place in draw.permutation(len(there))[: slots - len(chosen)].tolist():
                chosen.append(there[place])
                left[there[place]] -= 1
        rows = np.sort(np.concatenate([parts[label].pop() for label in chosen]))
        # a task names a class once, in the order of the stream, however many of its parts it has
        there = [label for label in order if label in chosen]
        made.append(Portion(labels=tuple(there), rows=rows))
    # drawn last task first: where classes run out of parts, the double ones are in the first tasks
    yield from reversed(made)
