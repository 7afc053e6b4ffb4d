"""Properties of the accuracy-matrix metrics and of chance-level retrieval."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lw2g.disk.predictions import Predictions
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.learning.computed import inputs_of, right_by_class
from lw2g.learning.matrix import GrowingMatrix
from lw2g.maths.metrics import (
    accuracy,
    adjusted_rand_index,
    bwt,
    caa,
    caa_samples,
    chance_pra,
    faa,
    faa_samples,
    ffm,
    ffm_code,
    pra,
    ssp,
)
from lw2g.results import recomputed
from lw2g_testing.strategies import accuracy_matrices, task_splits, task_to_set_maps

Matrix = list[list[float | None]]
SEVERAL = accuracy_matrices(num_tasks=st.integers(2, 7))


def mean_of_old(matrix: Matrix) -> float:
    """Return the mean of the last column without the last task."""
    return sum(row[-1] for row in matrix[:-1]) / (len(matrix) - 1)


@given(matrix=accuracy_matrices())
def test_averages_lie_between_least_and_largest_entry(matrix: Matrix) -> None:
    """FAA, CAA and PRA are averages of entries, so they stay within them."""
    entries = [entry for row in matrix for entry in row if entry is not None]
    for metric in (faa, caa, pra):
        assert min(entries) - 1e-9 <= metric(matrix) <= max(entries) + 1e-9


@given(matrix=accuracy_matrices())
def test_faa_is_mean_of_last_column_and_caa_mean_of_its_history(matrix: Matrix) -> None:
    """CAA is the mean of the FAA of every earlier, unfinished run."""
    finals = [faa([row[: t + 1] for row in matrix[: t + 1]]) for t in range(len(matrix))]
    assert finals[-1] == pytest.approx(sum(row[-1] for row in matrix) / len(matrix), abs=1e-9)
    assert caa(matrix) == pytest.approx(sum(finals) / len(finals), abs=1e-9)


@given(matrix=accuracy_matrices(), split=task_splits(num_tasks=st.just(7)))
def test_faa_over_samples_counts_samples_one_by_one(
    matrix: Matrix, split: tuple[tuple[int, ...], ...]
) -> None:
    """Weighing tasks by size equals the mean over all samples; equal sizes give the FAA."""
    sizes = [len(classes) for classes in split[: len(matrix)]]
    each = [row[-1] for row, size in zip(matrix, sizes, strict=True) for _ in range(size)]
    assert faa_samples(matrix, sizes) == pytest.approx(math.fsum(each) / len(each), abs=1e-9)
    assert faa_samples(matrix, [3] * len(matrix)) == pytest.approx(faa(matrix), abs=1e-9)


@given(matrix=SEVERAL)
def test_forgetting_definitions_differ_only_in_last_column(matrix: Matrix) -> None:
    """With the last task in the maximum a term is the other one cut at 0, so it is never the smaller."""
    terms = [max(row[i:-1]) - row[-1] for i, row in enumerate(matrix[:-1])]
    assert ffm(matrix) == pytest.approx(sum(terms) / len(terms), abs=1e-9)
    assert ffm_code(matrix) == pytest.approx(sum(max(term, 0) for term in terms) / len(terms), abs=1e-9)


@given(matrix=SEVERAL)
def test_forgetting_is_at_least_negative_backward_transfer(matrix: Matrix) -> None:
    """The best accuracy so far is at least the one right after learning: FFM >= -BWT, equal for two tasks."""
    diagonal = sum(matrix[i][i] for i in range(len(matrix) - 1)) / (len(matrix) - 1)
    assert bwt(matrix) == pytest.approx(mean_of_old(matrix) - diagonal, abs=1e-9)
    assert ffm(matrix) >= -bwt(matrix) - 1e-9
    if len(matrix) == 2:
        assert ffm(matrix) == pytest.approx(-bwt(matrix), abs=1e-9)


@given(matrix=SEVERAL)
def test_forgetting_and_transfer_are_bounded(matrix: Matrix) -> None:
    """They lie between what is left in the end (all gained since) and what there was (all lost)."""
    best = sum(max(row[i:-1]) for i, row in enumerate(matrix[:-1])) / (len(matrix) - 1)
    for found in (ffm(matrix), -bwt(matrix)):
        assert -mean_of_old(matrix) - 1e-9 <= found <= best + 1e-9
    assert max(0, ffm(matrix)) - 1e-9 <= ffm_code(matrix) <= best + 1e-9


@given(matrix=SEVERAL, drop=st.floats(0, 50))
def test_lower_last_column_forgets_exactly_as_much_more(matrix: Matrix, drop: float) -> None:
    """Accuracies lost after the last task go into FFM, BWT and FAA one to one."""
    halved = [[None if entry is None else 50 + entry / 2 for entry in row] for row in matrix]
    lower = [[*row[:-1], row[-1] - drop] for row in halved]
    assert ffm(lower) - ffm(halved) == pytest.approx(drop, abs=1e-9)
    assert bwt(halved) - bwt(lower) == pytest.approx(drop, abs=1e-9)
    assert faa(halved) - faa(lower) == pytest.approx(drop, abs=1e-9)


@given(matrix=SEVERAL, data=st.data())
def test_what_was_not_measured_leaves_the_course_undefined(matrix: Matrix, data: st.DataObject) -> None:
    """Without some columns the last one says the same, and no mean or maximum passes for one over all."""
    tasks = len(matrix)
    missing = data.draw(st.sets(st.integers(0, tasks - 2), min_size=1))
    sparse = [[None if after in missing else value for after, value in enumerate(row)] for row in matrix]
    assert faa(sparse) == faa(matrix)
    assert faa_samples(sparse, [2] * tasks) == faa_samples(matrix, [2] * tasks)
    assert [metric(sparse) for metric in (caa, ffm, ffm_code, bwt)] == [None] * 4
    assert caa_samples(sparse, [2] * tasks) is None


def _chance(task_to_set: dict[int, int]) -> float | None:
    """Return chance PRA where every task has a class of its own, with one test sample."""
    count = len(task_to_set)
    tasks = np.arange(count)
    return chance_pra(task_to_set, tasks, tasks, [(task,) for task in range(count)], [""] * count)


@given(task_to_set=task_to_set_maps(), data=st.data())
def test_chance_retrieval_is_the_pra_of_guessing(task_to_set: dict[int, int], data: st.DataObject) -> None:
    """Guessing every task once for every sample has this PRA, whatever the tasks' numbers of samples."""
    count = len(task_to_set)
    samples = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    matrix = [[None] * count for _ in range(count)]
    for task, size in enumerate(samples):
        hits = [task_to_set[guess] == task_to_set[task] for _ in range(size) for guess in range(count)]
        matrix[task][task:] = [100 * sum(hits) / len(hits)] * (count - task)
    assert _chance(task_to_set) == pytest.approx(pra(matrix), abs=1e-9)


