"""The metrics of a run, recomputed in plain numpy from its predictions, as any reader could.

Nothing here is shared with the code that wrote the record (:mod:`lw2g.maths.metrics`), so that the two can be
compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

__all__ = [
    "Columns",
    "RecordedStream",
    "calibration_error",
    "matrices",
    "metrics",
    "rand_index",
    "read_columns",
]

Columns = Mapping[str, npt.NDArray[np.int32]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_FURTHER = ("hard", "told", "within")
"""Columns of predictions made in another way, each with a metric of its own."""


def read_columns(path: Path) -> Columns:
    """Return the columns of a file of predictions."""
    columns: Columns = load_file(path)
    return columns


@attrs.frozen(kw_only=True)
class RecordedStream:
    """The classes and the domain of each task of a stream, as a record has them.

    Where classes come again, it says by itself which tasks are tested and which own a class; what says so
    while a run learns (:mod:`lw2g.maths.metrics`) is not used here.

    Attributes:
        classes: The targets of each task.
        domains: The domain of each task; empty where there is one alone.
    """

    classes: Sequence[Sequence[int]]
    domains: Sequence[str]

    @classmethod
    def of(cls, record: Mapping[str, Any], tasks: int) -> RecordedStream:
        """Return those of the first tasks of a record."""
        domains = record["domains"] or [""] * tasks
        return cls(classes=record["task_classes"][:tasks], domains=domains[:tasks])

    @cached_property
    def _tasks(self) -> Mapping[tuple[str, int], list[int]]:
        """The tasks that have a class in a domain."""
        tasks: dict[tuple[str, int], list[int]] = defaultdict(list)
        for task, (domain, classes) in enumerate(zip(self.domains, self.classes, strict=True)):
            for target in classes:
                tasks[domain, target].append(task)
        return dict(tasks)

    @cached_property
    def tested(self) -> set[int]:
        """The tasks with test images: those that bring a class in a domain first."""
        return set(map(min, self._tasks.values()))

    def owners(self, task: int, true: int) -> list[int]:
        """Return the tasks that have a class in the domain of a task."""
        return self._tasks.get((self.domains[task], true), [])


def matrices(
    evaluations: Sequence[Columns | None], task_to_set: Sequence[int], stream: RecordedStream
) -> tuple[Floats, Floats | None]:
    """Return accuracy and retrieval accuracy of task i after task t in percent.

    Args:
        evaluations: Predictions after each task, None where nothing was measured.
        task_to_set: The set that holds each task.
        stream: The classes and domains of the tasks.

    Returns:
        Two ``[T, T]`` matrices, NaN for i > t, without test images and where nothing was measured; the second
        is None where no set was chosen.
    """
    tasks = len(evaluations)
    accuracy = np.full((tasks, tasks), np.nan)
    retrieval = np.full((tasks, tasks), np.nan)
    # -1 stands for "no set was chosen"
    has_choices = all(columns is None or (columns["set"] >= 0).all() for columns in evaluations)
    for task in stream.tested:
        for after in range(task, tasks):
            columns = evaluations[after]
            if columns is None:
                continue
            rows = columns["task"] == task
            true = columns["true"][rows]
            accuracy[task, after] = 100 * np.mean(columns["predicted"][rows] == true)
            if not has_choices:
                continue
            # a set counts as right once it has learned the class: owners that come later do not count yet
            right_sets = {}
            for target in np.unique(true).tolist():
                owners = stream.owners(task, target)
                right_sets[target] = {task_to_set[owner] for owner in owners if owner <= after}
            hits = []
            for target, chosen in zip(true.tolist(), columns["set"][rows].tolist(), strict=True):
                hits.append(chosen in right_sets[target])
            retrieval[task, after] = 100 * np.mean(hits)
    return accuracy, retrieval if has_choices else None


_SOMETIMES = (
    *("faa_domains", "caa", "caa_samples", "ffm", "ffm_code", "ffm_absent", "bwt"),
    *("pra", "coverage_3", "ssp", "chance_pra"),
)
"""Metrics that are not defined for every run."""


def metrics(
    evaluations: Sequence[Columns | None],
    task_to_set: Sequence[int],
    stream: RecordedStream,
    found: tuple[Floats, Floats | None],
    *,
    sets: bool,
) -> dict[str, Any]:
    """Return every metric of a record by its name there.

    What is a mean or a maximum over all evaluations is None where one of them was not made.

    Args:
        evaluations: Predictions after each task, None where nothing was measured; not for the last one.
        task_to_set: The set that holds each task.
        stream: The classes and domains of the tasks.
        found: The :func:`matrices` of these.
        sets: Whether the sets hold parameters at all; otherwise their number means nothing.
    """
    accuracy, retrieval = found
    made = [columns for columns in evaluations if columns is not None]
    last = made[-1]
    is_tested = np.array([task in stream.tested for task in range(len(accuracy))])
    values: dict[str, Any] = {
        "faa": np.mean(accuracy[is_tested, -1]),
        "faa_samples": 100 * np.mean(_right(last)),
        "faa_classes": np.mean(list(_by_class(last).values())),
        "task_accuracy": 100 * _of_own_task(last, stream),
    }
    for name in _FURTHER:
        values[f"faa_{name}"] = _of_column(last, name)

    # what is not defined for this run is None in its record, never 0 and never left out
    values |= dict.fromkeys(_SOMETIMES)
    if any(stream.domains):
        values["faa_domains"] = _by_domain(last, stream)
    is_whole = len(made) == len(evaluations)
    if is_whole:
        values["caa"] = np.mean([np.nanmean(column) for column in accuracy.T])
        values["caa_samples"] = 100 * np.mean([np.mean(_right(columns)) for columns in made])
        values["ffm_absent"] = _absent(made, stream)
    old = accuracy[:-1][is_tested[:-1]]
    if is_whole and len(old) > 0:
        learned = np.diag(accuracy)[:-1][is_tested[:-1]]
        # the paper's maximum leaves out the last task, that of the released code includes it
        values["ffm"] = np.mean(np.nanmax(old[:, :-1], axis=1) - old[:, -1])
        values["ffm_code"] = np.mean(np.nanmax(old, axis=1) - old[:, -1])
        values["bwt"] = np.mean(old[:, -1] - learned)
    if retrieval is not None:
        values["pra"] = np.mean(retrieval[is_tested, -1])
        values["coverage_3"] = 100 * _coverage(last, 3)
    if sets:
        values["ssp"] = len(set(task_to_set))
    if sets and retrieval is not None:
        values["chance_pra"] = _chance(last, task_to_set, stream)
    return values


def _right(columns: Columns) -> Bools:
    """Whether each sample is predicted rightly."""
    right: Bools = columns["predicted"] == columns["true"]
    return right


def _mean_of_tasks(columns: Columns, of: Callable[[int, Bools], Any]) -> Any:
    """Return the mean over the tasks in a file of predictions, whatever their numbers of samples.

    Args:
        columns: The predictions.
        of: Gives the value of a task from its number and the mask of its samples.
    """
    values = []
    for task in np.unique(columns["task"]).tolist():
        values.append(of(task, columns["task"] == task))
    return np.mean(values)


def _by_class(columns: Columns) -> dict[int, float]:
    """Return the accuracy in percent of each class that has samples."""
    classes, places = np.unique(columns["true"], return_inverse=True)
    right = np.bincount(places, weights=_right(columns))
    shares = 100 * right / np.bincount(places)
    return dict(zip(classes.tolist(), shares.tolist(), strict=True))


def _by_domain(columns: Columns, stream: RecordedStream) -> Any:
    """Return the mean over domains of their accuracies in percent."""
    domain_of_sample = np.array(stream.domains)[columns["task"]]
    right = _right(columns)
    return 100 * np.mean([np.mean(right[domain_of_sample == name]) for name in np.unique(domain_of_sample)])


def _absent(evaluations: Sequence[Columns], stream: RecordedStream) -> Any:
    """Return what classes lost, in percent, since the last task that trained them; None if none did since."""
    newest = {}
    for task, classes in enumerate(stream.classes):
        for target in classes:
            newest[target] = task  # a later task overwrites an earlier one
    by_class = [_by_class(columns) for columns in evaluations]
    lost = []
    for target in by_class[-1]:
        course = [after[target] for after in by_class[newest[target] :]]
        if len(course) > 1:
            lost.append(max(course[:-1]) - course[-1])
    if not lost:
        return None
    return np.mean(lost)


def _chance(columns: Columns, task_to_set: Sequence[int], stream: RecordedStream) -> Any:
    """Return the retrieval accuracy in percent of a guess that draws a task, and takes its set."""
    share_of_set = {}
    for number in task_to_set:
        share_of_set[number] = task_to_set.count(number) / len(task_to_set)

    def chance_of(task: int, rows: Bools) -> Any:
        """Return the chance from 0 to 1 of a task's samples, each of which counts once."""
        classes, counts = np.unique(columns["true"][rows], return_counts=True)
        chances = []
        for target in classes.tolist():
            right_sets = {task_to_set[owner] for owner in stream.owners(task, target)}
            chances.append(sum(share_of_set[number] for number in right_sets))
        return np.average(chances, weights=counts)

    return 100 * _mean_of_tasks(columns, chance_of)


