"""Metrics of continual learning, computed from an accuracy matrix and the map from tasks to sets.

``matrix[i][t]`` is the accuracy in percent on task i after learning task t, None for i > t and for a task
without test images, which every mean leaves out; tasks count from 0. The matrix of an unfinished run covers
the tasks seen so far. A column of None was not measured (``run.evaluate``): what needs every column is
undefined then. Undefined metrics are None, never 0. Arrays with NaN for None are accepted too. All
metrics are fast enough to compute after every task.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # a report reads stored numbers; it must not wait for torch
    from torch import Tensor

__all__ = [
    "CALIBRATION_BINS",
    "AccuracyMatrix",
    "accuracy",
    "adjusted_rand_index",
    "bwt",
    "caa",
    "caa_samples",
    "calibration_error",
    "chance_pra",
    "coverage_3",
    "faa",
    "faa_classes",
    "faa_domains",
    "faa_of_answers",
    "faa_samples",
    "ffm",
    "ffm_absent",
    "ffm_code",
    "owning_sets",
    "owning_tasks",
    "pra",
    "ssp",
    "task_accuracy",
]

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]
AccuracyMatrix = Sequence[Sequence[float | None]] | Array
Classes = Sequence[Sequence[int]]


def accuracy(predicted: Tensor, true: Tensor) -> float | None:
    """Return the percentage of equal entries of two label tensors [n], None when they are empty.

    Raises:
        ValueError: the shapes differ.
    """
    if predicted.shape != true.shape:
        raise ValueError(f"expected labels {tuple(true.shape)} but got {tuple(predicted.shape)}")
    total = math.prod(true.shape)
    if total == 0:
        return None
    return 100.0 * int((predicted == true).sum()) / total


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
    last = _learned(matrix)[:, -1:]
    _check_samples(samples, last.ravel())
    if not len(last):
        return None
    return _pooled(last, np.asarray(samples))[0]


def caa_samples(matrix: AccuracyMatrix, samples: Sequence[int]) -> float | None:
    """Return the mean over t of the accuracy after task t on all test samples of the seen tasks together.

    >>> caa_samples([[90.0, 70.0], [None, 80.0]], [30, 10])
    81.25

    Raises:
        ValueError: as :func:`faa_samples`.
    """
    learned = _learned(matrix)
    _check_samples(samples, learned[:, -1:].ravel())
    if not _is_whole(learned):
        return None
    return _mean(np.array(_pooled(learned, np.asarray(samples))))


def caa(matrix: AccuracyMatrix) -> float | None:
    """Return the cumulative average accuracy: the mean over t of the mean accuracy after task t.

    >>> caa([[90.0, 70.0], [None, 80.0]])
    82.5

    Raises:
        ValueError: as :func:`faa`.
    """
    learned = _learned(matrix)
    if not _is_whole(learned):
        return None
    tested = np.isfinite(learned).sum(axis=0)
    return _mean(np.nansum(learned, axis=0)[tested > 0] / tested[tested > 0])


def ffm(matrix: AccuracyMatrix) -> float | None:
    """Return forgetting as LW2G defines it: the mean over i < T of ``max_{i<=t<=T-1} A[i][t] - A[i][T]``.

    The maximum leaves the last task out, so a task that keeps improving counts negative. None for one task.

    >>> ffm([[90.0, 92.0], [None, 80.0]])
    -2.0

    Raises:
        ValueError: as :func:`faa`.
    """
    learned = _learned(matrix)
    old = learned[:-1]
    if not len(old) or not _is_whole(learned):
        return None
    return _mean(np.fmax.reduce(old[:, :-1], axis=1) - old[:, -1])


def ffm_code(matrix: AccuracyMatrix) -> float | None:
    """Return forgetting as the released code computes it: its maximum includes the last task.

    So no task counts negative. None for one task.

    >>> ffm_code([[90.0, 92.0], [None, 80.0]])
    0.0

    Raises:
        ValueError: as :func:`faa`.
    """
    learned = _learned(matrix)
    old = learned[:-1]
    if not len(old) or not _is_whole(learned):
        return None
    return _mean(np.fmax.reduce(old, axis=1) - old[:, -1])


def bwt(matrix: AccuracyMatrix) -> float | None:
    """Return backward transfer: the mean over tasks i < T of ``A[i][T] - A[i][i]``, None for one task.

    >>> bwt([[90.0, 92.0], [None, 80.0]])
    2.0

    Raises:
        ValueError: as :func:`faa`.
    """
    learned = _learned(matrix)
    old = learned[:-1]
    if not len(old) or not _is_whole(learned):
        return None
    return _mean(old[:, -1] - old.diagonal())


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
    if np.isnan(values).all():
        return None
    return faa(values)


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


def task_accuracy(task: Integers, predicted: Integers, classes: Classes) -> float:
    """Return the mean over tasks of the percentage of samples whose predicted class is one of their task.

    Args:
        task: Task of each sample, ``[N]``.
        predicted: The predicted class.
        classes: The classes of each task.

    >>> task_accuracy(np.array([0, 0, 1]), np.array([1, 2, 2]), [(0, 1), (2, 3)])
    75.0
    """
    of_task = np.zeros((len(classes), 1 + max(map(max, classes))), dtype=bool)
    for index, task_classes in enumerate(classes):
        of_task[index, list(task_classes)] = True
    return _share(task, of_task[task, predicted])


def coverage_3(task: Integers, rank: Integers) -> float:
    """Return the mean over tasks of the percentage of samples whose task's set is among the first 3 choices.

    Args:
        task: Task of each sample, ``[N]``.
        rank: Number of sets that retrieval prefers to the one that holds the task.
    """
    return _share(task, rank < 3)


def ssp(task_to_set: Mapping[int, int]) -> int:
    """Return the number of parameter sets in the pool that hold a task.

    >>> ssp({0: 0, 1: 0, 2: 1})
    2
    """
    return len(set(task_to_set.values()))


def chance_pra(
    task_to_set: Mapping[int, int],
    task: Integers,
    true: Integers,
    classes: Classes,
    domains: Sequence[str],
    retrieved: Integers | None = None,
) -> float | None:
    """Return the PRA in percent of guessing a task at random; fewer sets alone make retrieval easier.

    Like PRA it is a mean over tasks: a sample is right with the share of tasks whose set owns it. None
    without tasks.

    Args:
        task_to_set: The set that holds each task.
        task: Task of each test sample, ``[N]``.
        true: Its class.
        classes: The classes of each task.
        domains: Its domain.
        retrieved: Ignored.

    >>> samples = np.array([0, 1, 2])
    >>> round(chance_pra({0: 0, 1: 0, 2: 1}, samples, samples, [(0,), (1,), (2,)], [""] * 3), 1)
    55.6
    """
    sets = [task_to_set[index] for index in range(len(task_to_set))]
    if not sets:
        return None
    rows, tasks = owning_tasks(task, true, classes, domains)
    # a guess is a task, so a set counts once for each of its tasks; [N], out of len(sets) guesses
    right = owning_sets(tasks, sets)[:, sets].sum(axis=1)[rows]
    samples = np.bincount(task)
    means = (np.bincount(task, right) / np.maximum(samples, 1))[samples > 0]
    return 100.0 * math.fsum(means) / (len(means) * len(sets))


def owning_tasks(
    task: Integers, true: Integers, classes: Classes, domains: Sequence[str]
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return which tasks own each test sample: those with its class in its domain.

    Args:
        task: Task of each sample, ``[N]``: the first that brought its class in its domain.
        true: Its class.
        classes: The classes of each of T tasks.
        domains: Its domain.

    Returns:
        A row for each sample, ``[N]``, and rows of owning tasks, ``[rows, T]``.
    """
    owners: dict[tuple[str, int], list[int]] = {}
    for index, task_classes in enumerate(classes):
        for target in task_classes:
            owners.setdefault((domains[index], target), []).append(index)
    # task and class of a sample as one number: they are few, however many samples there are
    width = 1 + int(true.max(initial=0))
    pairs, rows = np.unique(task.astype(np.int64) * width + true, return_inverse=True)
    table = np.zeros((len(pairs), len(classes)), dtype=bool)
    for row, pair in enumerate(pairs.tolist()):
        table[row, owners[domains[pair // width], pair % width]] = True
    return rows, table


def owning_sets(tasks: npt.NDArray[np.bool_], task_to_set: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return which sets hold an owning task, ``[rows, sets]``, given owning tasks ``[rows, T]``."""
    sets = np.zeros((len(tasks), 1 + max(task_to_set)), dtype=bool)
    for index, set_id in enumerate(task_to_set[: tasks.shape[1]]):
        sets[:, set_id] |= tasks[:, index]
    return sets


def faa_classes(class_accuracy: Array) -> float | None:
    """Return the mean over seen classes of the accuracy on all their test samples.

    Args:
        class_accuracy: Accuracy in percent of each class after each task ``[C, T]``; NaN where it is not
            seen yet or has no test samples.

    >>> faa_classes(np.array([[90.0, 70.0], [np.nan, 80.0]]))
    75.0
    """
    return _mean(class_accuracy[:, -1])


def faa_domains(task: Integers, true: Integers, predicted: Integers, domains: Sequence[str]) -> float | None:
    """Return the mean over domains of the accuracy on all test samples of a domain; None without domains.

    >>> faa_domains(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0, 0, 0]), ["photo", "sketch"])
    75.0
    """
    if not any(domains):
        return None
    numbers: dict[str, int] = {}
    domain_of_task = [numbers.setdefault(name, len(numbers)) for name in domains]
    return _share(np.array(domain_of_task)[task], predicted == true)


def ffm_absent(class_accuracy: Array, classes: Classes) -> float | None:
    """Return forgetting of classes since they were trained last.

    The mean over classes whose last training task s lies before the last task T of
    ``max_{s<=t<=T-1} A[c][t] - A[c][T]``; None without any.

    Args:
        class_accuracy: As for :func:`faa_classes`.
        classes: The classes of each task.

    >>> ffm_absent(np.array([[90.0, 95.0, 70.0], [80.0, 80.0, 85.0]]), [(0, 1), (0,), (1,)])
    25.0
    """
    if not _is_whole(class_accuracy):
        return None
    newest: dict[int, int] = {}
    for index, task_classes in enumerate(classes):
        for target in task_classes:
            newest[target] = index
    end = len(classes) - 1
    lost = []
    for target, since in newest.items():
        if since < end:
            best = np.fmax.reduce(class_accuracy[target, since:end])
            lost.append(best - class_accuracy[target, end])
    return _mean(np.array(lost))


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
    if not isinstance(matrix, np.ndarray):  # an array's rows are of one length, and reshape checks it
        for i, row in enumerate(matrix):
            if len(row) != tasks:
                raise ValueError(
                    f"expected {tasks} entries for each of {tasks} tasks but got {len(row)} for task {i}"
                )
    return np.array(matrix, dtype=np.float64).reshape(tasks, tasks)


def _is_whole(accuracy: Array) -> bool:
    """Return whether something was measured after every task, given ``[n, T]``."""
    return not np.isnan(accuracy).all(axis=0).any()


def _learned(matrix: AccuracyMatrix) -> Array:
    """Check the matrix and return it as an array ``[T, T]``.

    NaN is right for ``i > t``, for a task without test images (never the first) and, but for the last column,
    where nothing was measured.
    """
    values = _numbers(matrix)
    learned = np.triu(np.ones(values.shape, dtype=bool))
    learned[:, :-1] &= ~np.isnan(values[:, :-1]).all(axis=0)
    untested = np.zeros((len(values), 1), dtype=bool)
    # a later task may bring known classes alone, which are tested in the tasks that had them first
    untested[1:, 0] = np.isnan(values[1:]).all(axis=1)
    right = np.where(learned & ~untested, (values >= 0) & (values <= 100), np.isnan(values))
    if not right.all():
        i, t = np.argwhere(~right)[0].tolist()
        if t < i:
            raise ValueError(f"expected None before task {i} was learned but got {values[i, :i].tolist()!r}")
        raise ValueError(f"expected percentages from task {i} on but got {values[i].tolist()!r}")
    return values


def _check_samples(samples: Sequence[int], last: Array) -> None:
    """Refuse counts that are not one for each task of the last column, positive where it has a number."""
    least = np.where(np.isnan(last), 0, 1)
    if len(samples) != len(last) or (np.asarray(samples) < least).any():
        raise ValueError(f"expected {len(last)} positive sample counts but got {list(samples)!r}")


def _pooled(accuracy: Array, samples: Integers) -> list[float]:
    """Return for each column ``[T]`` the accuracy on all samples of the tasks that have any."""
    tested = np.isfinite(accuracy)
    right = np.where(tested, accuracy, 0.0) * samples[:, None]
    totals = (samples @ tested).tolist()
    pooled = []
    for column, total in zip(right.T.tolist(), totals, strict=True):
        # fsum: the order of the tasks must not decide the last bit
        pooled.append(math.fsum(column) / total if total else math.nan)
    return pooled


def _mean(values: Array) -> float | None:
    """Return the mean of the numbers that are known; None without any."""
    known = values[np.isfinite(values)]
    if not known.size:
        return None
    return math.fsum(known) / known.size


def _share(task: Integers, right: npt.NDArray[np.bool_]) -> float:
    """Return the mean over tasks of the percentage of samples that are right."""
    samples = np.bincount(task)
    tested = samples > 0
    shares: list[float] = (100.0 * (np.bincount(task, right)[tested] / samples[tested])).tolist()
    return sum(shares) / len(shares)


CALIBRATION_BINS = 15
"""Equal bins of the probability of the best class, over which a calibration error is averaged."""


def calibration_error(probability: Integers, right: npt.NDArray[np.bool_]) -> float:
    """Return the expected calibration error (ECE) in percent (Guo et al., ICML 2017).

    Args:
        probability: Of each predicted class in millionths, ``[N]``.
        right: Whether each prediction is right, ``[N]``.
    """
    certainty = probability / 1e6  # from 0 to 1, of which 1 is of the last bin
    bins = np.minimum((certainty * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    # a bin's gap between mean probability and accuracy, times its number of samples
    gaps = np.bincount(bins, weights=certainty - right, minlength=CALIBRATION_BINS)
    return float(100 * np.abs(gaps).sum() / len(certainty))
