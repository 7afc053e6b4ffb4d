"""Checks of a metric: it gives a number or None for any run after any task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lw2g.learning.computed import inputs_of
from lw2g_testing.cases import ContractViolation, Subject, check


@check("metric")
def check_is_a_number_or_none(subject: Subject) -> None:
    """It is a finite number or None, after one task and three, with and without a choice of sets."""
    for name, inputs in _runs():
        try:
            # ``of`` raises on NaN and infinity, so that they are told below like any other error
            first = subject.component.of(inputs)
            second = subject.component.of(inputs)
        except Exception as error:  # a stranger's code may raise anything
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
        answers = rng.integers(0, 2 * tasks, (4, 4 * tasks))
        yield f"a run of {tasks} tasks with a choice of sets", _run(tasks, answers, rng, chooses=True)
        yield f"a run of {tasks} tasks without a choice of sets", _run(tasks, answers, rng, chooses=False)


def _run(tasks: int, answers: Any, rng: np.random.Generator, *, chooses: bool) -> dict[str, Any]:
    """Return what a metric gets of a run: four images a task, two of each class, and random answers."""
    # classes 2 t and 2 t + 1 are of task t
    task = np.repeat(np.arange(tasks), 4)
    # -1 is what predictions hold where a method chooses no set
    retrieved = np.full_like(task, -1)
    rank = retrieved
    if chooses:
        retrieved = rng.integers(0, tasks, len(task))
        rank = np.where(retrieved == task, 0, 1)
    columns = {
        "true": 2 * task + np.tile([0, 0, 1, 1], tasks),
        "predicted": answers[0],
        "task": task,
        "retrieved": retrieved,
        "set": retrieved,
        "rank": rank,
    }
    if chooses:
        columns |= {"hard": answers[1], "told": answers[2], "within": answers[3]}
    matrix = np.where(np.tri(tasks, dtype=bool).T, rng.uniform(0, 100, (tasks, tasks)), np.nan)
    return inputs_of(
        columns,
        matrix,
        matrix if chooses else None,
        range(tasks) if chooses else None,
        ["a"] * tasks if chooses else None,
        classes=[(2 * number, 2 * number + 1) for number in range(tasks)],
        domains=[f"domain {number}" for number in range(tasks)],
        right=[[1] * 2 * (number + 1) for number in range(tasks)],
    )
