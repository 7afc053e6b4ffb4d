"""Checks of a metric: it gives a number or None for any run after any task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lw2g.evaluation.computed import inputs_of
from lw2g.testing.kit import ContractViolation, Subject, check


@check("metric")
def check_is_a_number_or_none(subject: Subject) -> None:
    """It is a finite number or None, after one task and three, with and without a choice of sets."""
    for name, inputs in _runs():
        try:
            first, second = subject.component.of(inputs), subject.component.of(inputs)
        except Exception as error:
            raise ContractViolation(
                f"return a finite number, or None where it is not defined; of {name} it raises "
                f"{type(error).__name__} ({error})"
            ) from error
        if first != second:  # `lw2g verify` computes it again
            raise ContractViolation(f"draw nothing at random: of {name} it is {first!r}, then {second!r}")


def _runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what runs of two classes a task have found, with a name for messages."""
    for tasks in (1, 3):
        rng = np.random.default_rng(tasks)
        task = np.repeat(np.arange(tasks), 4)
        true = 2 * task + np.tile([0, 0, 1, 1], tasks)
        answers = rng.integers(0, 2 * tasks, (4, len(true)))
        for chooses in (True, False):
            nothing = np.full_like(task, -1)
            retrieved = rng.integers(0, tasks, len(true)) if chooses else nothing
            columns = {"true": true, "predicted": answers[0], "task": task, "retrieved": retrieved}
            columns |= {"set": retrieved, "rank": np.where(retrieved == task, 0, 1) if chooses else nothing}
            if chooses:
                columns |= dict(zip(("hard", "told", "within"), answers[1:], strict=True))
            matrix = np.where(np.tri(tasks, dtype=bool).T, rng.uniform(0, 100, (tasks, tasks)), np.nan)
            sets, groups = (range(tasks), ["a"] * tasks) if chooses else (None, None)
            name = f"a run of {tasks} tasks {'with' if chooses else 'without'} a choice of sets"
            yield (
                name,
                inputs_of(
                    columns,
                    matrix,
                    matrix if chooses else None,
                    sets,
                    groups,
                    classes=[(2 * own, 2 * own + 1) for own in range(tasks)],
                    domains=[f"domain {own}" for own in range(tasks)],
                    right=[[1] * 2 * (own + 1) for own in range(tasks)],
                ),
            )
