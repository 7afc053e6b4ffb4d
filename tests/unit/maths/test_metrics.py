"""Worked examples and refusals of lw2g.maths.metrics."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from lw2g.maths import metrics

# Task 0 peaks after task 1 and ends lower; task 1 improves with the last task.
WORKED = [
    [90.0, 94.0, 80.0],
    [None, 70.0, 76.0],
    [None, None, 60.0],
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("faa", (80 + 76 + 60) / 3),
        ("caa", (90 + 82 + 72) / 3),
        ("ffm", ((94 - 80) + (70 - 76)) / 2),
        ("ffm_code", ((94 - 80) + 0) / 2),
        ("bwt", ((80 - 90) + (76 - 70)) / 2),
        ("pra", (80 + 76 + 60) / 3),
    ],
)
def test_worked_matrix(name: str, expected: float) -> None:
    """Each metric of a 3 x 3 matrix agrees with a calculation by hand."""
    assert getattr(metrics, name)(WORKED) == pytest.approx(expected, abs=1e-12)


def test_samples_weigh_tasks() -> None:
    """Task sizes 1, 1 and 2 weigh the last column."""
    assert metrics.faa_samples(WORKED, [1, 1, 2]) == pytest.approx((80 + 76 + 120) / 4)


def test_first_task_has_no_forgetting_and_no_run_no_accuracy() -> None:
    """What one task, or none, cannot define is None."""
    assert (metrics.faa([[50.0]]), metrics.caa([[50.0]])) == (50.0, 50.0)
    assert [metric([[50.0]]) for metric in (metrics.ffm, metrics.ffm_code, metrics.bwt)] == [None] * 3
    nothing = (metrics.faa, metrics.caa, metrics.ffm, metrics.ffm_code, metrics.bwt, metrics.pra)
    assert [metric([]) for metric in nothing] == [None] * 6
    assert metrics.faa_samples([], []) is None


def test_method_without_retrieval_has_no_pra() -> None:
    """No matrix and a matrix of None both mean that no set was chosen."""
    assert metrics.pra(None) is None
    assert metrics.pra([[None, None], [None, None]]) is None


def test_nan_stands_for_none_in_arrays() -> None:
    """A float array, which cannot hold None, may hold nan before a task was learned."""
    assert metrics.faa(torch.tensor([[90.0, 70.0], [math.nan, 80.0]]).tolist()) == pytest.approx(75)


def test_growth_and_chance_by_hand() -> None:
    """Sets {0, 1} and {2}: two tasks are right in 2 of 3 guesses, one in 1 of 3; a set counts once."""
    tasks, classes, domains = np.arange(3), [(0,), (1,), (2,)], [""] * 3
    by_hand = metrics.chance_pra({0: 5, 1: 5, 2: 8}, tasks, tasks, classes, domains)
    assert by_hand == pytest.approx(100 * (2 / 3 + 2 / 3 + 1 / 3) / 3)
    assert by_hand == metrics.chance_pra({2: 8, 0: 5, 1: 5}, tasks, tasks, classes, domains)
    assert (metrics.chance_pra({}, tasks, tasks, classes, domains), metrics.ssp({})) == (None, 0)


def test_coverage_counts_the_first_three_of_four_sets() -> None:
    """Ranks 0 to 3 are those of four sets, and the last is not covered; every task weighs the same."""
    task, rank = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 2, 3, 2, 3])
    assert metrics.coverage_3(task, rank) == (75 + 50) / 2
    assert metrics.coverage_3(task, np.full(6, 3)) == 0


def test_rand_index_of_opposite_partitions() -> None:
    """Sets that cut across the planted groups score below chance; one task alone has no score."""
    assert metrics.adjusted_rand_index({0: 0, 1: 1, 2: 0, 3: 1}, dict(enumerate("aabb"))) == pytest.approx(
        -0.5
    )
    assert metrics.adjusted_rand_index({0: 0}, {0: "a"}) is None


def test_accuracy_by_hand() -> None:
    """Two of three hits are 66.7 percent; no samples have no accuracy."""
    assert metrics.accuracy(torch.tensor([1, 2, 3]), torch.tensor([1, 2, 0])) == pytest.approx(200 / 3)
    assert metrics.accuracy(torch.tensor([]), torch.tensor([])) is None


def test_metrics_do_not_import_torch() -> None:
    """A report that reads stored numbers does not wait for torch."""
    code = "import sys, lw2g.maths.metrics; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.faa([[50.0, 40.0]]), "expected 1 entries for each of 1 tasks but got 2 for task 0"),
        (lambda: metrics.faa([[50.0, None], [None, 60.0]]), "expected percentages from task 0 on but got"),
        (lambda: metrics.faa([[50.0, 40.0], [0.0, 60.0]]), "expected None before task 1 was learned but got"),
        (lambda: metrics.faa([[101.0]]), "expected percentages"),
        (lambda: metrics.faa([[math.nan]]), "expected percentages"),
        (lambda: metrics.faa_samples([[50.0]], [0]), r"expected 1 positive sample counts but got \[0\]"),
        (lambda: metrics.faa_samples([[50.0]], [1, 2]), "expected 1 positive sample counts"),
        (lambda: metrics.accuracy(torch.ones(2), torch.ones(3)), r"expected labels \(3,\) but got \(2,\)"),
        (
            lambda: metrics.adjusted_rand_index({0: 0, 1: 0}, {0: "a"}),
            r"for every task but got none for \[1\]",
        ),
    ],
)
def test_misuse_is_refused_with_expected_and_got(call: object, message: str) -> None:
    """A transposed, incomplete or out-of-range matrix raises ValueError and says why."""
    with pytest.raises(ValueError, match=message):
        call()
