"""Trials: a few steps of the next task on copies, before the decision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from lw2g.learning import task_training
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.trial import Trials
from lw2g.learning.learner import Learner
from lw2g.learning.session import Session
from lw2g.learning.task_training import Observer
from lw2g.runtime.progress import Reporter
from runs import learned_one


@pytest.mark.parametrize("images", [8, 30])
def test_a_trial_is_paired_and_touches_nothing(session_of: Callable[..., Session], images: int) -> None:
    """Equal beginnings have equal losses, steps lower them, and what learns stays as it was."""
    chosen = {
        "benchmark.train": images,
        "growth.images": 32,
        "growth.measures": ["trial"],
        "evidence.trial.steps": 6,
    }
    session = session_of(chosen | {"baseline.init_from": "previous"}, baseline="s-prompt-plus-plus")
    evidence_sample = learned_one(session)
    before = {name: value.clone() for name, value in session.parts.pool.state_dict().items()}
    tried = Trials(session, evidence_sample)
    assert set(tried._held.indices).isdisjoint(tried._training.indices)
    seen = set(np.asarray(session.data.stream.tasks[1].train.indices)[evidence_sample.positions])
    assert set(tried._held.indices).isdisjoint(seen) == (images == 30)
    untrained = [tried(one, 0, 0) for one in (None, 0)]
    assert torch.equal(*untrained)  # a new set starts from the old one
    assert not torch.equal(untrained[0], tried(None, 0, 1))
    assert torch.equal(tried(0, 6, 0), tried(0, 6, 0))
    assert float(tried(0, 6, 0).mean()) < float(untrained[1].mean())
    trials = partial(Trials, session, evidence_sample)
    (found,) = collect_evidence(session.parts, evidence_sample, trials=trials).candidates
    said = found.measures["trial"]
    assert said.n == len(tried._held) == len(session.data.stream.tasks[1].train) // 4
    assert said.value == pytest.approx(said.parts["grow"] - said.parts["reuse"])
    assert session.parts.pool.task_to_set == [0]
    assert all(torch.equal(value, before[name]) for name, value in session.parts.pool.state_dict().items())


@pytest.mark.parametrize("baseline", ["dual-prompt", "s-prompt-plus-plus"])
def test_a_trial_takes_the_first_steps_of_a_run(session_of: Callable[..., Session], baseline: str) -> None:
    """With the same images and draw of the head a run has the same losses after as many steps."""

    class SameHead(Observer):
        def decided(self, index: int, *rest: object) -> None:
            torch.manual_seed(session.parts.seed_of(index, "trial 0"))
            with torch.no_grad():
                session.parts.baseline.draw_head(session.parts.infos[index])

    names: dict[str, Any] = {"baseline": baseline, "policy": "one", "constraints": ["orthogonal"]}
    session = session_of(**names)
    tried = Trials(session, learned_one(session))
    losses = tried(0, 5, 0)
    task = attrs.evolve(session.data.stream.tasks[1], train=tried._training)
    first, _, *others = session.data.stream.tasks
    stream = attrs.evolve(session.data.stream, tasks=(first, task, *others))
    session = attrs.evolve(
        session,
        parts=attrs.evolve(session.parts, infos=stream.infos),
        data=attrs.evolve(session.data, stream=stream),
    )
    context = Learner(session, 1, SameHead(Reporter([], [1, 1])), 5).learn()
    assert torch.equal(tried._losses(session, context), losses)


def test_a_trial_goes_through_the_phases_before_the_last_host(
    session_of: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the retrieval strategy too, each for as many steps."""
    gone = []
    real = task_training.train_phase

    def noted(phase: Any, *rest: Any, **options: Any) -> int:
        gone.append((phase.name, options["steps"]))
        return real(phase, *rest, **options)

    monkeypatch.setattr(task_training, "train_phase", noted)
    session = session_of(baseline="hide-prompt")
    Learner(session, 0, Observer(Reporter([], [1, 1])), 1).learn()
    session.parts.begin_task(1)
    images = session.data.image_set([session.data.stream.tasks[1].train], train=False)
    gone.clear()
    Trials(session, session.parts.evidence_sample(1, images))(0, 2, 0)
    assert gone == [("retrieval", 2), ("prompts", 2)]
