"""What lw2g_testing.strategies promises to property tests, its own and a stranger's."""

from __future__ import annotations

import pytest
from hypothesis import find, given

from lw2g.interfaces.growth import Evidence
from lw2g_testing.strategies import (
    accuracy_matrices,
    evidences,
    subspaces,
    task_splits,
)


@given(split=task_splits(largest=3))
def test_task_splits_are_disjoint_and_cover_all_classes(split: tuple[tuple[int, ...], ...]) -> None:
    """Each class is in exactly one task, and no task is empty or too large."""
    classes = [label for task in split for label in task]
    assert sorted(classes) == list(range(len(classes)))
    assert all(1 <= len(task) <= 3 for task in split)


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
