"""Verification of a run's files: every checksum, and every metric recomputed from the predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.directory import EXPERIMENT, GOAL, RECORD, SEEDS, SUMMARY
from lw2g.errors import DataError, error_text
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.files.computed import inputs_of, right_by_class
from lw2g.training.files.contents import Goal, Record, Seeds, Summary, read_sealed
from lw2g.training.files.recomputed import Columns, Streamed, matrices, metrics, rand_index, read_columns
from lw2g.training.files.record import RunDirectory, prediction_name
from lw2g.training.files.sealed import sha256_of

__all__ = ["Verdict", "verify"]

_TOLERANCE = 1e-9
_FIRST = ("config.toml", "samples.json")


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


def verify(directory: Path, catalogue: Catalogue | None = None) -> list[Verdict]:
    """Examine a run, or a directory of several seeds.

    Args:
        directory: The run, or the runs.
        catalogue: Has the metrics of plugins; by default everything installed.

    Raises:
        DataError: There is neither.
    """
    if (directory / SEEDS).exists():
        return list(_seeds(directory, catalogue))
    files = RunDirectory(directory)
    files.require_run()
    return list(_run(files, catalogue))


def _run(files: RunDirectory, catalogue: Catalogue | None) -> Iterator[Verdict]:
    record = _unsealed(files.path / RECORD, Record)
    if isinstance(record, dict) and not record.get("task_classes"):
        record = DataError("is of an older lw2g, which did not note the classes of each task")
    recorded = dict(record["files"]) if isinstance(record, dict) else {}
    checkpoints, saved = _checkpoints(files, recorded)
    done = sum(name.startswith("predictions/") for name in saved)
    if isinstance(record, dict):
        yield Verdict(what=RECORD, holds=True, text="matches its checksum")
    elif (files.path / RECORD).exists() or done:
        yield Verdict(what=RECORD, holds=False, text=str(record))
    else:
        yield Verdict(what=RECORD, holds=None, text="not written yet: no task is finished")
    if (files.path / GOAL).exists():
        goal = _unsealed(files.path / GOAL, Goal)
        holds = isinstance(goal, dict)
        yield Verdict(what=GOAL, holds=holds, text="matches its checksum" if holds else str(goal))
    sums = saved | recorded
    named = [name for name in sums if not name.startswith("predictions/")]
    texts = [_checksum(files.path, name, sums.get(name)) for name in _FIRST]
    texts += [_checksum(files.path, name, sums[name]) for name in named if name not in _FIRST]
    yield from texts
    evaluations: list[Columns] = []
    for task in range(sum(name.startswith("predictions/") for name in sums)):
        name = prediction_name(task)
        finding = _checksum(files.path, name, sums.get(name))
        if finding.holds:
            evaluations.append(read_columns(files.path / name))
            finding = _consistent(task, evaluations, record)
            if not finding.holds:
                evaluations.pop()
        yield finding
    if isinstance(record, dict) and len(evaluations) == len(record["accuracy_matrix"]):
        yield from _recomputed(record, evaluations, catalogue)
        if all(finding.holds for finding in texts) and evaluations:
            yield _samples(files.read_samples(named), evaluations)
    elif isinstance(record, dict):
        text = "not recomputed: predictions are damaged"
        yield Verdict(what=f"{RECORD}: metrics", holds=False, text=text)
    yield from checkpoints
    if isinstance(record, dict):
        yield from _unsaved(files)


def _unsealed(path: Path, kind: type[Any]) -> dict[str, Any] | DataError:
    try:
        return read_sealed(path, kind)
    except DataError as error:
        return error


def _checksum(directory: Path, name: str, wanted: str | None) -> Verdict:
    checksum = sha256_of(directory / name)
    if wanted is None:
        return Verdict(what=name, holds=None, text="nothing tells its checksum")
    text = "matches its checksum" if checksum == wanted else "is missing"
    if checksum not in (None, wanted):
        text = "does not match its checksum: it is damaged or was edited"
    return Verdict(what=name, holds=checksum == wanted, text=text)


def _consistent(task: int, evaluations: Sequence[Columns], record: Any) -> Verdict:
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


def _samples(ids: Sequence[str], evaluations: Sequence[Columns]) -> Verdict:
    count = len(evaluations[-1]["sample"])
    holds = len(set(ids)) == len(ids) >= count
    return Verdict(what="samples.json: ids", holds=holds, text=f"{count} samples predicted, {len(ids)} ids")


def _recomputed(
    record: Mapping[str, Any], evaluations: Sequence[Columns], catalogue: Catalogue | None
) -> Iterator[Verdict]:
    held = record["task_to_set"][: len(evaluations)]
    streamed = Streamed.of(record, len(evaluations))
    accuracy, retrieval = matrices(evaluations, held, streamed)
    yield _matrix("accuracy_matrix", record["accuracy_matrix"], accuracy)
    if retrieval is not None or record["retrieval_matrix"] is not None:
        yield _matrix("retrieval_matrix", record["retrieval_matrix"], retrieval)
    sets = record["storage"].get("prompt_vectors", 0) > 0
    values = metrics(evaluations, held, streamed, sets=sets)
    planted = record["planted_groups"]
    classes = streamed.classes
    inputs = inputs_of(
        evaluations[-1],
        accuracy,
        retrieval,
        held if sets else None,
        planted,
        classes=classes,
        domains=streamed.domains,
        right=[
            right_by_class(columns["true"], columns["predicted"], classes[: after + 1])
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


def _matrix(name: str, written: Any, recomputed: Any) -> Verdict:
    what = f"{RECORD}: {name}"
    if written is None or recomputed is None or len(written) != len(recomputed):
        return Verdict(what=what, holds=False, text="other size than the predictions have")
    stored = np.array([[np.nan if entry is None else entry for entry in row] for row in written])
    same = np.isclose(stored, recomputed, rtol=0, atol=_TOLERANCE, equal_nan=True)
    text = f"{same.size} entries equal those recomputed from the predictions"
    if not same.all():
        task, after = np.argwhere(~same)[0].tolist()
        text = (
            f"task {task + 1} after task {after + 1}: {written[task][after]} written, "
            f"{recomputed[task, after]:.6g} recomputed"
        )
    return Verdict(what=what, holds=bool(same.all()), text=text)


def _value(name: str, written: float | None, recomputed: float | None) -> Verdict:
    holds = _equal(written, recomputed)
    text = _number(written) if holds else f"{_number(written)} written, {_number(recomputed)} recomputed"
    return Verdict(what=f"{RECORD}: {name}", holds=holds, text=text)


def _equal(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, rel_tol=0, abs_tol=_TOLERANCE)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"


def _checkpoints(files: RunDirectory, recorded: Mapping[str, str]) -> tuple[list[Verdict], dict[str, str]]:
    """Return the findings on checkpoints, and the checksums of other files that they hold."""
    findings: list[Verdict] = []
    sums: dict[str, str] = {}
    for name, task, complaint, ledger in CheckpointStore(files.checkpoints).examine():
        tells = dict(ledger.get("files", {}))
        tells |= {
            prediction_name(at): checksum for at, checksum in enumerate(ledger.get("predictions", ()), task)
        }
        others = [other for other, checksum in tells.items() if recorded.get(other, checksum) != checksum]
        if complaint is None and others:
            complaint = f"tells another checksum of {', '.join(others)} than {RECORD}"
        if complaint is None:
            sums |= tells
        text = complaint or "matches its checksum and what it builds on"
        findings.append(Verdict(what=f"{files.checkpoints.name}/{name}", holds=complaint is None, text=text))
    return findings, sums


def _unsaved(files: RunDirectory) -> Iterator[Verdict]:
    """Yield the last checkpoints that are missing although the record has their tasks."""
    try:
        lost = files.unsaved_tasks(CheckpointStore(files.checkpoints).finished)
    except DataError:  # the record, the goal or the configuration, which has its own finding
        return
    for task in lost:
        name = f"{files.checkpoints.name}/task-{task:03d}.safetensors"
        yield Verdict(what=name, holds=False, text=f"is missing: {RECORD} tells of task {task + 1}")


def _seeds(directory: Path, catalogue: Catalogue | None) -> Iterator[Verdict]:
    seeds = read_sealed(directory / SEEDS, Seeds)
    yield Verdict(what=SEEDS, holds=True, text="matches its checksum")
    yield _checksum(directory, EXPERIMENT, seeds["experiment"])
    records = []
    for seed in seeds["seeds"]:
        files = RunDirectory(directory / f"seed-{seed}")
        if not files.exists():
            yield Verdict(what=files.path.name, holds=None, text="not begun")
            continue
        for finding in _run(files, catalogue):
            yield attrs.evolve(finding, what=f"{files.path.name}/{finding.what}")
        records.append(_unsealed(files.path / RECORD, Record))
    if not (directory / SUMMARY).exists():
        yield Verdict(what=SUMMARY, holds=None, text="not written yet: not all seeds are finished")
        return
    summary = _unsealed(directory / SUMMARY, Summary)
    holds = isinstance(summary, dict)
    yield Verdict(what=SUMMARY, holds=holds, text="matches its checksum" if holds else str(summary))
    if isinstance(summary, dict):
        whole = [record for record in records if isinstance(record, dict)]
        yield from (_summary(name, entry, whole) for name, entry in summary["metrics"].items())


def _summary(name: str, entry: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Verdict:
    values = [record["metrics"].get(name) for record in records]
    known = [value for value in values if value is not None]
    whole = len(known) == len(values)
    mean = float(np.mean(known)) if whole else None
    spread = float(np.std(known, ddof=1)) if whole and len(known) > 1 else None
    holds = values == entry["values"] and _equal(entry["mean"], mean) and _equal(entry["std"], spread)
    text = "equals mean and deviation of the seeds" if holds else "other values than the seeds have"
    return Verdict(what=f"summary.json: {name}", holds=holds, text=text)
