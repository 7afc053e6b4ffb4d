"""The metrics of a run, recomputed in plain numpy from its predictions, as any reader could.

Nothing here is shared with the code that wrote the record (:mod:`lw2g.metrics`), so that the two can be
compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

__all__ = ["Columns", "Streamed", "matrices", "metrics", "rand_index", "read_columns"]

Columns = Mapping[str, npt.NDArray[np.int32]]
Floats = npt.NDArray[np.float64]


def read_columns(path: Path) -> Columns:
    """Return the columns of a file of predictions."""
    columns: Columns = load_file(path)
    return columns


@attrs.frozen(kw_only=True)
class Streamed:
    """The classes and the domain of each task, as a record has them."""

    classes: Sequence[Sequence[int]]
    domains: Sequence[str]

    @classmethod
    def of(cls, record: Mapping[str, Any], tasks: int) -> Streamed:
        """Return those of the first tasks of a record."""
        domains = record["domains"] or [""] * tasks
        return cls(classes=record["task_classes"][:tasks], domains=domains[:tasks])

    @cached_property
    def _tasks(self) -> Mapping[tuple[str, int], list[int]]:
        """The tasks that have a class in a domain."""
        tasks: dict[tuple[str, int], list[int]] = defaultdict(list)
        for task, (domain, classes) in enumerate(zip(self.domains, self.classes, strict=True)):
            for own in classes:
                tasks[domain, own].append(task)
        return dict(tasks)

    @cached_property
    def tested(self) -> set[int]:
        """The tasks with test images: those that bring a class in a domain first."""
        return {min(tasks) for tasks in self._tasks.values()}

    def owners(self, task: int, true: int) -> list[int]:
        """Return the tasks that have a class in the domain of a task."""
        return self._tasks.get((self.domains[task], true), [])


def matrices(
    evaluations: Sequence[Columns | None], task_to_set: Sequence[int], streamed: Streamed
) -> tuple[Floats, Floats | None]:
    """Return accuracy and retrieval accuracy of task i after task t in percent.

    Args:
        evaluations: Predictions after each task, None where nothing was measured.
        task_to_set: The set that holds each task.
        streamed: What the tasks are of.

    Returns:
        Two ``[T, T]`` matrices, NaN for i > t, without test images and where nothing was measured; the second
        is None where no set was chosen.
    """
    tasks = len(evaluations)
    accuracy = np.full((tasks, tasks), np.nan)
    retrieval = np.full((tasks, tasks), np.nan)
    for task in streamed.tested:
        for after in range(task, tasks):
            columns = evaluations[after]
            if columns is None:
                continue
            rows = np.flatnonzero(columns["task"] == task)
            true, predicted, sets = (columns[name][rows] for name in ("true", "predicted", "set"))
            accuracy[task, after] = 100 * np.mean(predicted == true)
            held = {
                target: {task_to_set[owner] for owner in streamed.owners(task, target) if owner <= after}
                for target in np.unique(true).tolist()
            }
            pairs = zip(true.tolist(), sets.tolist(), strict=True)
            retrieval[task, after] = 100 * np.mean([chosen in held[own] for own, chosen in pairs])
    chosen = all((columns["set"] >= 0).all() for columns in evaluations if columns is not None)
    return accuracy, retrieval if chosen else None


def metrics(
    evaluations: Sequence[Columns | None], task_to_set: Sequence[int], streamed: Streamed, *, sets: bool
) -> dict[str, Any]:
    """Return every metric of a record by its name there.

    What is a mean or a maximum over all evaluations is None where one of them was not made.

    Args:
        evaluations: Predictions after each task, None where nothing was measured; not for the last one.
        task_to_set: The set that holds each task.
        streamed: What the tasks are of.
        sets: Whether the sets hold parameters at all; otherwise their number means nothing.
    """
    accuracy, retrieval = matrices(evaluations, task_to_set, streamed)
    last = evaluations[-1]
    if last is None:
        raise ValueError("expected an evaluation after the last task")
    tested = np.array([task in streamed.tested for task in range(len(accuracy))])
    final = accuracy[tested, -1]
    chooses = retrieval is not None
    return {
        "faa": np.mean(final),
        "faa_samples": 100 * np.mean(last["predicted"] == last["true"]),
        "faa_classes": np.mean(list(_by_class(last).values())),
        "faa_domains": _by_domain(last, streamed) if any(streamed.domains) else None,
        **_of_the_course(accuracy, evaluations, tested, streamed),
        "pra": np.mean(retrieval[tested, -1]) if retrieval is not None else None,
        "task_accuracy": 100 * _of_own_task(last, streamed),
        **{f"faa_{name}": _of_column(last, name) for name in ("hard", "told", "within")},
        "coverage_3": 100 * _coverage(last, 3) if chooses else None,
        "ssp": len(set(task_to_set)) if sets else None,
        "chance_pra": _chance(last, task_to_set, streamed) if sets and chooses else None,
    }


_COURSE = ("caa", "caa_samples", "ffm", "ffm_code", "ffm_absent", "bwt")


def _of_the_course(
    accuracy: Floats,
    evaluations: Sequence[Columns | None],
    tested: npt.NDArray[np.bool_],
    streamed: Streamed,
) -> dict[str, Any]:
    """Return the metrics of all evaluations together; None for each if one was not made."""
    made = [columns for columns in evaluations if columns is not None]
    if len(made) < len(evaluations):
        return dict.fromkeys(_COURSE)
    values: dict[str, Any] = dict.fromkeys(_COURSE)
    values["caa"] = np.mean([np.nanmean(column) for column in accuracy.T])
    values["caa_samples"] = 100 * np.mean([np.mean(one["predicted"] == one["true"]) for one in made])
    values["ffm_absent"] = _absent(made, streamed)
    old = accuracy[:-1][tested[:-1]]
    if len(old):
        learned = np.diag(accuracy)[:-1][tested[:-1]]
        values["ffm"] = np.mean(np.nanmax(old[:, :-1], axis=1) - old[:, -1])
        values["ffm_code"] = np.mean(np.nanmax(old, axis=1) - old[:, -1])
        values["bwt"] = np.mean(old[:, -1] - learned)
    return values


def _by_class(columns: Columns) -> dict[int, float]:
    classes, places = np.unique(columns["true"], return_inverse=True)
    right = np.bincount(places, weights=columns["predicted"] == columns["true"])
    shares = 100 * right / np.bincount(places)
    return dict(zip(classes.tolist(), shares.tolist(), strict=True))


def _by_domain(columns: Columns, streamed: Streamed) -> Any:
    numbers = {name: number for number, name in enumerate(sorted(set(streamed.domains)))}
    domain = np.array([numbers[name] for name in streamed.domains])[columns["task"]]
    right = columns["true"] == columns["predicted"]
    return 100 * np.mean([np.mean(right[domain == name]) for name in np.unique(domain)])


def _absent(evaluations: Sequence[Columns], streamed: Streamed) -> Any:
    courses, lost = [_by_class(columns) for columns in evaluations], []
    newest = {target: task for task, own in enumerate(streamed.classes) for target in own}
    for target in courses[-1]:
        course = [after[target] for after in courses[newest[target] :]]
        if len(course) > 1:
            lost.append(max(course[:-1]) - course[-1])
    return np.mean(lost) if lost else None


def _chance(columns: Columns, task_to_set: Sequence[int], streamed: Streamed) -> Any:
    means, share = [], {one: task_to_set.count(one) / len(task_to_set) for one in set(task_to_set)}
    for task in np.unique(columns["task"]).tolist():
        true, counts = np.unique(columns["true"][columns["task"] == task], return_counts=True)
        held = [{task_to_set[owner] for owner in streamed.owners(task, target)} for target in true.tolist()]
        means.append(np.average([sum(share[one] for one in own) for own in held], weights=counts))
    return 100 * np.mean(means)


def _of_column(columns: Columns, name: str) -> Any:
    if name not in columns:
        return None
    right, tasks = columns[name] == columns["true"], np.unique(columns["task"])
    return 100 * np.mean([np.mean(right[columns["task"] == task]) for task in tasks])


def _of_own_task(columns: Columns, streamed: Streamed) -> Any:
    shares = []
    for task in np.unique(columns["task"]):
        named = columns["predicted"][columns["task"] == task]
        shares.append(np.mean(np.isin(named, streamed.classes[task])))
    return np.mean(shares)


def _coverage(columns: Columns, choices: int) -> Any:
    inside = columns["rank"] < choices
    return np.mean([np.mean(inside[columns["task"] == task]) for task in np.unique(columns["task"])])


def rand_index(left: Sequence[int], right: Sequence[Any]) -> float | None:
    """Return the adjusted Rand index of two partitions of tasks, None below two tasks."""
    if len(left) < 2:
        return None
    together = np.equal.outer(np.asarray(left), np.asarray(left))
    planted = np.equal.outer(np.asarray(right), np.asarray(right))
    pairs = np.triu(np.ones_like(together), 1)
    both, first, second = (np.sum(each & pairs) for each in (together & planted, together, planted))
    expected, most = first * second / np.sum(pairs), (first + second) / 2
    return 1.0 if most == expected else float((both - expected) / (most - expected))
