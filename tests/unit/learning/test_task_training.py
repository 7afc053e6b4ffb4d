"""Phases without steps draw the same whatever was drawn before, so that a resume may repeat them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lw2g.interfaces.phase import ComputePhase
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
