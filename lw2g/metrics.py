"""Metrics of continual learning, computed from an accuracy matrix and the map from tasks to sets.

``matrix[i][t]`` is the accuracy in percent on task i after learning task t, None for i > t; tasks count
from 0. The matrix of an unfinished run covers the tasks seen so far. Undefined metrics are None, never 0.
Arrays with NaN for None are accepted too. All metrics are fast enough to compute after every task.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # a report reads stored numbers; it must not wait for torch
    from torch import Tensor

__all__ = [
    "AccuracyMatrix",
    "accuracy",
    "adjusted_rand_index",
    "bwt",
    "caa",
    "chance_pra",
    "coverage_3",
    "faa",
    "faa_of_answers",
    "faa_samples",
    "ffm",
    "ffm_code",
    "pra",
    "ssp",
    "task_accuracy",
]

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]
AccuracyMatrix = Sequence[Sequence[float | None]] | Array


def accuracy(predicted: Tensor, true: Tensor) -> float | None:
    """Return the percentage of equal entries of two label tensors [n], None when they are empty.

    Raises:
        ValueError: the shapes differ.
    """
    if predicted.shape != true.shape:
        raise ValueError(f"expected labels {tuple(true.shape)} but got {tuple(predicted.shape)}")
    total = math.prod(true.shape)
    return 100.0 * int((predicted == true).sum()) / total if total else None


def faa(matrix: AccuracyMatrix) -> float | None:
    """Return the final average accuracy: the mean over tasks of the last column.

    >>> faa([[90.0, 70.0], [None, 80.0]])
    75.0

    Raises:
        ValueError: the matrix is not square, or lacks a number at i <= t, or has one at i > t.
    """
    return _mean(_learned(matrix)[:, -1:])


def faa_samples(matrix: AccuracyMatrix, samples: Sequence[int]) -> float | None:
    """Return the final accuracy over samples: the last column weighted by the test samples of each task.

    >>> faa_samples([[90.0, 70.0], [None, 80.0]], [30, 10])
    72.5

    Raises:
        ValueError: as :func:`faa`, or ``samples`` is not one positive count per task.
    """
    last = _learned(matrix)[:, -1:].ravel()
    _check_samples(samples, len(last))
    return math.fsum(last * np.asarray(samples)) / sum(samples) if len(last) else None


def caa(matrix: AccuracyMatrix) -> float | None:
    """Return the cumulative average accuracy: the mean over t of the mean accuracy after task t.

    >>> caa([[90.0, 70.0], [None, 80.0]])
    82.5

    Raises:
        ValueError: as :func:`faa`.
    """
    learned = _learned(matrix)
    return _mean(np.nansum(learned, axis=0) / np.arange(1, len(learned) + 1))


def ffm(matrix: AccuracyMatrix) -> float | None:
    """Return forgetting as LW2G defines it: the mean over i < T of ``max_{i<=t<=T-1} A[i][t] - A[i][T]``.

    The maximum leaves the last task out, so a task that keeps improving counts negative. None for one task.

    >>> ffm([[90.0, 92.0], [None, 80.0]])
    -2.0

    Raises:
        ValueError: as :func:`faa`.
    """
    old = _learned(matrix)[:-1]
    return _mean(np.fmax.reduce(old[:, :-1], axis=1) - old[:, -1]) if len(old) else None


def ffm_code(matrix: AccuracyMatrix) -> float | None:
    """Return forgetting as the released code computes it: its maximum includes the last task.

    So no task counts negative. None for one task.

    >>> ffm_code([[90.0, 92.0], [None, 80.0]])
    0.0

    Raises:
        ValueError: as :func:`faa`.
    """
    old = _learned(matrix)[:-1]
    return _mean(np.fmax.reduce(old, axis=1) - old[:, -1]) if len(old) else None


def bwt(matrix: AccuracyMatrix) -> float | None:
    """Return backward transfer: the mean over tasks i < T of ``A[i][T] - A[i][i]``, None for one task.

    >>> bwt([[90.0, 92.0], [None, 80.0]])
    2.0

    Raises:
        ValueError: as :func:`faa`.
    """
    old = _learned(matrix)[:-1]
    return _mean(old[:, -1] - old.diagonal()) if len(old) else None


def pra(retrieval: AccuracyMatrix | None) -> float | None:
    """Return prompt retrieval accuracy: the mean over tasks of the last column of the retrieval matrix.

    An entry is the percentage of a task's test samples for which retrieval names the set that holds the task.
    None if a method makes no hard choice of a set: no matrix, or a matrix of None.

    Raises:
        ValueError: as :func:`faa`.
    """
    if retrieval is None:
        return None
    values = _numbers(retrieval)
    return None if np.isnan(values).all() else faa(values)


def faa_of_answers(task: Integers, true: Integers, answers: Integers) -> float:
    """Return the mean over tasks of the percentage of samples whose answer is the true class.

    Args:
        task: Task of each sample, ``[N]``.
        true: Its class.
        answers: The predicted class.

    >>> faa_of_answers(np.array([0, 0, 1]), np.array([3, 4, 5]), np.array([3, 5, 5]))
    75.0
    """
    return _share(task, answers == true)


def task_accuracy(task: Integers, true: Integers, predicted: Integers) -> float:
    """Return the mean over tasks of the percentage of samples whose predicted class is one of their task.

    A task's classes begin with the lowest one that has a test sample; arguments are ``[N]``.
    """
    first = np.full(int(task.max()) + 1, true.max())
    np.minimum.at(first, task, true)
    return _share(task, np.searchsorted(first, predicted, side="right") - 1 == task)


def coverage_3(task: Integers, rank: Integers) -> float:
    """Return the mean over tasks of the percentage of samples whose task's set is among the first 3 choices.

    Args:
        task: Task of each sample, ``[N]``.
        rank: Number of sets that retrieval prefers to the one that holds the task.
    """
    return _share(task, rank < 3)


def ssp(task_to_set: Mapping[int, int]) -> int:
    """Return the size of the pool: the number of distinct sets that hold a task.

    >>> ssp({0: 0, 1: 0, 2: 1})
    2
    """
    return len(set(task_to_set.values()))


def chance_pra(task_to_set: Mapping[int, int], retrieval: AccuracyMatrix | None = None) -> float | None:
    """Return the PRA in percent of guessing a task at random; fewer sets alone make retrieval easier.

    Like PRA it is a mean over tasks: a sample of task i is right with the share of tasks that the set of i
    holds. None without tasks.

    Args:
        task_to_set: The set that holds each task.
        retrieval: Ignored.

    >>> round(chance_pra({0: 0, 1: 0, 2: 1}), 1)
    55.6
    """
    tasks = len(task_to_set)
    if not tasks:
        return None
    return 100.0 * sum(count**2 for count in Counter(task_to_set.values()).values()) / tasks**2


def adjusted_rand_index(task_to_set: Mapping[int, int], planted: Mapping[int, Hashable]) -> float | None:
    """Return how well the sets match planted groups of tasks: 1 for equal partitions, near 0 by chance.

    None below two tasks, where there is only one partition.

    >>> adjusted_rand_index({0: 0, 1: 0, 2: 1, 3: 1}, {0: "photo", 1: "photo", 2: "sketch", 3: "sketch"})
    1.0

    Raises:
        ValueError: a task of the run has no planted group.
    """
    missing = sorted(set(task_to_set) - set(planted))
    if missing:
        raise ValueError(f"expected a planted group for every task but got none for {missing}")
    if len(task_to_set) < 2:
        return None
    from sklearn.metrics import adjusted_rand_score  # slow to import, rarely needed

    labels: dict[Hashable, int] = {}
    groups = [labels.setdefault(planted[task], len(labels)) for task in task_to_set]
    return float(adjusted_rand_score(groups, list(task_to_set.values())))


def _numbers(matrix: AccuracyMatrix) -> Array:
    """Return the matrix as an array ``[T, T]``, NaN for None."""
    tasks = len(matrix)
    for i, row in enumerate(matrix):
        if len(row) != tasks:
            raise ValueError(
                f"expected {tasks} entries for each of {tasks} tasks but got {len(row)} for task {i}"
            )
    return np.array(matrix, dtype=np.float64).reshape(tasks, tasks)


def _learned(matrix: AccuracyMatrix) -> Array:
    """Check the matrix and return it as an array ``[T, T]``, NaN for ``i > t`` alone."""
    values = _numbers(matrix)
    learned = np.triu(np.ones(values.shape, dtype=bool))
    right = np.where(learned, (values >= 0) & (values <= 100), np.isnan(values))
    if not right.all():
        i, t = (int(place) for place in np.argwhere(~right)[0])
        if t < i:
            raise ValueError(f"expected None before task {i} was learned but got {values[i, :i].tolist()!r}")
        raise ValueError(f"expected percentages from task {i} on but got {values[i].tolist()!r}")
    return values


def _check_samples(samples: Sequence[int], tasks: int) -> None:
    if len(samples) != tasks or any(count < 1 for count in samples):
        raise ValueError(f"expected {tasks} positive sample counts but got {list(samples)!r}")


def _mean(values: Array) -> float | None:
    return math.fsum(values.flat) / values.size if values.size else None


def _share(task: Integers, right: npt.NDArray[np.bool_]) -> float:
    """Return the mean over tasks of the percentage of samples that are right."""
    shares: list[float] = (100.0 * (np.bincount(task, right) / np.bincount(task))).tolist()
    return sum(shares) / len(shares)
