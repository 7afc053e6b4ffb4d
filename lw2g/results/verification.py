"""Verification of a run's files: every checksum, and every metric recomputed from the predictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.config.directory import GOAL, PLUGINS, RECORD, require_run
from lw2g.config.settings import is_evaluated
from lw2g.disk.checkpoint_files import CheckpointFiles
from lw2g.disk.contents import Goal, Record, prediction_name
from lw2g.disk.origins import Origins, made_with
from lw2g.disk.record import RunDirectory, unsaved_tasks
from lw2g.errors import DataError
from lw2g.pixels.shared_words import shared_of_record
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.found_runs import unfinished_in_words
from lw2g.results.recomputed import Columns, read_columns
from lw2g.results.verdicts import (
    Verdict,
    compare_checksum,
    consistent,
    recomputed,
    rehashed,
    unsealed,
)

__all__ = ["TEST_IMAGES", "UNFINISHED", "verify"]

TEST_IMAGES = f"{RECORD}: test images"
"""What the finding is about that test images were trained on."""
UNFINISHED = f"{RECORD}: tasks"
"""What the finding is about that a run has not learned its whole stream."""

_FIRST = ("config.toml", "samples.json")
"""Files that every run has, and that head its list."""
_PREDICTIONS = "predictions/"
_OF_TASK = re.compile(rf"{_PREDICTIONS}task-(\d{{3,6}})\.safetensors")


def verify(
    directory: Path, catalogue: Catalogue | None = None, *, needs_checkpoints: bool = True
) -> list[Verdict]:
    """Examine a run.

    Args:
        directory: The run.
        catalogue: Has the metrics of plugins; by default what the run was made with.
        needs_checkpoints: Whether checkpoints must be there; those that are there are examined anyway.

    Raises:
        DataError: There is none.
    """
    require_run(directory)
    return list(_run(RunDirectory(directory), catalogue, needs_checkpoints))


def _run(files: RunDirectory, catalogue: Catalogue | None, needs_checkpoints: bool) -> Iterator[Verdict]:
    """Yield the verdicts on a run in the order in which they are shown.

    They are on the record, on its goal and its plugins if it has them, on its other files, on the predictions
    after each task, on metrics and ids, on checkpoints, on the hash of the record, on test images that were
    trained on, and on tasks that are not learned yet. A record that cannot be read leaves out metrics, ids
    and hash.
    """
    record = unsealed(files.path / RECORD, Record)
    if isinstance(record, dict) and not record.get("task_classes"):
        record = DataError("is of an older lw2g, which did not note the classes of each task")
    recorded: Mapping[str, str] = {}
    if isinstance(record, dict):
        recorded = record["files"]
    # checkpoints come last in the list, but are read first: a stopped run has checksums in them alone
    checkpoint_verdicts, saved = _checkpoints(files, recorded)
    yield _record(files, record, is_begun=_num_predictions(saved) > 0)
    # no record names these, so that they can be without one: each has a checksum of its own
    for name, kind in ((GOAL, Goal), (PLUGINS, Origins)):
        if (files.path / name).exists():
            yield _sealed(name, unsealed(files.path / name, kind))

    # where both name a file they agree, or the checkpoint has its complaint
    checksums = {**saved, **recorded}
    other_names = [name for name in checksums if not name.startswith(_PREDICTIONS)]
    other_verdicts = []
    for name in dict.fromkeys([*_FIRST, *other_names]):
        other_verdicts.append(compare_checksum(files.path, name, checksums.get(name)))
    yield from other_verdicts

    evaluations: dict[int, Columns] = {}
    are_predictions_whole = True
    for task in _evaluated(checksums, record):
        name = prediction_name(task)
        verdict = compare_checksum(files.path, name, checksums.get(name))
        if verdict.holds:
            columns = read_columns(files.path / name)
            verdict = consistent(task, [*evaluations.values(), columns], record)
            if verdict.holds:  # what is wrong is no measure for later tasks
                evaluations[task] = columns
        if not verdict.holds:
            are_predictions_whole = False
        yield verdict

    if not isinstance(record, dict):
        yield from checkpoint_verdicts
        if not (files.path / RECORD).exists() and not _num_predictions(saved):
            yield from _unfinished(files.path, {})
        return
    if are_predictions_whole:
        yield from _metrics(files, record, evaluations, catalogue)
        if evaluations and all(verdict.holds for verdict in other_verdicts):
            yield _samples(files.read_samples(other_names), list(evaluations.values()))
    else:
        text = "not recomputed: predictions are damaged"
        yield Verdict(what=f"{RECORD}: metrics", holds=False, text=text)
    yield from checkpoint_verdicts
    yield from rehashed(record)
    if told := shared_of_record(record):
        # the run is whole: what its accuracy is worth is for the reader
        yield Verdict(what=TEST_IMAGES, holds=None, text=told)
    yield from _unfinished(files.path, record)
    if needs_checkpoints:
        yield from _unsaved(files)


def _num_predictions(names: Iterable[str]) -> int:
    """Return how many of the names are files of predictions."""
    return sum(name.startswith(_PREDICTIONS) for name in names)


def _evaluated(checksums: Mapping[str, str], record: dict[str, Any] | DataError) -> list[int]:
    """Return the tasks (from 0) that predictions should be of.

    They are those whose predictions something tells the checksum of, and those that the record has numbers of
    or, by its configuration, should have them.
    """
    tasks = set()
    for name in checksums:
        if found := _OF_TASK.fullmatch(name):
            tasks.add(int(found[1]))
    if isinstance(record, dict):
        matrix = record["accuracy_matrix"]
        evaluate = record["config"]["run"].get("evaluate", "every task")  # an older lw2g has no such option
        last = (record.get("tasks") or len(matrix)) - 1
        for task in range(len(matrix)):
            is_measured = any(row[task] is not None for row in matrix)
            if is_measured or is_evaluated(task, last, evaluate):
                tasks.add(task)
    return sorted(tasks)


def _sealed(name: str, content: dict[str, Any] | DataError) -> Verdict:
    """Return whether a sealed file could be read."""
    if isinstance(content, DataError):
        return Verdict(what=name, holds=False, text=str(content))
    return Verdict(what=name, holds=True, text="matches its checksum")


def _record(files: RunDirectory, record: dict[str, Any] | DataError, *, is_begun: bool) -> Verdict:
    """Return whether the record could be read; there is none before the first finished task."""
    if isinstance(record, DataError) and not is_begun and not (files.path / RECORD).exists():
        return Verdict(what=RECORD, holds=None, text="not written yet: no task is finished")
    return _sealed(RECORD, record)


def _unfinished(directory: Path, record: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield how far a run has come that is not finished: what it has may hold all the same."""
    try:
        told = unfinished_in_words(directory, record)
    except DataError:  # of the record or the configuration, which has its own finding
        return
    if told:
        yield Verdict(what=UNFINISHED, holds=None, text=told)