def _of_column(columns: Columns, name: str) -> Any:
    """Return the mean over tasks of the accuracies in percent of a further column; None if it is absent."""
    if name not in columns:
        return None
    right = columns[name] == columns["true"]
    return 100 * _mean_of_tasks(columns, lambda _, rows: np.mean(right[rows]))


def _of_own_task(columns: Columns, stream: RecordedStream) -> Any:
    """Return the mean over tasks of the share of samples that get a class of their own task."""
    predicted = columns["predicted"]
    return _mean_of_tasks(columns, lambda task, rows: np.mean(np.isin(predicted[rows], stream.classes[task])))


def _coverage(columns: Columns, choices: int) -> Any:
    """Return the mean over tasks of the share of samples whose right set is among the first choices."""
    is_covered = columns["rank"] < choices
    return _mean_of_tasks(columns, lambda _, rows: np.mean(is_covered[rows]))


def calibration_error(columns: Columns, bins: int) -> float | None:
    """Return the expected calibration error in percent of predictions; None without their probabilities.

    It is the mean over samples of the gap, within their bin, between mean probability and accuracy.

    Args:
        columns: The predictions, with the probability of each predicted class in millionths.
        bins: Number of bins of equal width from 0 to 1.
    """
    if "probability" not in columns:
        return None
    probability = columns["probability"] / 1e6  # kept in millionths
    right = _right(columns)
    total_gap = 0.0  # a bin's gap times its number of samples, summed over bins
    for number in range(bins):
        in_bin = probability * bins >= number
        if number < bins - 1:  # the last bin has its upper end, 1, too
            in_bin &= probability * bins < number + 1
        total_gap += abs(float(np.sum(probability[in_bin]) - np.sum(right[in_bin])))
    return 100 * total_gap / len(probability)


def rand_index(left: Sequence[int], right: Sequence[Any]) -> float | None:
    """Return the adjusted Rand index of two partitions of tasks, None below two tasks."""
    if len(left) < 2:
        return None
    # over all pairs of tasks: whether each partition puts the two together
    together = np.equal.outer(np.asarray(left), np.asarray(left))
    planted = np.equal.outer(np.asarray(right), np.asarray(right))
    pairs = np.triu(np.ones_like(together), 1)
    both = np.sum(together & planted & pairs)
    first = np.sum(together & pairs)
    second = np.sum(planted & pairs)
    expected = first * second / np.sum(pairs)
    largest = (first + second) / 2
    if largest == expected:  # both are one group, or both are singles: they agree, and 0 / 0 says nothing
        return 1.0
    return float((both - expected) / (largest - expected))
