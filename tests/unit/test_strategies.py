"""What lw2g.testing.strategies promises to property tests, its own and a stranger's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import find, given
from hypothesis import strategies as st

from lw2g.geometry.moments import SecondMoment
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


CORNERS = [
    ("a space without directions", subspaces, lambda space: space.is_empty),
    ("a whole space", subspaces, lambda space: space.is_full),
    ("heads of several ranks", subspaces, lambda space: len(set(space.ranks)) > 1),
    ("a pool that only grew", pools, lambda pool: len(pool) == len(pool.task_to_set) > 1),
    ("a pool that only reused", pools, lambda pool: len(pool) == 1 < len(pool.task_to_set)),
    ("back to an old set", pools, lambda pool: pool.task_to_set != sorted(pool.task_to_set)),
    ("no set", evidences, lambda given: not given.candidates),
    ("all excluded", evidences, lambda given: given.candidates and not given.eligible),
    ("a set that is not measured", evidences, lambda given: any(not one.measures for one in given.eligible)),
    (
        "ties",
        evidences,
        lambda given: 0 < len({z_of(one) for one in given.eligible}) < len(given.eligible),
    ),
    (
        "an unknown error",
        evidences,
        lambda given: any(one.measures and one.measures["hindrance"].error is None for one in given.eligible),
    ),
    ("gaps", evidences, lambda given: any(one.set > place for place, one in enumerate(given.candidates))),
    ("one task", accuracy_matrices, lambda matrix: len(matrix) == 1),
    ("a perfect one", accuracy_matrices, lambda matrix: any(100.0 in row for row in matrix)),
    (
        "one that later tasks improve",
        accuracy_matrices,
        lambda matrix: len(matrix) > 2 and matrix[0][1] > matrix[0][0],
    ),
]


@pytest.mark.parametrize(
    ("strategy", "corner"), [row[1:] for row in CORNERS], ids=[row[0] for row in CORNERS]
)
def test_corners_are_among_what_is_drawn(strategy: object, corner: object) -> None:
    """What code forgets most easily comes up: limits, ties, gaps, and what nobody measured."""
    assert corner(find(strategy(), corner))
