"""Incremental evaluation equals full evaluation, and the matrices follow from stored predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from lw2g.config.resolve import Resolved
from lw2g.disk.predictions import Predictions
from lw2g.disk.record import RunDirectory
from lw2g.errors import ContractError
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.scope import SET
from lw2g.learning.session import Session
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import start
from lw2g.model.predictor import Predictor
from lw2g.model.saved import open_model
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verdicts import recomputed
from lw2g.runtime.progress import Reporter
from lw2g_testing.tiny import TinyBenchmark, TinyBenchmarkConfig


@pytest.mark.parametrize("baseline", ["dual-prompt", "hide-prompt", "tuna"])
def test_incremental_evaluation_equals_full_evaluation_bit_for_bit(
    baseline: str, session_of: Callable[..., Session]
) -> None:
    """Recomputing only stale samples gives the features that recomputing all gives."""
    session = session_of(baseline=baseline)
    quiet = Reporter([], [1, 1, 1])
    for index in range(3):
        session.parts.begin_task(index)
        torch.manual_seed(index)
        session.parts.pool.grow(session.parts.new_set(None))
        if index == 1:  # one set changes in place, as by reuse
            with torch.no_grad():
                next(session.parts.pool[0].parameters()).mul_(1.5)
            session.parts.pool.touch(0)
        found, _ = session.evaluate(index, quiet)
        kept = session.data.evaluator.features_of(len(found.sample)).clone()
        session.data.evaluator.forget()
        again, _ = session.evaluate(index, quiet)
        assert torch.equal(kept, session.data.evaluator.features_of(len(found.sample)))
        assert np.array_equal(found.predicted, again.predicted)


def test_only_stale_samples_are_recomputed(session_of: Callable[..., Session]) -> None:
    """A new task makes a baseline without shared parts compute nothing for samples that keep their set."""
    session = session_of(baseline="hide-prompt", retrieval="oracle")
    quiet = Reporter([], [1, 1, 1])
    calls: list[int] = []
    original = session.parts.baseline.features

    def counting(batch: Any, routing: Any) -> Any:
        calls.append(len(batch))
        return original(batch, routing)

    session.parts.baseline.features = counting  # type: ignore[method-assign]
    for index in range(2):
        session.parts.begin_task(index)
        session.parts.pool.grow(session.parts.new_set(None))
    told: list[Any] = []
    heard = Reporter([SimpleNamespace(on_event=told.append)], [1, 1, 1])
    session.evaluate(1, heard)
    assert told[-1].unit == "images"
    first = len(calls)
    session.evaluate(1, quiet)
    assert first > 0
    assert len(calls) == first
    assert session.data.evaluator.moved == [False, False]
    session.parts.pool.touch(1)
    session.evaluate(1, heard)
    assert (told[-1].unit, told[-1].total < told[0].total) == (
        "images anew",
        True,
    )  # so the count is no riddle
    assert session.data.evaluator.moved == [False, True]
    session.parts.pool.touch(0)
    session.parts.pool.touch(1)
    calls.clear()
    session.evaluate(1, quiet)
    assert len(calls) == first


def test_where_each_set_answers_only_new_ones_are_asked(session_of: Callable[..., Session]) -> None:
    """Old images are asked under the newest set alone, new ones under all; and under a merge that moved."""
    session, asked = session_of(baseline="tuna"), [0]
    baseline, quiet = session.parts.baseline, Reporter([], [1, 1, 1])
    original = baseline.features

    def counting(batch: Any, routing: Any) -> Any:
        asked[-1] += len(set(batch.samples.tolist()))
        return original(batch, routing)

    baseline.features = counting  # type: ignore[method-assign]
    sizes = session.data.evaluator.sizes(3)
    for index in range(3):
        session.parts.begin_task(index)
        session.parts.pool.grow(session.parts.new_set(None))
        found, _ = session.evaluate(index, quiet)
        assert set(found.set.tolist()) <= set(session.parts.pool.ids)
        asked.append(0)
    per_batch = session.parts.config.run.evaluation_batch
    # sets and merge; then old images under the new set
    pairs = [new * (index + 2) + sum(sizes[:index]) for index, new in enumerate(sizes)]
    for count, expected in zip(asked, pairs, strict=False):
        assert 0 <= expected - count < per_batch  # images that meet several sets in one batch count once
    next(baseline.beside()[0].buffers()).add_(0.1)
    session.evaluate(2, quiet)
    assert asked[-1] == sum(sizes)


def test_unseen_classes_are_never_predicted(session_of: Callable[..., Session]) -> None:
    """After the first task only its classes come out, whatever the head says."""
    session = session_of()
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    with torch.no_grad():
        session.parts.baseline.head.bias[-1] = 1e6  # type: ignore[index, union-attr]
    found, _ = session.evaluate(0, Reporter([], [1, 1, 1]))
    assert set(found.predicted.tolist()) <= {0, 1}


def test_matrices_and_metrics_follow_from_the_files_alone(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """With numpy and the files, and no code of ours, a reader gets the record's matrices and metrics."""
    start(quick({"baseline.epochs": 1}, policy="always"), catalogue, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    samples = json.loads((tmp_path / "run" / "samples.json").read_text())
    tests = [task.test for task in TinyBenchmark(TinyBenchmarkConfig(train=6, test=4)).stream().tasks]
    accuracy, retrieval = np.full((3, 3), np.nan), np.full((3, 3), np.nan)
    for after in range(3):
        stored = load_file(tmp_path / "run" / "predictions" / f"task-{after:03d}.safetensors")
        seen = [f"test/{n}" for n in range(sum(map(len, tests[: after + 1])))]
        assert [samples[row] for row in stored["sample"]] == seen
        assert (
            stored["true"].tolist() == np.concatenate([part.labels for part in tests[: after + 1]]).tolist()
        )
        for task in range(after + 1):
            rows = stored["task"] == task
            accuracy[task, after] = 100 * np.mean(stored["predicted"][rows] == stored["true"][rows])
            own = record["task_to_set"][task]
            retrieval[task, after] = 100 * np.mean(stored["set"][rows] == own)
            assert [record["task_to_set"][one] for one in stored["retrieved"][rows]] == stored["set"][
                rows
            ].tolist()
    np.testing.assert_allclose(np.array(record["accuracy_matrix"], dtype=float), accuracy)
    np.testing.assert_allclose(np.array(record["retrieval_matrix"], dtype=float), retrieval)
    found = record["metrics"]
    assert found["faa"] == pytest.approx(accuracy[:, 2].mean())
    assert found["faa_samples"] == pytest.approx(100 * np.mean(stored["predicted"] == stored["true"]))
    assert found["faa_samples"] != pytest.approx(found["faa"])  # tasks differ in size
    assert found["caa"] == pytest.approx(np.mean([accuracy[: t + 1, t].mean() for t in range(3)]))
    best = [max(accuracy[0, :2]), accuracy[1, 1]]
    assert found["ffm"] == pytest.approx(np.mean(best - accuracy[:2, 2]))
    assert found["bwt"] == pytest.approx(np.mean(accuracy[:2, 2] - accuracy.diagonal()[:2]))
    assert found["pra"] == pytest.approx(retrieval[:, 2].mean())
    assert 0 < found["pra"] < 100  # else a wrong definition would pass unseen
    assert (found["ssp"], found["chance_pra"]) == (3, pytest.approx(100 / 3))


def test_a_record_has_the_calibration_error_of_its_predictions_on_request(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """With numpy from the files; a wrong one is found, and without the option there is neither."""
    options = {"baseline.epochs": 1, "baseline.head": "ridge", "baseline.head_features": 0}
    start(quick(options, policy="one"), catalogue, tmp_path / "plain")
    start(quick({**options, "run.probabilities": True}, policy="one"), catalogue, tmp_path / "run")
    plain = json.loads((tmp_path / "plain" / "record.json").read_text())
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert "calibration" not in plain
    assert plain["metrics"] == record["metrics"]
    last = "predictions/task-002.safetensors"
    assert "probability" not in load_file(tmp_path / "plain" / last)
    stored = load_file(tmp_path / "run" / last)
    share = stored["probability"] / 1e6
    right = stored["predicted"] == stored["true"]
    place = np.minimum((15 * share).astype(int), 14)
    gaps = [abs(np.sum(share[place == one] - right[place == one])) for one in range(15)]
    noted = record["calibration"]
    assert noted["ece"] == pytest.approx(100 * sum(gaps) / len(share))
    assert noted["bins"] == 15
    model = open_model(tmp_path / "run", catalogue)
    assert model.temperature == noted["temperature"] != 1.0
    evaluations = [
        load_file(tmp_path / "run" / f"predictions/task-{task:03d}.safetensors") for task in range(3)
    ]
    for error, holds in ((noted["ece"], True), (noted["ece"] + 1, False)):
        told = {**record, "calibration": {**noted, "ece": error}}
        (verdict,) = [
            one for one in recomputed(told, evaluations, catalogue) if one.what.endswith("calibration.ece")
        ]
        assert verdict.holds is holds


def test_a_run_forgets_features_of_a_set_that_was_trained_on(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """Under policy one the set changes with every task; the run evaluates it as a fresh evaluator does."""
    overrides = {"baseline.lr": 0.5, "baseline.epochs": 3}
    chosen = quick(overrides, baseline="s-prompt-plus-plus", policy="one", constraints=())
    start(chosen, catalogue, tmp_path / "run")
    session = reopen(tmp_path / "run", catalogue)
    assert session.parts.baseline.scope is SET
    fresh, _ = session.evaluate(2, Reporter([], [1, 1, 1]))
    stored = RunDirectory(tmp_path / "run").read_predictions(2)
    assert stored.predicted.tolist() == fresh.predicted.tolist()


class _Told(RetrievalStrategy):
    """Retrieves what it is told, sample by sample."""

    answers: Sequence[int] = ()

    def scores(self, query: torch.Tensor, seen: Sequence[int], task_of_class: torch.Tensor) -> torch.Tensor:
        found, self.answers = self.answers[: len(query)], self.answers[len(query) :]
        return torch.eye(len(seen))[[*found, *[0] * (len(query) - len(found))]]


def test_drift_is_that_of_samples_that_kept_their_set(session_of: Callable[..., Session]) -> None:
    """A sample whose retrieved set changed has other features, but they have not drifted."""
    session = session_of(baseline="s-prompt-plus-plus")
    for index in range(2):
        session.parts.begin_task(index)
        torch.manual_seed(index)
        session.parts.pool.grow(session.parts.new_set(None))
    told = _Told(session.parts.baseline.context)
    evaluator, quiet = session.data.evaluator, Reporter([], [1, 1, 1])
    told.answers = [0] * 34
    predictor = attrs.evolve(Predictor.of(session.parts, 1), retrieval=told)
    evaluator.evaluate(predictor, quiet)
    before = evaluator.features_of(34).clone()
    with torch.no_grad():
        for parameter in session.parts.pool[0].parameters():
            parameter.mul_(1.5)
    session.parts.pool.touch(0)
    told.answers = [0] * 7 + [1] * 27
    _, drift = evaluator.evaluate(predictor, quiet)
    after = evaluator.features_of(34)
    change = (after - before).norm(dim=1) / before.norm(dim=1)
    assert drift == [pytest.approx(float(change[:7].mean()))]
    assert float(change[:13].mean()) != pytest.approx(drift[0], rel=1e-3)


@pytest.mark.parametrize(("baseline", "depends"), [("no-prompt", False), ("aper-adapter", True)])
def test_features_without_a_choice_of_set_last_until_a_set_changes(
    baseline: str, depends: bool, session_of: Callable[..., Session]
) -> None:
    """Another task alone makes nothing stale; a changed tensor of any set does, where features use sets."""
    session = session_of(baseline=baseline, policy="always")
    for index in range(2):
        session.parts.begin_task(index)
    session.parts.pool.grow(session.parts.new_set(None))
    session.parts.pool.reuse(0)
    calls: list[int] = []
    original = session.parts.baseline.features

    def counting(batch: Any, routing: Any) -> Any:
        calls.append(len(batch))
        return original(batch, routing)

    session.parts.baseline.features = counting  # type: ignore[method-assign]
    done, moved = [], []
    for tasks, change in ((1, False), (2, False), (2, True), (2, False)):
        for parameter in session.parts.pool[0].parameters() if change else ():
            parameter.data += 1.0
        session.evaluate(tasks - 1, Reporter([], [1, 1, 1]))
        done.append(len(calls))
        moved.append(session.data.evaluator.moved)
        calls.clear()
    batches = [
        -(-images // 16)
        for images in (*session.data.evaluator.sizes(2), sum(session.data.evaluator.sizes(2)))
    ]
    assert done == [*batches[:2], batches[2] if depends else 0, 0]
    assert moved == [[], [False], [depends, depends], [False, False]]


def test_tasks_and_sets_share_forwards_of_one_size(session_of: Callable[..., Session]) -> None:
    """Only the last batch of an evaluation is filled up, and none gathers a set that no image of it gets."""
    session = session_of({"benchmark.test": 5}, baseline="s-prompt-plus-plus")
    for index in range(3):
        session.parts.begin_task(index)
        session.parts.pool.grow(session.parts.new_set(None))
    told = _Told(session.parts.baseline.context)
    told.answers = [0, 1] * 10 + [1] * 21
    seen: list[tuple[int, int | None]] = []
    plain, prompted = session.parts.backbone.features, session.parts.baseline.features

    def counting(images: torch.Tensor, injections: Any = (), **options: Any) -> torch.Tensor:
        if not injections:
            seen.append((len(images), None))
        return plain(images, injections, **options)

    def routed(batch: Any, routing: Any) -> torch.Tensor:
        seen.append((len(batch), len(routing.sets)))
        return prompted(batch, routing)

    session.parts.backbone.features = counting  # type: ignore[method-assign]
    session.parts.baseline.features = routed  # type: ignore[method-assign]
    predictor = attrs.evolve(Predictor.of(session.parts, 2), retrieval=told)
    session.data.evaluator.evaluate(predictor, Reporter([], [1, 1, 1]))
    # 41 images in batches of 16; set 0 has ten of them, so that the first batch alone mixes two sets
    assert seen == [(16, None)] * 3 + [(16, 2), (16, 1), (16, 1)]
    assert session.data.evaluator.sizes(2) == [11, 18]


@pytest.mark.parametrize(("vote", "asked"), [("sample", [192]), ("batch", [16] * 9)])
def test_images_that_vote_keep_the_size_of_their_batch(
    session_of: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, vote: str, asked: list[int]
) -> None:
    """Scores of known queries are asked for many images at once, but not where their company counts."""
    session = session_of({"benchmark.test": 18, "retrieval.vote": vote})
    for index in range(3):
        session.parts.begin_task(index)
        session.parts.pool.grow(session.parts.new_set(None))
    scores, sizes = session.parts.retrieval.scores, []
    monkeypatch.setattr(
        session.parts.retrieval, "scores", lambda q, *rest: sizes.append(len(q)) or scores(q, *rest)
    )
    session.evaluate(2, Reporter([], [1, 1, 1]))
    assert sizes == asked


def test_retrievals_are_undefined_without_a_hard_choice() -> None:
    """No set, no retrieval accuracy."""
    zeros, nothing = np.zeros(2, dtype=np.int64), np.full(2, -1, dtype=np.int64)
    found = Predictions(
        sample=zeros, true=zeros, predicted=zeros, task=zeros, retrieved=nothing, set=nothing, rank=nothing
    )
    assert found.retrievals([0], [[0]], [""]) is None
    assert found.accuracies() == [100.0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda n: torch.full((n,), 0.5),
            r"returned torch.float32 \[\d+\]; return floating",
        ),
        (lambda n: torch.zeros(n, 2), r"returned torch.float32 \[\d+, 2\]"),
        (lambda n: torch.zeros(n, 1, dtype=torch.int64), r"returned torch.int64 \[\d+, 1\]"),
        (lambda n: [0] * n, r"returned \[0, 0"),
        (lambda n: None, "returned None"),
    ],
)
def test_each_seen_task_has_a_score(
    session_of: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, answer: Any, message: str
) -> None:
    """Whatever else a strategy answers is told by its name, before a set is looked up."""
    session = session_of()
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    monkeypatch.setattr(session.parts.retrieval, "scores", lambda query, seen, table: answer(len(query)))
    with pytest.raises(ContractError, match=f"retrieval 'key-cosine': scores {message}"):
        session.evaluate(0, Reporter([], [1, 1, 1]))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_are_numbers(
    session_of: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    """A logit of a seen class that is no number is told with the sample; unseen classes may hold any."""
    session = session_of(baseline="no-prompt")
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    place = {"row": 3, "column": session.data.stream.num_classes - 1}

    def logits(features: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(len(features), session.data.stream.num_classes)
        made[place["row"], place["column"]] = value
        return made

    monkeypatch.setattr(session.parts.baseline, "logits", logits)
    session.evaluate(0, Reporter([], [1, 1, 1]))
    place["column"] = 0
    with pytest.raises(ContractError, match=r"baseline 'no-prompt': logits of sample .*3.* are not finite"):
        session.evaluate(0, Reporter([], [1, 1, 1]))