@given(task_to_set=task_to_set_maps(), shift=st.integers(1, 5))
def test_chance_retrieval_is_100_for_one_set_and_1_in_n_for_all(
    task_to_set: dict[int, int], shift: int
) -> None:
    """One set cannot be missed, one set per task is 1 in T, and set ids are only names."""
    tasks = list(task_to_set)
    assert _chance(dict.fromkeys(tasks, 0)) == pytest.approx(100)
    assert _chance({task: task for task in tasks}) == pytest.approx(100 / len(tasks))
    renamed = {task: 7 * held_by + shift for task, held_by in task_to_set.items()}
    assert _chance(renamed) == _chance(task_to_set)
    assert ssp(renamed) == ssp(task_to_set)


@given(task_to_set=task_to_set_maps())
def test_sets_never_outnumber_tasks_and_are_numbered_without_gaps(task_to_set: dict[int, int]) -> None:
    """SSP is from 1 to T and, for sets numbered as they grow, one more than the largest id."""
    assert 1 <= ssp(task_to_set) <= len(task_to_set)
    assert ssp(task_to_set) == max(task_to_set.values()) + 1


@given(task_to_set=task_to_set_maps(num_tasks=st.integers(2, 7)), data=st.data())
def test_rand_index_equals_pair_counting_and_ignores_names(
    task_to_set: dict[int, int], data: st.DataObject
) -> None:
    """The index follows from counts of task pairs that both partitions join, and 1 means equal partitions."""
    other = data.draw(task_to_set_maps(num_tasks=st.just(len(task_to_set))))
    groups = {task: f"group {other[task]}" for task in other}
    pairs = [(a, b) for a in task_to_set for b in task_to_set if a < b]
    joined = [(task_to_set[a] == task_to_set[b], other[a] == other[b]) for a, b in pairs]
    both, first = sum(x and y for x, y in joined), sum(x for x, _ in joined)
    second = sum(y for _, y in joined)
    expected = first * second / len(pairs)
    ceiling = (first + second) / 2
    index = 1.0 if ceiling == expected else (both - expected) / (ceiling - expected)
    found = adjusted_rand_index(task_to_set, groups)
    assert found == pytest.approx(index, abs=1e-9)
    assert found == pytest.approx(adjusted_rand_index(other, task_to_set), abs=1e-9)
    assert -0.5 <= found <= 1
    assert adjusted_rand_index(task_to_set, task_to_set) == 1


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_accuracy_is_share_of_hits(labels: list[int], seed: int) -> None:
    """Shuffled labels hit as often as a plain count says."""
    guesses = random.Random(seed).sample(labels, len(labels))
    hits = sum(one == other for one, other in zip(labels, guesses, strict=True))
    assert accuracy(torch.tensor(guesses), torch.tensor(labels)) == pytest.approx(100 * hits / len(labels))


