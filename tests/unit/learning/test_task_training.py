"""Phases without steps draw the same whatever was drawn before; a first step is told from later ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn

from lw2g.errors import ConfigError, ContractError
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, StepOutput, TrainingPhase
from lw2g.learning.learner import Learner
from lw2g.learning.session import Session
from lw2g.learning.session_parts import RunParts
from lw2g.learning.task_training import Observer
from lw2g.runtime.progress import Reporter


def test_a_phase_without_steps_draws_from_its_task_and_name_alone(
    session_of: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other draws before it move none of its own; another phase and another task have others."""

    def draws(before: int) -> dict[str, list[float]]:
        seen: dict[str, list[float]] = {}

        def phase(name: str) -> tuple[str, ComputePhase]:
            def run(progress: Callable[[int, int], None]) -> None:
                seen.setdefault(name, []).append(float(torch.rand(())))

            return "baseline 'mine'", ComputePhase(name=name, run=run)

        def phases(self: RunParts, context: Any) -> list[tuple[str, ComputePhase]]:
            torch.manual_seed(before)
            return [phase("first"), phase("second")]

        monkeypatch.setattr(RunParts, "phases", phases)
        session = session_of(policy="one", constraints=[])
        reporter = Reporter([], [len(task.train) for task in session.data.stream.tasks])
        for index in (0, 1):
            Learner(session, index, Observer(reporter)).learn()
        return seen

    one = draws(1)
    assert one == draws(2)
    assert len({*one["first"], *one["second"]}) == 4


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (
            (0, "first", 1),
            "^baseline 'mine', step: the loss is not .* of task 1, before any update; look at how it is",
        ),
        ((0, "first", 2), "training diverged: .* step 2 of epoch 1 of phase 'first' of task 1;"),
        ((0, "second", 1), "training diverged: .* step 1 of epoch 1 of phase 'second' of task 1;"),
        ((1, "first", 1), "training diverged: .* step 1 of epoch 1 of phase 'first' of task 2;"),
    ],
)
def test_no_rate_is_blamed_before_any_update(
    session_of: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    bad: tuple[int, str, int],
    told: str,
) -> None:
    """The loss of a run's very first step is the method's; of any later one a rate may be to blame."""
    weight = nn.Parameter(torch.ones(1))

    def phase(task: int, name: str) -> tuple[str, TrainingPhase]:
        steps = count(1)

        def step(batch: Any) -> StepOutput:
            return StepOutput(loss=weight.sum() * (math.nan if (task, name, next(steps)) == bad else 1.0))

        group = ParameterGroup(parameters=(weight,), lr=0.1)
        training = TrainingPhase(
            name=name, groups=(group,), step=step, epochs=1, batch_size=8, optimizer="adam", host=False
        )
        return "baseline 'mine'", training

    def phases(self: RunParts, context: Any) -> list[tuple[str, TrainingPhase]]:
        return [phase(context.task.index, name) for name in ("first", "second")]

    monkeypatch.setattr(RunParts, "phases", phases)
    session = session_of(policy="one", constraints=[])
    reporter = Reporter([], [len(task.train) for task in session.data.stream.tasks])
    for index in range(bad[0]):
        Learner(session, index, Observer(reporter)).learn()
    with pytest.raises((ConfigError, ContractError), match=told):
        Learner(session, bad[0], Observer(reporter)).learn()