def _metrics(
    files: RunDirectory,
    record: dict[str, Any],
    evaluations: Mapping[int, Columns],
    catalogue: Catalogue | None,
) -> Iterator[Verdict]:
    """Yield whether each metric of the record is what the predictions give; ``evaluations`` are by task."""
    by_task = [evaluations.get(task) for task in range(len(record["accuracy_matrix"]))]
    if catalogue is None and record.get("metric_definitions"):  # of plugins
        catalogue = load_catalogue(made_with=made_with(files.path), kinds=["metric"])
    yield from recomputed(record, by_task, catalogue)


def _samples(ids: Sequence[str], evaluations: Sequence[Columns]) -> Verdict:
    """Return whether each predicted sample has an id of its own."""
    count = len(evaluations[-1]["sample"])
    is_unique = len(set(ids)) == len(ids)
    text = f"{count} samples predicted, {len(ids)} ids"
    return Verdict(what="samples.json: ids", holds=is_unique and len(ids) >= count, text=text)


def _checkpoints(files: RunDirectory, recorded: Mapping[str, str]) -> tuple[list[Verdict], dict[str, str]]:
    """Return the verdicts on checkpoints, and the checksums of other files in those that are whole.

    Args:
        files: The run.
        recorded: The checksums of files in its record.
    """
    verdicts: list[Verdict] = []
    found: dict[str, str] = {}
    for name, task, complaint, ledger in CheckpointFiles(files.checkpoints).examine():
        checksums = dict(ledger.get("files", {}))
        # a checkpoint has the predictions that came with it, those of its own task first
        for predicted, checksum in enumerate(ledger.get("predictions", ()), task):
            if checksum is None:  # no evaluation followed
                continue
            checksums[prediction_name(predicted)] = checksum
        others = []
        for other, checksum in checksums.items():
            if recorded.get(other, checksum) != checksum:
                others.append(other)
        if complaint is None and others:
            complaint = f"tells another checksum of {', '.join(others)} than {RECORD}"
        text = "matches its checksum and what it builds on"
        if complaint is None:
            found |= checksums
        else:
            text = complaint
        verdicts.append(Verdict(what=f"{files.checkpoints.name}/{name}", holds=complaint is None, text=text))
    return verdicts, found


def _unsaved(files: RunDirectory) -> Iterator[Verdict]:
    """Yield the last checkpoints that are missing although the record has their tasks."""
    try:
        lost = unsaved_tasks(files, CheckpointFiles(files.checkpoints).finished)
    except DataError:  # the record, the goal or the configuration, which has its own finding
        return
    for task in lost:
        name = f"{files.checkpoints.name}/task-{task:03d}.safetensors"
        yield Verdict(what=name, holds=False, text=f"is missing: {RECORD} tells of task {task + 1}")
