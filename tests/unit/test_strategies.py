"""What lw2g.testing.strategies promises to property tests, its own and a stranger's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import find, given
from hypothesis import strategies as st

from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.growth import Evidence
from lw2g.interfaces.pool import Pool
from lw2g.testing.strategies import (
    accuracy_matrices,
    evidences,
    pools,
    second_moments,
    subspaces,
    task_splits,
)


@given(split=task_splits(largest=3))
def test_task_splits_are_disjoint_and_cover_all_classes(split: tuple[tuple[int, ...], ...]) -> None:
    """Each class is in exactly one task, and no task is empty or too large."""
    classes = [label for task in split for label in task]
    assert sorted(classes) == list(range(len(classes)))
    assert all(1 <= len(task) <= 3 for task in split)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda space: space.is_empty,
        lambda space: space.is_full,
        lambda space: len(set(space.ranks)) > 1,
    ],
    ids=["empty", "full", "ragged"],
)
def test_subspaces_include_the_limits(wanted: object) -> None:
    """Empty, full and ragged spaces are among those drawn."""
    found: Subspace = find(subspaces(), wanted)
    assert wanted(found)


@given(moment=second_moments(widths=st.just(4), heads=st.just(3), rows=st.just(5)))
def test_second_moments_are_those_of_rows(moment: SecondMoment) -> None:
    """Each head's block is symmetric without negative eigenvalues, of as many rows as asked for."""
    assert (moment.dim, moment.heads, moment.count) == (12, 3, 5)
    torch.testing.assert_close(moment.matrix, moment.matrix.mT, rtol=0, atol=1e-9)
    values = torch.linalg.eigvalsh(moment.matrix)
    assert bool((values >= -1e-9 * values.abs().max()).all())


@given(pool=pools(num_tasks=st.just(5), dims=st.just(3)))
def test_pools_are_what_growth_makes(pool: Pool) -> None:
    """Every task has a live set, every set a task, all sets one shape; versions count a set's tasks."""
    assert len(pool.task_to_set) == 5
    assert set(pool.task_to_set) == set(pool.ids)
    assert len({item.prompt.shape for item in pool.sets}) == 1
    assert pool[0].prompt.shape[1] == 3
    assert all(pool.version(set_id) == len(pool.tasks_of(set_id)) for set_id in pool.ids)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda pool: len(pool) == len(pool.task_to_set) > 1,
        lambda pool: len(pool) == 1 < len(pool.task_to_set),
        lambda pool: pool.task_to_set != sorted(pool.task_to_set),
    ],
    ids=["always", "one", "returns to an old set"],
)
def test_pools_are_varied(wanted: object) -> None:
    """Pools that only grew, only reused, and went back to an old set are among those drawn."""
    assert wanted(find(pools(), wanted))


def z_of(candidate):
    """Return Z, None where it is not measured."""
    return candidate.measures["hindrance"].value if candidate.measures else None


@given(evidence=evidences())
def test_evidence_is_legal(evidence: Evidence) -> None:
    """Ids ascend, sets do not outnumber tasks, and a set has all of its angles or none of them."""
    ids = [candidate.set for candidate in evidence.candidates]
    assert ids == sorted(set(ids))
    assert len(ids) <= evidence.task
    for candidate in evidence.candidates:
        if candidate.measures:
            assert candidate.excluded is None
            parts = candidate.measures["hindrance"].parts
            assert 0 <= parts["hfc"] <= 90
            assert 0 <= parts["hfc_pre"] <= 90
            assert candidate.measures["hindrance"].value == parts["hfc"] - parts["hfc_pre"]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda evidence: not evidence.candidates,
        lambda evidence: evidence.candidates and not evidence.eligible,
        lambda evidence: any(not one.measures for one in evidence.eligible),
        lambda evidence: 0 < len({z_of(one) for one in evidence.eligible}) < len(evidence.eligible),
        lambda evidence: any(
            one.measures and one.measures["hindrance"].error is None for one in evidence.eligible
        ),
        lambda evidence: any(one.set > index for index, one in enumerate(evidence.candidates)),
    ],
    ids=["no set", "all excluded", "unmeasured", "ties", "unknown error", "gaps"],
)
def test_evidence_is_varied(wanted: object) -> None:
    """The corners of a policy's input are among what is drawn."""
    assert wanted(find(evidences(), wanted))


@pytest.mark.parametrize(
    "wanted",
    [
        lambda matrix: len(matrix) == 1,
        lambda matrix: any(entry == 100.0 for row in matrix for entry in row),
        lambda matrix: len(matrix) > 2 and matrix[0][1] > matrix[0][0],
    ],
    ids=["one task", "perfect", "backward transfer"],
)
def test_accuracy_matrices_are_varied(wanted: object) -> None:
    """A single task, a perfect one, and one that later tasks improve are among those drawn."""
    found = find(accuracy_matrices(), wanted)
    assert wanted(found)
