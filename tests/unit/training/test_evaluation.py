"""Incremental evaluation equals full evaluation, and the matrices follow from stored predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lw2g.metrics import faa
from lw2g.registry.catalogue import Catalogue
from lw2g.training.evaluation import Predictions
from lw2g.training.progress import Reporter
from lw2g.training.record import RunDirectory
from lw2g.training.saved import open_run
from lw2g.training.session import Session


@pytest.mark.parametrize("baseline", ["dual-prompt", "hide-prompt"])
def test_incremental_evaluation_equals_full_evaluation_bit_for_bit(
    baseline: str, session_of: Callable[..., Session]
) -> None:
    """Recomputing only stale samples gives the features that recomputing all gives."""
    session = session_of(baseline=baseline)
    quiet = Reporter([], 3, {})
    for index in range(3):
        session.begin_task(index)
        torch.manual_seed(index)
        session.pool.grow(session.new_set(None))
        if index == 1:  # one set changes in place, as by reuse
            with torch.no_grad():
                next(session.pool[0].parameters()).mul_(1.5)
            session.pool.touch(0)
        history = [session.info(earlier) for earlier in range(index + 1)]
        found, _ = session.evaluator.evaluate(
            session.baseline, session.pool, session.retrieval, history, quiet
        )
        kept = session.evaluator.features_of(len(found.sample)).clone()
        session.evaluator.forget()
        again, _ = session.evaluator.evaluate(
            session.baseline, session.pool, session.retrieval, history, quiet
        )
        assert torch.equal(kept, session.evaluator.features_of(len(found.sample)))
        assert np.array_equal(found.predicted, again.predicted)


def test_only_stale_samples_are_recomputed(session_of: Callable[..., Session]) -> None:
    """A new task makes a baseline without shared parts compute nothing for samples that keep their set."""
    session = session_of(baseline="hide-prompt")
    quiet = Reporter([], 3, {})
    calls: list[int] = []
    original = session.baseline.features

    def counting(batch: Any, routing: Any) -> Any:
        calls.append(len(batch))
        return original(batch, routing)

    session.baseline.features = counting  # type: ignore[method-assign]
    for index in range(2):
        session.begin_task(index)
        session.pool.grow(session.new_set(None))
    history = [session.info(0), session.info(1)]
    arguments = (session.baseline, session.pool, session.retrieval, history, quiet)
    session.evaluator.evaluate(*arguments)
    first = len(calls)
    session.evaluator.evaluate(*arguments)
    assert first > 0
    assert len(calls) == first
    session.pool.touch(0)
    session.pool.touch(1)
    session.evaluator.evaluate(*arguments)
    assert len(calls) == 2 * first


def test_unseen_classes_are_never_predicted(session_of: Callable[..., Session]) -> None:
    """After the first task only its classes come out, whatever the head says."""
    session = session_of()
    session.begin_task(0)
    session.pool.grow(session.new_set(None))
    with torch.no_grad():
        session.baseline.head.bias[-1] = 1e6  # type: ignore[index, union-attr]
    found, _ = session.evaluator.evaluate(
        session.baseline, session.pool, session.retrieval, [session.info(0)], Reporter([], 3, {})
    )
    assert set(found.predicted.tolist()) <= {0, 1}


def test_matrices_follow_from_stored_predictions(finished: tuple[Path, dict[str, Any]]) -> None:
    """Every column of both matrices can be recomputed from the prediction files."""
    directory, record = finished
    files = RunDirectory(directory)
    for task in range(3):
        stored = files.read_predictions(task)
        column = [row[task] for row in record["accuracy_matrix"][: task + 1]]
        assert stored.accuracies() == column
        sets = record["task_to_set"][: task + 1]
        assert stored.retrievals(sets) == [row[task] for row in record["retrieval_matrix"][: task + 1]]
    assert record["metrics"]["faa"] == faa(record["accuracy_matrix"])


def test_retrievals_are_undefined_without_a_hard_choice() -> None:
    """No set, no retrieval accuracy."""
    zeros, nothing = np.zeros(2, dtype=np.int64), np.full(2, -1, dtype=np.int64)
    found = Predictions(sample=zeros, true=zeros, predicted=zeros, task=zeros, retrieved=nothing, set=nothing)
    assert found.retrievals([0]) is None
    assert found.accuracies() == [100.0]


def test_a_saved_run_predicts_what_the_run_predicted(
    finished: tuple[Path, dict[str, Any]], catalogue: Catalogue, tmp_path: Path
) -> None:
    """Classes and sets of image files equal those stored for the same test images."""
    from PIL import Image

    directory, _ = finished
    saved = open_run(directory, catalogue)
    stream = saved._session.stream
    paths = []
    for number in range(6):
        pixels = stream.tasks[0].test.source.image(number).permute(1, 2, 0).numpy()
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    found = saved.predict(paths)
    stored = RunDirectory(directory).read_predictions(2)
    assert [entry["class_index"] for entry in found] == stored.predicted[:6].tolist()
    assert [entry["set"] for entry in found] == stored.set[:6].tolist()
    assert found[0]["class"] == stream.class_names[found[0]["class_index"]]
    assert open_run(directory, catalogue, task=0).classes == ("pattern 0", "pattern 1")
