"""Checks of a record and its predictions alone: checksums, consistency, and every metric recomputed.

Nothing here needs torch, so that a pack can be verified where nothing can be trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.directory import RECORD
from lw2g.disk.contents import prediction_name, read_sealed, record_hash
from lw2g.disk.sealed import sha256_of
from lw2g.errors import DataError, error_text
from lw2g.learning.computed import inputs_of, right_by_class
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.recomputed import (
    Columns,
    RecordedStream,
    calibration_error,
    matrices,
    metrics,
    rand_index,
)

__all__ = ["Verdict", "compare_checksum", "consistent", "equal", "recomputed", "rehashed", "unsealed"]

_TOLERANCE = 1e-9
"""Two ways of summing the same numbers differ by rounding alone: far below a digit that anybody prints."""
_INTACT = "matches its checksum"


@attrs.frozen(kw_only=True)
class Verdict:
    """The result for a file, or for a value in it.

    Attributes:
        what: The file, relative to the directory, and the value after a colon.
        holds: Whether it is right; None where that is not known.
        text: What was compared, or what is wrong.
    """

    what: str
    holds: bool | None
    text: str


def unsealed(path: Path, kind: type[Any]) -> dict[str, Any] | DataError:
    """Return the content of a sealed JSON file, or what is wrong with it."""
    try:
        return read_sealed(path, kind)
    except DataError as error:
        return error


def compare_checksum(directory: Path, name: str, wanted: str | None) -> Verdict:
    """Return whether a file has the checksum that something tells of it; None if nothing does."""
    if wanted is None:
        return Verdict(what=name, holds=None, text="nothing tells its checksum")
    checksum = sha256_of(directory / name)
    if checksum is None:
        return Verdict(what=name, holds=False, text="is missing")
    if checksum != wanted:
        return Verdict(
            what=name, holds=False, text="does not match its checksum: it is damaged or was edited"
        )
    return Verdict(what=name, holds=True, text=_INTACT)


def consistent(task: int, evaluations: Sequence[Columns], record: Any) -> Verdict:
    """Return whether predictions are of the right samples, and of tasks, sets and classes known by then.

    Args:
        task: The task after which they were made.
        evaluations: All predictions up to these, which are the last.
        record: The run's record; anything but a mapping where it cannot be read.
    """
    complaints = list(_complaints(task, evaluations, record))
    text = ", ".join(complaints) or f"{len(evaluations[-1]['sample'])} samples, {_INTACT}"
    return Verdict(what=prediction_name(task), holds=not complaints, text=text)


def _complaints(task: int, evaluations: Sequence[Columns], record: Any) -> Iterator[str]:
    """Yield what is wrong with the last predictions, apart from their checksum."""
    columns = evaluations[-1]
    # without a record, all that is known are the numbers of tasks and the labels in the file itself
    tested = set(range(task + 1))
    last_class = columns["true"].max()
    if isinstance(record, dict):
        stream = RecordedStream.of(record, task + 1)
        tested = stream.tested
        last_class = max(map(max, stream.classes))
        known = []
        for of_task in range(task + 1):
            targets = np.unique(columns["true"][columns["task"] == of_task]).tolist()
            known += [(of_task, true) for true in targets]
        # where several tasks have a class in one domain, its test images are the first one's
        if any(min(stream.owners(of_task, true), default=None) != of_task for of_task, true in known):
            yield "samples are of classes that their task does not have"

    if not np.array_equal(columns["sample"], np.arange(len(columns["sample"]))):
        yield "samples are not counted from 0"
    if set(columns["task"]) != tested:
        yield f"samples are not those of tasks 1 to {task + 1}"
    if len(evaluations) > 1 and not _begins_with(columns, evaluations[-2]):
        yield "samples have other labels or tasks than before"
    if columns["predicted"].max() > last_class:
        yield "classes are predicted that were not seen"
    if columns["retrieved"].max() > task:
        yield "tasks are retrieved that were not seen"
    if isinstance(record, dict) and not _sets_fit(columns, record["task_to_set"]):
        yield "sets are not those of the retrieved tasks"


def _begins_with(columns: Columns, earlier: Columns) -> bool:
    """Whether the samples of an evaluation begin with those of an earlier one: test images only join."""
    num_earlier = len(earlier["sample"])
    return all(np.array_equal(columns[name][:num_earlier], earlier[name]) for name in ("true", "task"))


def _sets_fit(columns: Columns, task_to_set: Sequence[int]) -> bool:
    """Whether each chosen set is that of the retrieved task."""
    is_chosen = columns["retrieved"] >= 0
    # a task beyond the record has its own complaint: here it must only not fail as an index
    retrieved = np.minimum(columns["retrieved"][is_chosen], len(task_to_set) - 1)
    return np.array_equal(np.asarray(task_to_set)[retrieved], columns["set"][is_chosen])


def recomputed(
    record: Mapping[str, Any], evaluations: Sequence[Columns | None], catalogue: Catalogue | None
) -> Iterator[Verdict]:
    """Yield for every matrix and metric of a record whether it follows from the predictions.

    Args:
        record: The record.
        evaluations: The predictions after each task, None where nothing was measured.
        catalogue: Has the metrics of plugins.
    """
    task_to_set = record["task_to_set"][: len(evaluations)]
    stream = RecordedStream.of(record, len(evaluations))
    accuracy, retrieval = matrices(evaluations, task_to_set, stream)
    yield _matrix("accuracy_matrix", record["accuracy_matrix"], accuracy)
    if retrieval is not None or record["retrieval_matrix"] is not None:
        yield _matrix("retrieval_matrix", record["retrieval_matrix"], retrieval)
    last = evaluations[-1]
    if last is None:  # metrics are of the last task
        for name, written in record["metrics"].items():
            yield _value(f"metrics.{name}", written, again=None)
        return

    # sets without parameters are numbers alone: metrics of sets are not defined for them
    has_sets = record["storage"].get("prompt_vectors", 0) > 0
    values = metrics(evaluations, task_to_set, stream, (accuracy, retrieval), sets=has_sets)
    planted = record["planted_groups"]
    right = []
    for after, columns in enumerate(evaluations):
        of_classes: list[int] = []
        if columns is not None:
            seen = stream.classes[: after + 1]
            of_classes = right_by_class(columns["true"], columns["predicted"], seen)
        right.append(of_classes)
    inputs = inputs_of(
        last,
        accuracy,
        retrieval,
        task_to_set if has_sets else None,
        planted,
        classes=stream.classes,
        domains=stream.domains,
        right=right,
    )
    for name, written in record["metrics"].items():
        if name in values:
            yield _value(f"metrics.{name}", written, values[name])
        else:
            definition = record.get("metric_definitions", {}).get(name, {})
            plugin = definition.get("plugin", "a plugin")
            yield _plugin_metric(name, written, inputs, plugin, catalogue or load_catalogue())
    noted = record.get("calibration")
    if noted is not None:
        yield _value("calibration.ece", noted["ece"], calibration_error(last, noted["bins"]))
    if planted is not None and has_sets:
        expected = rand_index(task_to_set, planted[: len(task_to_set)])
        yield _value("adjusted_rand_index", record["adjusted_rand_index"], expected)


def rehashed(record: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield whether a record's hash is that of its content; nothing for a record without one."""
    if record.get("record_hash") is None:  # older records have none
        return
    what = f"{RECORD}: record_hash"
    if record["record_hash"] == record_hash(record):
        yield Verdict(what=what, holds=True, text="is that of all but the clocks")
    else:
        yield Verdict(what=what, holds=False, text="is of another record")


