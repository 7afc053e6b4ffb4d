"""Class orders, task sizes and the names of class-incremental splits.

The literature permutes classes in two ways that share only the word "seed": numpy's legacy generator (seed
1993 in LAMDA's code bases and CPrompt) and Python's own shuffle (CODA-Prompt, OVOR). Both are here on local
generators, so a class order never disturbs, or depends on, a global one.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np

from lw2g.plugin import ConfigError, composed, counted, nearest
from lw2g_benchmarks.options import ORDERS, Order, OrderOptions

__all__ = ["SplitName", "class_order", "ordered", "parse_split_name", "task_sizes", "unnamed"]


_LISTED = 5
"""Classes that a message names at most."""
_SPLIT_NAME = re.compile(
    r"(?P<dataset>[\w-]+)\(inc(?P<increment>[1-9]\d*)task(?P<tasks>[1-9]\d*)\)", re.IGNORECASE
)


@attrs.frozen(kw_only=True)
class SplitName:
    """A name such as ``CIFAR(Inc10Task10)``: tasks of ``increment`` new classes each, without a base task."""

    dataset: str
    increment: int
    tasks: int

    @property
    def num_classes(self) -> int:
        """Number of classes the name speaks of."""
        return self.increment * self.tasks


def parse_split_name(name: str, num_classes: int | None = None) -> SplitName:
    """Read ``Dataset(IncNTaskM)`` in any letter case.

    Args:
        name: The name of the split.
        num_classes: Classes of the data set; checked where given.

    Raises:
        ConfigError: If the name has another form, or N * M is not ``num_classes``.

    >>> parse_split_name("CIFAR(INC10Task10)", 100).tasks
    10
    """
    match = _SPLIT_NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"split name {name!r} is not understood", "write it like 'CIFAR(Inc10Task10)'")
    split = SplitName(dataset=match["dataset"], increment=int(match["increment"]), tasks=int(match["tasks"]))
    if num_classes is not None and split.num_classes != num_classes:
        raise ConfigError(
            f"split name {name!r} means {split.num_classes} classes but the data set has {num_classes}",
            "make increment x tasks equal to the number of classes",
        )
    return split


def class_order(order: Order, num_classes: int, seed: int) -> tuple[int, ...]:
    """Return the raw labels 0..num_classes-1 in the wanted order; no global generator is read or moved.

    >>> class_order("seeded", 100, 1993)[:4]
    (68, 56, 78, 8)
    """
    labels = list(range(num_classes))
    if order == "seeded":
        labels = np.random.RandomState(seed).permutation(num_classes).tolist()
    elif order == "shuffled":
        if seed:  # run 0 of CODA-Prompt and OVOR is in natural order
            random.Random(seed).shuffle(labels)
    elif order != "natural":
        raise ValueError(f"expected an order among {ORDERS} but got {order!r}")
    return tuple(labels)


def ordered(options: OrderOptions, names: Sequence[str], *, some: bool = False) -> tuple[int, ...]:
    """Return the raw labels of a benchmark in the order that its options say.

    Args:
        options: Name an order, or list class names or raw labels.
        names: The class names by raw label.
        some: Whether a list may leave classes out.

    Raises:
        ConfigError: A listed class is unknown or repeated, or one is missing.
    """
    # names are compared as text: an option may name classes by their numbers
    wanted = [composed(str(name)) for name in options.class_order]
    if not wanted:
        return class_order(options.order, len(names), options.order_seed)
    label_of = {str(label): label for label in range(len(names))}
    for label, name in enumerate(names):  # a name that is a number is a name
        label_of[composed(name)] = label
    unknown = [name for name in wanted if name not in label_of]
    if unknown:
        raise ConfigError(
            f"benchmark.class_order names {counted(len(unknown), 'unknown class')}, first "
            f"{unknown[0]!r}{nearest(unknown[0], names)}",
            f"use names, such as {names[0]!r}, or numbers from 0 to {len(names) - 1}",
        )
    order = tuple(label_of[name] for name in wanted)
    repeated = [label for label, count in Counter(order).items() if count > 1]
    if repeated:
        raise ConfigError(f"benchmark.class_order repeats {names[repeated[0]]!r}", "name each class once")
    if not some and len(order) < len(names):
        raise ConfigError(f"benchmark.class_order leaves out {unnamed(order, names)}", "name each class once")
    return order


def unnamed(order: Sequence[int], names: Sequence[str]) -> str:
    """Return which classes an order leaves out, of how many.

    >>> unnamed((0, 2), ["ant", "bee", "cat"])
    '1 of 3 classes: bee'
    """
    left_out = [name for label, name in enumerate(names) if label not in order]
    more = " ..." if len(left_out) > _LISTED else ""
    return f"{len(left_out)} of {len(names)} classes: {', '.join(left_out[:_LISTED])}{more}"


def task_sizes(
    num_classes: int, increment: int, uneven: bool | None = False, base: int = 0
) -> tuple[int, ...]:
    """Return the number of classes of each task.

    Args:
        num_classes: Classes of the data set.
        increment: Classes of a task.
        uneven: Allow a smaller last task (as LAMDA's code does); None where no option allows it.
        base: Classes of the first task; 0: as the others.

    Raises:
        ConfigError: If the split would be uneven without leave, or no class is left beside the base.
    """
    if base:
        if base >= num_classes:
            raise ConfigError(
                f"benchmark.base: {base} leaves none of {counted(num_classes, 'class')} for other tasks",
                "lower it",
            )
        return (base, *task_sizes(num_classes - base, increment, uneven))
    num_full, left_over = divmod(num_classes, increment)
    sizes = (increment,) * num_full
    if num_full and not left_over:
        return sizes
    if left_over and uneven:
        return (*sizes, left_over)
    # the benchmark does not know the method, and few learn from one class alone
    fewest = min(2, max(1, num_classes))
    divisors = [n for n in range(fewest, num_classes + 1) if num_classes % n == 0]
    alone = " (or 1, if the method learns single classes)" if fewest > 1 else ""
    choices = ", ".join(map(str, divisors))
    one_of = "one of " if len(divisors) > 1 else ""
    remedy = f"choose {one_of}{choices}{alone}: --set benchmark.increment=N"
    smaller = "let the last task be smaller; --set benchmark.uneven=true"
    given = f"benchmark.increment: {increment}"
    if not num_full:
        if uneven is not None and num_classes > 2:
            remedy += f", or any below {num_classes}, and {smaller}"
        raise ConfigError(f"{given} is larger than the number of classes, {num_classes}", remedy)
    if uneven is not None:
        remedy += f", or {smaller}"
    raise ConfigError(f"{given} does not split {counted(num_classes, 'class')} evenly", remedy)
