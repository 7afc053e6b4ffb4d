"""Metrics of a run: their inputs, and their values by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lw2g.errors import error_text
from lw2g.interfaces.metric import CORE_METRICS, Metric
from lw2g.registry.catalogue import Registered

__all__ = ["compute_metrics", "describe_metrics", "inputs_of", "right_by_class"]

_COLUMNS = ("true", "predicted", "task", "hard", "told", "within")
_CHOICES = ("retrieved", "set", "rank")
"""Columns that hold -1 where no set is chosen."""


def inputs_of(
    columns: Mapping[str, Any],
    accuracy: npt.NDArray[np.float64],
    retrieval: npt.NDArray[np.float64] | None,
    task_to_set: Sequence[int] | None,
    planted_groups: Sequence[Any] | None,
    *,
    classes: Sequence[Sequence[int]],
    domains: Sequence[str],
    right: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Return the inputs of metrics by the names of ``INPUTS``; arrays are read-only.

    Args:
        columns: The predictions of the last evaluation.
        accuracy: ``A[i,t]`` in percent, ``[T, T]``.
        retrieval: The same for retrieved sets; None where no set is chosen.
        task_to_set: The set that holds each task; None where sets hold no parameters.
        planted_groups: The group of each task of the whole stream; None where there are none.
        classes: The classes (targets) of each seen task.
        domains: Its domain.
        right: After each task, how many test samples of each seen class are predicted rightly.
    """
    tasks = len(accuracy)
    arrays = {"accuracy": accuracy, "retrieval": retrieval}
    arrays["class_accuracy"] = _of_classes(columns["true"], columns["task"], right)
    for name in _COLUMNS:
        arrays[name] = columns.get(name)
    for name in _CHOICES:
        # chosen for all images or for none
        is_chosen = not (columns[name] < 0).any()
        arrays[name] = columns[name] if is_chosen else None
    # what is not defined for this run is there, too, as None
    inputs: dict[str, Any] = dict.fromkeys(arrays)
    for name, array in arrays.items():
        if array is not None:
            inputs[name] = _read_only(array)
    return {
        **inputs,
        "samples": np.bincount(columns["task"], minlength=tasks).tolist(),
        "task_to_set": None if task_to_set is None else dict(enumerate(task_to_set[:tasks])),
        "classes": list(classes),
        "domains": list(domains),
        "planted_groups": None if planted_groups is None else dict(enumerate(planted_groups[:tasks])),
    }


def right_by_class(
    true: npt.NDArray[Any], predicted: npt.NDArray[Any], classes: Sequence[Sequence[int]]
) -> list[int]:
    """Return how many samples of each seen class are predicted rightly."""
    seen = 1 + max(max(of_task) for of_task in classes)
    counts: list[int] = np.bincount(true[true == predicted], minlength=seen).tolist()
    return counts


def _of_classes(
    true: npt.NDArray[Any], task: npt.NDArray[Any], right: Sequence[Sequence[int]]
) -> npt.NDArray[np.float64]:
    """Return the accuracy in percent of each class after each task, ``[C, T]``; NaN without test images.

    Args:
        true: The class of each test image, ``[N]``.
        task: The task of each, ``[N]``.
        right: After each task, the number of rightly predicted images of each class seen so far.
    """
    shape = len(right[-1]), len(right)
    # test images by class and task: a class that comes again has some in each of its tasks
    tested = np.bincount(true.astype(np.int64) * shape[1] + task, minlength=shape[0] * shape[1])
    accuracy = np.full(shape, np.nan)
    for after, counts in enumerate(right):
        accuracy[: len(counts), after] = counts
    tested = tested.reshape(shape).cumsum(axis=1)  # after each task
    known = tested > 0
    accuracy[known] = 100.0 * accuracy[known] / tested[known]
    accuracy[~known] = np.nan
    return accuracy


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def compute_metrics(
    metrics: Iterable[Registered], inputs: Mapping[str, Any], warn: Callable[[str], None]
) -> dict[str, float | None]:
    """Return the values of metrics by name; a plugin's metric that fails is None and does not stop the run.

    Args:
        metrics: Those to compute.
        inputs: What :func:`inputs_of` returned.
        warn: Called with a line for each failure.
    """
    values: dict[str, float | None] = {}
    for entry in metrics:
        metric: Any = entry.component
        try:
            values[metric.name] = metric.of(inputs)
        except Exception as error:
            if metric.name in CORE_METRICS:
                raise  # a bug of ours, with its traceback
            values[metric.name] = None
            why = error_text(error)
            warn(f"{entry.origin}: metric {metric.name!r}: {why}; the run goes on without its value")
    return values


def describe_metrics(metrics: Iterable[Registered]) -> dict[str, dict[str, Any]]:
    """Return the definitions of plugins' metrics by name, for readers of the record without the plugin."""
    described: dict[str, dict[str, Any]] = {}
    for entry in metrics:
        metric = entry.component
        if isinstance(metric, Metric) and metric.name not in CORE_METRICS:
            described[metric.name] = {
                "definition": metric.summary,
                "unit": metric.unit,
                "digits": metric.digits,
                "plugin": str(entry.origin),
            }
    return described
