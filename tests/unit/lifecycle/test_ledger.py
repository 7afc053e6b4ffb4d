"""The ledger: what it notes of a task that is evaluated, and of one that is passed over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lw2g.disk.predictions import Predictions
from lw2g.lifecycle.ledger import Ledger
from tasks import tasks_of


def session_of(moved: list[bool], tasks: int = 4) -> Any:
    """What a ledger reads of a session of so many tasks, of which the features of some have moved."""
    return SimpleNamespace(
        parts=SimpleNamespace(infos=tasks_of([1] * tasks), pool=SimpleNamespace(size=1)),
        data=SimpleNamespace(
            evaluator=SimpleNamespace(moved=moved), stream=SimpleNamespace(planted_groups=None)
        ),
        components=SimpleNamespace(metrics=()),
    )


def passed_over(*moved: list[bool]) -> Ledger:
    """The ledger of a run whose tasks nothing was measured after."""
    ledger = Ledger(task_to_set=[0, 1, 2, 3], decisions=[{}] * 4)
    for flags in moved:
        ledger.pass_over(session_of(flags))
    return ledger


def test_what_has_become_stale_stays_so_and_a_new_task_is_not() -> None:
    """Statistics of a task are those of its images when it has ended, and do not come back to them later."""
    ledger = passed_over([], [False], [True, False], [False, False, True])
    assert ledger.stale == [[], [False], [True, False], [True, False, True]]


def test_a_task_that_is_passed_over_has_a_place_in_every_table() -> None:
    """Nothing was measured there, neither of it nor of the tasks before it."""
    ledger = passed_over([], [False], [False, False])
    assert ledger.accuracy == [[None], [None, None], [None, None, None]]
    assert ledger.drift == [[], [None], [None, None]]
    assert ledger.right == [[], [], []]
    assert ledger.predictions == [None, None, None]
    assert ledger.metrics == [{}, {}, {}]


def test_coverage_goes_up_to_all_sets_and_passes_over_tasks_without_test_images() -> None:
    """Of four sets: the share of images whose own is the first, among two, among three, among all."""
    ledger = passed_over([], [False], [False, False])
    task = np.array([0, 0, 2, 3])
    found = Predictions(
        sample=np.arange(4),
        true=task,
        predicted=task,
        task=task,
        retrieved=np.array([0, 1, 0, 0]),
        set=np.array([0, 1, 0, 0]),
        rank=np.array([0, 3, 1, 2]),
    )
    accuracies, _ = ledger.evaluate(session_of([False] * 3), found, [None] * 3, pytest.fail)
    assert accuracies == [100, None, 100, 100]
    assert ledger.coverage == [pytest.approx([50 / 3, 50, 250 / 3, 100])]
    assert ledger.right[-1] == [2, 0, 1, 1]
