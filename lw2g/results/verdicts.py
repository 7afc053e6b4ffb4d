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
from lw2g.errors import DataError, error_text
from lw2g.evaluation.computed import inputs_of, right_by_class
from lw2g.files.contents import prediction_name, read_sealed, record_hash
from lw2g.files.sealed import sha256_of
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.recomputed import Columns, Streamed, matrices, metrics, rand_index

__all__ = ["Verdict", "compare_checksum", "consistent", "equal", "recomputed", "rehashed", "unsealed"]

_TOLERANCE = 1e-9


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
    checksum = sha256_of(directory / name)
    if wanted is None:
        return Verdict(what=name, holds=None, text="nothing tells its checksum")
    text = "matches its checksum" if checksum == wanted else "is missing"
    if checksum not in (None, wanted):
        text = "does not match its checksum: it is damaged or was edited"
    return Verdict(what=name, holds=checksum == wanted, text=text)


def consistent(task: int, evaluations: Sequence[Columns], record: Any) -> Verdict:
    """Whether predictions are of the samples they should be of, and choose among what was there."""
    columns, before = evaluations[-1], evaluations[max(len(evaluations) - 2, 0)]
    rows, chosen = len(columns["sample"]), columns["retrieved"] >= 0
    held = np.asarray(record["task_to_set"]) if isinstance(record, dict) else None
    tested, last = set(range(task + 1)), columns["true"].max()
    if isinstance(record, dict):
        streamed = Streamed.of(record, task + 1)
        tested, last = streamed.tested, max(map(max, streamed.classes))
    wrong = {
        "samples are not counted from 0": not np.array_equal(columns["sample"], np.arange(rows)),
        f"samples are not those of tasks 1 to {task + 1}": set(columns["task"]) != tested,
        "samples have other labels or tasks than before": any(
            not np.array_equal(columns[key][: len(before[key])], before[key]) for key in ("true", "task")
        ),
        "classes are predicted that were not seen": columns["predicted"].max() > last,
        "tasks are retrieved that were not seen": columns["retrieved"].max() > task,
        "sets are not those of the retrieved tasks": held is not None
        and not np.array_equal(
            held[np.minimum(columns["retrieved"][chosen], len(held) - 1)], columns["set"][chosen]
        ),
    }
    complaints = [text for text, is_so in wrong.items() if is_so]
    text = ", ".join(complaints) or f"{rows} samples, matches its checksum"
    return Verdict(what=prediction_name(task), holds=not complaints, text=text)


def recomputed(
    record: Mapping[str, Any], evaluations: Sequence[Columns | None], catalogue: Catalogue | None
) -> Iterator[Verdict]:
    """Yield for every matrix and metric of a record whether it follows from the predictions.

    Args:
        record: The record.
        evaluations: The predictions after each task, None where nothing was measured.
        catalogue: Has the metrics of plugins.
    """
    held = record["task_to_set"][: len(evaluations)]
    streamed = Streamed.of(record, len(evaluations))
    accuracy, retrieval = matrices(evaluations, held, streamed)
    yield _matrix("accuracy_matrix", record["accuracy_matrix"], accuracy)
    if retrieval is not None or record["retrieval_matrix"] is not None:
        yield _matrix("retrieval_matrix", record["retrieval_matrix"], retrieval)
    last = evaluations[-1]
    if last is None:  # metrics are of the last task
        for name, written in record["metrics"].items():
            yield _value(f"metrics.{name}", written, None)
        return
    sets = record["storage"].get("prompt_vectors", 0) > 0
    values = metrics(evaluations, held, streamed, sets=sets)
    planted = record["planted_groups"]
    classes = streamed.classes
    inputs = inputs_of(
        last,
        accuracy,
        retrieval,
        held if sets else None,
        planted,
        classes=classes,
        domains=streamed.domains,
        right=[
            []
            if columns is None
            else right_by_class(columns["true"], columns["predicted"], classes[: after + 1])
            for after, columns in enumerate(evaluations)
        ],
    )
    for name, written in record["metrics"].items():
        if name in values:
            yield _value(f"metrics.{name}", written, values[name])
        else:
            plugin = record.get("metric_definitions", {}).get(name, {}).get("plugin", "a plugin")
            yield _further(name, written, inputs, plugin, catalogue or load_catalogue())
    if planted is not None and sets:
        expected = rand_index(held, planted[: len(held)])
        yield _value("adjusted_rand_index", record["adjusted_rand_index"], expected)


def rehashed(record: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield whether a record's hash is that of its content; nothing for a record without one."""
    if record.get("record_hash") is None:  # older records have none
        return
    holds = record["record_hash"] == record_hash(record)
    text = "is that of all but the clocks" if holds else "is of another record"
    yield Verdict(what=f"{RECORD}: record_hash", holds=holds, text=text)


def _further(
    name: str, written: float | None, inputs: Mapping[str, Any], plugin: str, catalogue: Catalogue
) -> Verdict:
    """Compute a metric of a plugin again, where the plugin is installed."""
    what = f"{RECORD}: metrics.{name}"
    if name not in catalogue.names("metric"):
        return Verdict(what=what, holds=None, text=f"not recomputed: {plugin} is not installed")
    try:
        return _value(f"metrics.{name}", written, catalogue.get("metric", name).of(inputs))
    except Exception as error:  # a stranger's code
        return Verdict(what=what, holds=None, text=f"not recomputed: {error_text(error)}")


def _matrix(name: str, written: Any, again: Any) -> Verdict:
    what = f"{RECORD}: {name}"
    if written is None or again is None or len(written) != len(again):
        return Verdict(what=what, holds=False, text="other size than the predictions have")
    stored = np.array([[np.nan if entry is None else entry for entry in row] for row in written])
    same = np.isclose(stored, again, rtol=0, atol=_TOLERANCE, equal_nan=True)
    text = f"{same.size} entries equal those recomputed from the predictions"
    if not same.all():
        task, after = np.argwhere(~same)[0].tolist()
        text = (
            f"task {task + 1} after task {after + 1}: {written[task][after]} written, "
            f"{again[task, after]:.6g} recomputed"
        )
    return Verdict(what=what, holds=bool(same.all()), text=text)


def _value(name: str, written: float | None, again: float | None) -> Verdict:
    holds = equal(written, again)
    text = _number(written) if holds else f"{_number(written)} written, {_number(again)} recomputed"
    return Verdict(what=f"{RECORD}: {name}", holds=holds, text=text)


def equal(left: float | None, right: float | None) -> bool:
    """Return whether two values of a metric are the same up to rounding."""
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, rel_tol=0, abs_tol=_TOLERANCE)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"