@given(data=st.data(), held=st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_what_verify_recomputes_is_what_records_hold(data: st.DataObject, held: list[int]) -> None:
    """Metrics computed apart in numpy equal the record's, whatever comes again; tasks are unequal."""
    targets: dict[int, int] = {}
    classes, domains, rows = [], [], []
    for task in range(len(held)):
        raw = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
        domains.append(data.draw(st.sampled_from("ab")))
        classes.append([targets.setdefault(label, len(targets)) for label in raw])
        known = {(domains[earlier], target) for earlier in range(task) for target in classes[earlier]}
        new = [target for target in classes[task] if (domains[task], target) not in known]
        rows += [(task, target) for target in new for _ in range(target + 1)]
    stream = recomputed.RecordedStream(classes=classes, domains=domains)
    evaluations, right = [], []
    matrices = {"accuracies": GrowingMatrix(), "retrievals": GrowingMatrix()}
    for after in range(len(held)):
        task, true = np.array([row for row in rows if row[0] <= after]).T
        seen = [target for own in classes[: after + 1] for target in own]
        guess = [
            st.lists(st.sampled_from(of), min_size=len(task), max_size=len(task))
            for of in (seen, range(after + 1))
        ]
        predicted, retrieved = (np.array(data.draw(one)) for one in guess)
        nothing = np.zeros(len(task), int)
        columns = {"sample": nothing, "true": true, "predicted": predicted, "task": task}
        rank = data.draw(st.lists(st.integers(0, 3), min_size=len(task), max_size=len(task)))
        columns |= {"retrieved": retrieved, "set": np.array(held)[retrieved], "rank": np.array(rank)}
        evaluations.append(columns)
        found = Predictions(**columns)
        values = (found.accuracies(), found.retrievals(held, classes[: after + 1], domains[: after + 1]))
        for matrix, column in zip(matrices.values(), values, strict=True):
            matrix.add(column + [None] * (after + 1 - len(column)))
        right.append(right_by_class(true, predicted, classes[: after + 1]))
    inputs = inputs_of(
        evaluations[-1],
        *(matrix.values for matrix in matrices.values()),
        held,
        None,
        classes=classes,
        domains=domains,
        right=right,
    )
    recorded = {name: pytest.approx(metric.of(inputs)) for name, metric in CORE_METRICS.items()}
    anew = recomputed.matrices(evaluations, held, stream)
    assert recomputed.metrics(evaluations, held, stream, anew, sets=True) == recorded
    for matrix, again in zip(matrices.values(), anew, strict=True):
        np.testing.assert_allclose(matrix.values, again)
