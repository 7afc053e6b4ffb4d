"""Policy keep: a new set is trained first, and stays only if it beats the best old one on images apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from listening import At, power_cut
from lw2g.cli.decisions import decision_rows
from lw2g.disk.checkpoint import part
from lw2g.errors import ConfigError
from lw2g.interfaces.evidence import Candidate
from lw2g.interfaces.growth import CandidateEvidence, Decision, Evidence, Grow, Reuse
from lw2g.interfaces.tracker import EpochEnded, Event
from lw2g.learning import task_training
from lw2g.learning.evidence.outcomes import left_out_errors
from lw2g.learning.learner import Learner
from lw2g.learning.session import Session
from lw2g.learning.task_training import Observer
from lw2g.lifecycle.runner import resume, start
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.progress import Reporter
from lw2g_growth.keeping import KeepPolicy, Outcome
from lw2g_growth.options import KeepConfig
from lw2g_testing.made_evidence import made_sample, measured_set
from lw2g_testing.tiny import tiny_catalogue
from runs import different, shortest, telling, tensors, untimed


def said(
    number: int, gain: float, error: float | None, as_it_is: float = 1.0, trained: float | None = None
) -> CandidateEvidence:
    """The outcome of one old set."""
    parts: dict[str, float | None] = {"as it is": as_it_is}
    if trained is not None:
        parts["trained on"] = trained
    return measured_set(number, gain, error, measure="outcome", parts=parts)


def decide(*sets: CandidateEvidence, margin: float = 1.0) -> Decision:
    """Ask the policy."""
    evidence = Evidence(task=4, candidates=sets)
    return KeepPolicy(KeepConfig(margin=margin)).decide(evidence, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("sets", "margin", "expected"),
    [
        ((), 1.0, Grow()),
        ((said(0, -3.0, 1.0),), 1.0, Grow()),
        ((said(0, -3.0, 1.0),), 3.0, Reuse(0, held=True)),  # beaten by the margin, not by more
        ((said(0, 0.0, 0.0),), 0.0, Reuse(0, held=True)),  # a tie keeps no set
        ((said(0, -3.0, None),), 1.0, Reuse(0, held=True)),  # an unknown error proves nothing
        ((said(0, -3.0, None),), 0.0, Grow()),
        ((said(0, 1.0, 1.0, 0.9, 0.8),), 1.0, Reuse(0)),  # trained on it is better than as it is
        ((said(0, 1.0, 1.0, 0.8, 0.8),), 1.0, Reuse(0, held=True)),
        ((said(0, -5.0, 9.0), said(1, -3.0, 1.0)), 1.0, Grow()),  # the best one decides, not a noisy one
        ((said(0, 1.0, 1.0), said(1, 2.0, 1.0), said(2, 2.0, 1.0)), 1.0, Reuse(1, held=True)),
    ],
)
def test_a_new_set_stays_if_it_beats_the_best_old_one(sets: Any, margin: float, expected: Decision) -> None:
    """By more than the margin of the paired difference; else the winner gets the task, as it has won."""
    assert decide(*sets, margin=margin) == expected


_GAINS = st.floats(-9, 9)


@given(st.lists(st.tuples(_GAINS, st.none() | st.floats(0, 9), _GAINS), max_size=5), st.randoms())
def test_the_order_of_sets_does_not_matter(rows: list[Any], random: Any) -> None:
    """Any evidence has one decision, whichever set is told first; it follows from the limit in the record."""
    sets = [said(number, gain, error, 0.0, by) for number, (gain, error, by) in enumerate(rows)]
    decision = decide(*sets)
    limits = KeepPolicy(KeepConfig()).limits(Evidence(task=9, candidates=tuple(sets)))["outcome"]
    random.shuffle(sets)
    assert decide(*sets) == decision == decide(*sets)
    if isinstance(decision, Reuse):
        assert decision.set == min(range(len(rows)), key=lambda number: (-rows[number][0], number))
        assert all(rows[decision.set][0] >= limit - 1e-9 for limit in limits.values())


def test_a_gain_is_paired_and_of_the_better_use_of_a_set() -> None:
    """Percent of the new set's error; the newest set alone is trained on."""
    errors = {
        (None, True): np.array([0.5, 0.5, 1.0, 2.0]),
        (0, False): np.array([0.5, 0.5, 1.0, 1.0]),
        (2, False): np.array([1.5, 1.5, 2.0, 3.0]),
        (2, True): np.array([0.6, 0.6, 1.1, 2.1]),
    }
    asked = []

    def outcome(number: int | None, train: bool) -> torch.Tensor:
        asked.append((number, train))
        return torch.from_numpy(errors[number, train])

    sample = made_sample(
        torch.tensor([0, 0, 1, 1]),
        candidates=[Candidate(set=number) for number in (0, 2)],
        task_to_set=(0, 0, 2),
        outcome=outcome,
    )
    found = Outcome().measure(sample)
    assert sorted(asked, key=str) == sorted(errors, key=str)
    assert (found[0].value, found[2].value) == pytest.approx((25.0, -10.0))
    assert found[2].error == pytest.approx(0.0, abs=1e-9)
    assert found[0].error == pytest.approx(100 * 0.5 / 2)  # one of four differs, by 1
    assert dict(found[2].parts) == pytest.approx({"new": 1.0, "as it is": 2.0, "trained on": 1.1})