def _plugin_metric(
    name: str, written: float | None, inputs: Mapping[str, Any], plugin: str, catalogue: Catalogue
) -> Verdict:
    """Compute a metric of a plugin again, where the plugin is installed."""
    what = f"{RECORD}: metrics.{name}"
    if catalogue.find("metric", name) is None:
        return Verdict(what=what, holds=None, text=f"not recomputed: {plugin} is not installed")
    try:
        return _value(f"metrics.{name}", written, catalogue.get("metric", name).of(inputs))
    except Exception as error:  # a stranger's code may raise anything, and the other verdicts must come
        return Verdict(what=what, holds=None, text=f"not recomputed: {error_text(error)}")


def _matrix(name: str, written: Any, again: Any) -> Verdict:
    """Compare a matrix of a record, which has None for NaN, with the recomputed one."""
    what = f"{RECORD}: {name}"
    if written is None or again is None or len(written) != len(again):
        return Verdict(what=what, holds=False, text="other size than the predictions have")
    stored = np.array(written, dtype=np.float64)  # None becomes NaN
    same = np.isclose(stored, again, rtol=0, atol=_TOLERANCE, equal_nan=True)
    if same.all():
        text = f"{same.size} entries equal those recomputed from the predictions"
        return Verdict(what=what, holds=True, text=text)
    task, after = np.argwhere(~same)[0].tolist()
    text = (
        f"task {task + 1} after task {after + 1}: {written[task][after]} written, "
        f"{again[task, after]:.6g} recomputed"
    )
    return Verdict(what=what, holds=False, text=text)


def _value(name: str, written: float | None, again: float | None) -> Verdict:
    what = f"{RECORD}: {name}"
    if equal(written, again):
        return Verdict(what=what, holds=True, text=_number(written))
    text = f"{_number(written)} written, {_number(again)} recomputed"
    return Verdict(what=what, holds=False, text=text)


def equal(left: float | None, right: float | None) -> bool:
    """Return whether two values of a metric are the same up to rounding."""
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, rel_tol=0, abs_tol=_TOLERANCE)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"
