"""The finished cells of the study, and paired differences between them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from cell import STEPS, VARIANTS
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from stream_tables import classes_of

from lw2g.results.bootstrap import over_orders_and_images
from lw2g.results.right_answers import RightAnswers, right_answers


@attrs.frozen(eq=False)
class Cell:
    """A stream, an order, a method and a resolution under every carry.

    Attributes:
        facts: What was run.
        accuracy: ``[variants, with expert, state, task]`` in per cent; NaN where there is none.
        answers: Answers of the last state, ``[variants, with expert, test images]``.
        labels: Their classes.
        steps: One row of :data:`cell.STEPS` for each task from the second.
        left_out: FAA of ``affine`` with the carry of one step left out, by step; None in the first cells.
    """

    facts: Mapping[str, Any]
    accuracy: NDArray[np.float32]
    answers: NDArray[np.int16]
    labels: NDArray[np.int16]
    steps: NDArray[np.float32]
    left_out: NDArray[np.float32] | None = None

    def faa(self, carry: str, expert: bool = False) -> float:
        """Return the mean over tasks of accuracy after the last task."""
        return float(self.accuracy[VARIANTS.index(carry), int(expert), -1].mean())

    def right_answers(self, carry: str, expert: bool = False) -> RightAnswers:
        """Return the answers of a carry, whose images have the same names in every order."""
        tasks = self.accuracy.shape[-1]
        columns = {"true": self.labels, "predicted": self.answers[VARIANTS.index(carry), int(expert)]}
        names = classes_of(self.facts["stream"], self.facts["order"])
        return right_answers(columns, names, task_of(self.labels, tasks))

    def hits(self, carry: str, expert: bool = False) -> NDArray[np.float64]:
        """Return for each test image whether it is right, weighted so that the mean is the FAA."""
        right = self.answers[VARIANTS.index(carry), int(expert)] == self.labels
        return weighted(right, self.labels, self.accuracy.shape[-1])

    def step(self, name: str) -> NDArray[np.float32]:
        """Return a column of the steps."""
        return self.steps[:, STEPS.index(name)]


def weighted(right: NDArray[np.bool_], labels: NDArray[np.int16], tasks: int) -> NDArray[np.float64]:
    """Return which test images are right, in per cent and weighted: every task counts alike in the mean."""
    task = task_of(labels, tasks)
    sizes = np.bincount(task, minlength=tasks)
    return np.asarray(100.0 * right * (len(task) / tasks / sizes)[task])


def task_of(labels: NDArray[np.int16], tasks: int) -> NDArray[np.int64]:
    """Return the task of each label; all tasks have as many classes."""
    return (labels // ((int(labels.max()) + 1) // tasks)).astype(np.int64)


def task_mean(right: NDArray[np.bool_], labels: NDArray[np.int16], tasks: int) -> float:
    """Return the mean over tasks of the accuracy on their images, in per cent."""
    return float(weighted(right, labels, tasks).mean())


def load(folder: Path) -> list[Cell]:
    """Return the cells of a folder.

    Raises:
        ValueError: A cell's answers do not end where it says.
    """
    cells = []
    for file in sorted(folder.glob("*.npz")):
        stored = np.load(file)
        values = {name: stored[name] for name in ("accuracy", "answers", "labels", "steps")}
        values["left_out"] = stored.get("left_out")
        cell = Cell(facts=json.loads(str(stored["facts"])), **values)
        again, by_run = float(cell.hits("affine").mean()), cell.facts["faa"]
        if abs(again - by_run) > 0.01:
            raise ValueError(f"{file.name}: affine is {again:.3f} by its answers and {by_run:.3f} by the run")
        cells.append(cell)
    return cells


def chosen(cells: Iterable[Cell], stream: str, method: str, size: int) -> list[Cell]:
    """Return the orders of a stream, method and size."""
    wanted = {"stream": stream, "method": method, "size": size}
    found = [cell for cell in cells if all(cell.facts[key] == value for key, value in wanted.items())]
    return sorted(found, key=lambda cell: cell.facts["order"])


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95 % t-interval; infinity of one value.

    >>> [round(value, 2) for value in mean_and_half([1.0, 2.0, 3.0])]
    [2.0, 2.48]
    """
    if len(values) < 2:
        return float(np.mean(values)), float("inf")
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * spread


@attrs.frozen(kw_only=True)
class Difference:
    """A paired difference of FAA.

    Attributes:
        mean: Over orders.
        low: The lower end of its 95 % interval over orders and test images (paired bootstrap).
        high: The upper end.
        worst: Of the orders.
        orders: How many there are.
    """

    mean: float
    low: float
    high: float
    worst: float
    orders: int

    def interval(self) -> str:
        """Return mean and interval as pages print them."""
        return f"{self.mean:+z.1f} [{self.low:+z.1f}, {self.high:+z.1f}]"

    def __str__(self) -> str:
        orders = f"{self.orders} order{'s' * (self.orders > 1)}"
        return f"{self.interval()} (worst {self.worst:+.1f}; {orders})"


def less(cells: Sequence[Cell], left: Mapping[str, Any], right: Mapping[str, Any]) -> Difference:
    """Return the difference of two variants ``{carry, expert}``, paired by order and image."""
    apart = [cell.faa(**left) - cell.faa(**right) for cell in cells]
    found = over_orders_and_images(
        {cell.facts["order"]: cell.right_answers(**left) for cell in cells},
        {cell.facts["order"]: cell.right_answers(**right) for cell in cells},
    )
    assert found is not None, "equal orders"
    assert found.low is not None
    assert found.high is not None
    return Difference(mean=found.mean, low=found.low, high=found.high, worst=min(apart), orders=len(cells))


def less_by_orders(cells: Sequence[Cell], left: Mapping[str, Any], right: Mapping[str, Any]) -> Difference:
    """Return the same difference with the 95 % t-interval over orders, which hypotheses.toml foresaw.

    One order has the interval of :func:`less`, over its test images.
    """
    found = less(cells, left, right)
    if found.orders < 2:
        return found
    mean, half = mean_and_half([cell.faa(**left) - cell.faa(**right) for cell in cells])
    return attrs.evolve(found, low=mean - half, high=mean + half)