def test_each_image_is_asked_without_itself() -> None:
    """Its error is that of a regression that is fitted to the others; features of the classes lower it."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 3
    noise = torch.randn(24, 6, generator=generator)
    told = torch.nn.functional.one_hot(labels, 6) * 5 + noise
    assert float(left_out_errors(told, labels).mean()) < 0.4 < float(left_out_errors(noise, labels).mean())
    # a feature that names each image alone says nothing of the others
    alone = left_out_errors(torch.eye(24), labels)
    assert float(alone.min()) > 0.6
    torch.testing.assert_close(left_out_errors(told * 1000, labels), left_out_errors(told, labels))


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Any]:
    """Resolve a run whose decisions are told, with the catalogue that knows them."""

    def make(baseline: str, *decisions: Decision, **options: Any) -> tuple[Any, Catalogue]:
        catalogue = telling(*decisions)
        options = {name.replace("__", "."): value for name, value in options.items()}
        chosen = shortest(
            catalogue,
            baseline,
            options | {"benchmark.tasks": len(decisions)},
            policy="told",
            constraints=["none"],
        )
        return chosen, catalogue

    return make


_KNOWN = tiny_catalogue()
_SETS = [name for name in _KNOWN.names("baseline") if _KNOWN.grows(name)]


@pytest.mark.parametrize("baseline", _SETS)
def test_a_held_set_keeps_its_bits(baseline: str, told: Callable[..., Any], tmp_path: Path) -> None:
    """Under every method with sets a task can get an old set as it is, and nothing moves it."""
    chosen, catalogue = told(baseline, Grow(), Reuse(0, held=True))
    record = start(chosen, catalogue, tmp_path / "run")
    pools = [part(tensors(tmp_path / "run", task), "pool") for task in range(2)]
    assert [entry.get("held", False) for entry in record["decisions"]] == [False, True]
    assert record["task_to_set"] == [0, 0]
    assert not different(pools[0], pools[1])
    assert next(decision_rows(record["decisions"][1]))[1] == "reuse as it is"
    assert not [name for name in tensors(tmp_path / "run", 1) if name.startswith("merging/")]


def test_a_held_set_outlives_a_kill_within_its_task(told: Callable[..., Any], tmp_path: Path) -> None:
    """Resumed within a task whose set is held, the run holds it as if it had not stopped."""
    chosen, catalogue = told("dual-prompt", Grow(), Reuse(0, held=True), Reuse(0), baseline__epochs=2)
    reference = start(chosen, catalogue, tmp_path / "quiet")

    def is_trained(event: Event) -> bool:
        return isinstance(event, EpochEnded) and (event.task, event.epoch) == (1, 0)

    with pytest.raises(RuntimeError, match="power cut"):
        start(chosen, catalogue, tmp_path / "killed", [At(is_trained, power_cut)])
    assert untimed(resume(tmp_path / "killed", catalogue)) == untimed(reference)
    assert not different(tensors(tmp_path / "killed"), tensors(tmp_path / "quiet"))


def test_too_few_images_are_refused_before_anything_runs(session_of: Callable[..., Session]) -> None:
    """Less than two of a class to set apart, and two to train on: one line."""
    with pytest.raises(ConfigError, match=r"task 2 has 6 training images of 3 classes, too few to set 2"):
        session_of({"benchmark.train": 1}, baseline="dual-prompt", policy="keep")


def test_a_dry_run_trains_copies_for_its_few_steps(
    session_of: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies take no more steps than its phases do: a new set and the newest one, then the task."""
    gone = []
    real = task_training.train_phase

    def noted(phase: Any, *rest: Any, **options: Any) -> int:
        gone.append((phase.name, options["steps"]))
        return real(phase, *rest, **options)

    monkeypatch.setattr(task_training, "train_phase", noted)
    session = session_of(baseline="dual-prompt", policy="keep")
    for index in (0, 1):
        gone.clear()
        Learner(session, index, Observer(Reporter([], [1, 1])), 1).learn()
    assert session.parts.growth.trains_copies
    assert gone == [("prompts", 1)] * 3
