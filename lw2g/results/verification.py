"""Verification of a run's files: every checksum, and every metric recomputed from the predictions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.directory import EXPERIMENT, GOAL, RECORD, SEEDS, SUMMARY, require_run
from lw2g.config.model import is_evaluated
from lw2g.errors import DataError
from lw2g.files.checkpoint import CheckpointStore
from lw2g.files.contents import (
    Goal,
    Record,
    Seeds,
    Summary,
    prediction_name,
    read_sealed,
)
from lw2g.files.record import RunDirectory
from lw2g.files.stored_run import unsaved_tasks
from lw2g.registry.catalogue import Catalogue
from lw2g.results.recomputed import Columns, read_columns
from lw2g.results.verdicts import (
    Verdict,
    compare_checksum,
    consistent,
    equal,
    recomputed,
    rehashed,
    unsealed,
)

__all__ = ["verify"]

_FIRST = ("config.toml", "samples.json")
_PREDICTIONS = re.compile(r"predictions/task-(\d{3,6})\.safetensors")


def verify(
    directory: Path, catalogue: Catalogue | None = None, *, needs_checkpoints: bool = True
) -> list[Verdict]:
    """Examine a run, or a directory of several seeds.

    Args:
        directory: The run, or the runs.
        catalogue: Has the metrics of plugins; by default everything installed.
        needs_checkpoints: Whether checkpoints must be there; those that are there are examined anyway.

    Raises:
        DataError: There is neither.
    """
    if (directory / SEEDS).exists():
        return list(_seeds(directory, catalogue, needs_checkpoints))
    require_run(directory)
    return list(_run(RunDirectory(directory), catalogue, needs_checkpoints))


def _run(files: RunDirectory, catalogue: Catalogue | None, needs_checkpoints: bool) -> Iterator[Verdict]:
    record = unsealed(files.path / RECORD, Record)
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
        goal = unsealed(files.path / GOAL, Goal)
        holds = isinstance(goal, dict)
        yield Verdict(what=GOAL, holds=holds, text="matches its checksum" if holds else str(goal))
    sums = saved | recorded
    named = [name for name in sums if not name.startswith("predictions/")]
    texts = [compare_checksum(files.path, name, sums.get(name)) for name in _FIRST]
    texts += [compare_checksum(files.path, name, sums[name]) for name in named if name not in _FIRST]
    yield from texts
    evaluations: dict[int, Columns] = {}
    whole = True
    for task in _evaluated(sums, record):
        name = prediction_name(task)
        finding = compare_checksum(files.path, name, sums.get(name))
        if finding.holds:
            columns = read_columns(files.path / name)
            finding = consistent(task, [*evaluations.values(), columns], record)
            if finding.holds:
                evaluations[task] = columns
        whole = whole and finding.holds is True
        yield finding
    if isinstance(record, dict) and whole:
        done = len(record["accuracy_matrix"])
        yield from recomputed(record, [evaluations.get(task) for task in range(done)], catalogue)
        if all(finding.holds for finding in texts) and evaluations:
            yield _samples(files.read_samples(named), list(evaluations.values()))
    elif isinstance(record, dict):
        text = "not recomputed: predictions are damaged"
        yield Verdict(what=f"{RECORD}: metrics", holds=False, text=text)
    yield from checkpoints
    if isinstance(record, dict):
        yield from rehashed(record)
        if needs_checkpoints:
            yield from _unsaved(files)


def _evaluated(sums: Mapping[str, str], record: object) -> list[int]:
    """Return the tasks (from 0) that predictions should be of.

    They are those whose predictions something tells the checksum of, and those that the record has numbers of
    or, by its configuration, should have them.
    """
    tasks = {int(found[1]) for name in sums if (found := _PREDICTIONS.fullmatch(name))}
    if isinstance(record, dict):
        matrix = record["accuracy_matrix"]
        evaluate = record["config"]["run"].get("evaluate", "every task")  # an older lw2g has no such option
        last = (record.get("tasks") or len(matrix)) - 1
        for task in range(len(matrix)):
            is_measured = any(row[task] is not None for row in matrix)
            if is_measured or is_evaluated(task, last, evaluate):
                tasks.add(task)
    return sorted(tasks)


def _samples(ids: Sequence[str], evaluations: Sequence[Columns]) -> Verdict:
    count = len(evaluations[-1]["sample"])
    holds = len(set(ids)) == len(ids) >= count
    return Verdict(what="samples.json: ids", holds=holds, text=f"{count} samples predicted, {len(ids)} ids")


def _checkpoints(files: RunDirectory, recorded: Mapping[str, str]) -> tuple[list[Verdict], dict[str, str]]:
    """Return the findings on checkpoints, and the checksums of other files that they hold."""
    findings: list[Verdict] = []
    sums: dict[str, str] = {}
    for name, task, complaint, ledger in CheckpointStore(files.checkpoints).examine():
        tells = dict(ledger.get("files", {}))
        for at, checksum in enumerate(ledger.get("predictions", ()), task):
            if checksum is not None:  # an evaluation followed
                tells[prediction_name(at)] = checksum
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
        lost = unsaved_tasks(files, CheckpointStore(files.checkpoints).finished)
    except DataError:  # the record, the goal or the configuration, which has its own finding
        return
    for task in lost:
        name = f"{files.checkpoints.name}/task-{task:03d}.safetensors"
        yield Verdict(what=name, holds=False, text=f"is missing: {RECORD} tells of task {task + 1}")


def _seeds(directory: Path, catalogue: Catalogue | None, needs_checkpoints: bool) -> Iterator[Verdict]:
    seeds = read_sealed(directory / SEEDS, Seeds)
    yield Verdict(what=SEEDS, holds=True, text="matches its checksum")
    yield compare_checksum(directory, EXPERIMENT, seeds["experiment"])
    records = []
    for seed in seeds["seeds"]:
        files = RunDirectory(directory / f"seed-{seed}")
        if not files.exists():
            yield Verdict(what=files.path.name, holds=None, text="not begun")
            continue
        for finding in _run(files, catalogue, needs_checkpoints):
            yield attrs.evolve(finding, what=f"{files.path.name}/{finding.what}")
        records.append(unsealed(files.path / RECORD, Record))
    if not (directory / SUMMARY).exists():
        yield Verdict(what=SUMMARY, holds=None, text="not written yet: not all seeds are finished")
        return
    summary = unsealed(directory / SUMMARY, Summary)
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
    holds = values == entry["values"] and equal(entry["mean"], mean) and equal(entry["std"], spread)
    text = "equals mean and deviation of the seeds" if holds else "other values than the seeds have"
    return Verdict(what=f"summary.json: {name}", holds=holds, text=text)
