"""The metrics of a run, recomputed in plain numpy from its predictions, as any reader could.

Nothing here is shared with the code that wrote the record (:mod:`lw2g.metrics`), so that the two can be
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

__all__ = ["Columns", "matrices", "metrics", "rand_index", "read_columns"]

Columns = Mapping[str, npt.NDArray[np.int32]]
Floats = npt.NDArray[np.float64]


def read_columns(path: Path) -> Columns:
    """Return the columns of a file of predictions."""
    columns: Columns = load_file(path)
    return columns


def matrices(evaluations: Sequence[Columns], task_to_set: Sequence[int]) -> tuple[Floats, Floats | None]:
    """Return accuracy and retrieval accuracy of task i after task t in percent, NaN for i > t.

    Args:
        evaluations: Predictions after each task.
        task_to_set: The set that holds each task.

    Returns:
        Two ``[T, T]`` matrices; the second is None where no set was chosen.
    """
    tasks = len(evaluations)
    accuracy, retrieval = np.full((tasks, tasks), np.nan), np.full((tasks, tasks), np.nan)
    for after, columns in enumerate(evaluations):
        for task in range(after + 1):
            rows = columns["task"] == task
            accuracy[task, after] = 100 * np.mean(columns["predicted"][rows] == columns["true"][rows])
            retrieval[task, after] = 100 * np.mean(columns["set"][rows] == task_to_set[task])
    chosen = all((columns["set"] >= 0).all() for columns in evaluations)
    return accuracy, retrieval if chosen else None


def metrics(evaluations: Sequence[Columns], task_to_set: Sequence[int], *, sets: bool) -> dict[str, Any]:
    """Return every metric of a record by its name there.

    Args:
        evaluations: Predictions after each task.
        task_to_set: The set that holds each task.
        sets: Whether the sets hold parameters at all; otherwise their number means nothing.
    """
    accuracy, retrieval = matrices(evaluations, task_to_set)
    last, old = evaluations[-1], accuracy[:-1]
    final, learned = accuracy[:, -1], np.diag(accuracy)
    held = np.asarray(task_to_set)
    forgets = len(accuracy) > 1
    return {
        "faa": np.mean(final),
        "faa_samples": 100 * np.mean(last["predicted"] == last["true"]),
        "caa": np.mean([np.nanmean(column) for column in accuracy.T]),
        "ffm": np.mean(np.nanmax(old[:, :-1], axis=1) - final[:-1]) if forgets else None,
        "ffm_code": np.mean(np.nanmax(old, axis=1) - final[:-1]) if forgets else None,
        "bwt": np.mean((final - learned)[:-1]) if forgets else None,
        "pra": None if retrieval is None else np.mean(retrieval[:, -1]),
        "task_accuracy": 100 * _of_own_task(last),
        **{f"faa_{name}": _of_column(last, name) for name in ("hard", "told", "within")},
        "coverage_3": None if retrieval is None else 100 * _coverage(last, 3),
        "ssp": len(np.unique(held)) if sets else None,
        "chance_pra": 100 * np.mean(held[:, None] == held) if sets and retrieval is not None else None,
    }


def _of_column(columns: Columns, name: str) -> Any:
    if name not in columns:
        return None
    right, tasks = columns[name] == columns["true"], np.unique(columns["task"])
    return 100 * np.mean([np.mean(right[columns["task"] == task]) for task in tasks])


def _of_own_task(columns: Columns) -> Any:
    first = [columns["true"][columns["task"] == task].min() for task in np.unique(columns["task"])]
    named = np.searchsorted(first, columns["predicted"], side="right") - 1
    return np.mean([np.mean(named[columns["task"] == task] == task) for task in np.unique(columns["task"])])


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
