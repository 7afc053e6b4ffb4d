"""What lw2g.testing.strategies promises to property tests, its own and a stranger's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import find, given
from hypothesis import strategies as st
from torch import Tensor

from lw2g.subspace import Subspace
from lw2g.testing.strategies import (
    accuracy_matrices,
    energies,
    feature_matrices,
    gradients,
    orthonormal_bases,
    subspaces,
    task_splits,
    task_to_set_maps,
)


@given(rows=feature_matrices(dims=st.just(5), ranks=st.just(3)), basis=orthonormal_bases(dims=st.just(5)))
def test_matrices_have_the_sizes_asked_for(rows: Tensor, basis: Tensor) -> None:
    """Rows have the rank and width asked for, bases have orthonormal columns, all float64."""
    assert rows.shape[1] == basis.shape[0] == 5
    assert torch.linalg.matrix_rank(rows) <= 3
    eye = torch.eye(basis.shape[1], dtype=torch.float64)
    torch.testing.assert_close(basis.T @ basis, eye, rtol=0, atol=1e-13)
    assert rows.dtype == basis.dtype == torch.float64


@given(gradient=gradients(), energy=energies())
def test_gradients_have_no_zero_row_and_energies_are_usable(gradient: Tensor, energy: float) -> None:
    """Every row has a direction, and every energy is in (0, 1]."""
    assert bool(gradient.any(dim=1).all())
    assert 0 < energy <= 1


@given(split=task_splits(largest=3))
def test_task_splits_are_disjoint_and_cover_all_classes(split: tuple[tuple[int, ...], ...]) -> None:
    """Each class is in exactly one task, and no task is empty or too large."""
    classes = [label for task in split for label in task]
    assert sorted(classes) == list(range(len(classes)))
    assert all(1 <= len(task) <= 3 for task in split)


@given(task_to_set=task_to_set_maps(num_tasks=st.just(4)))
def test_sets_appear_in_order_of_growth(task_to_set: dict[int, int]) -> None:
    """The first task has set 0, and a set is new or already held by an earlier task."""
    assert list(task_to_set) == [0, 1, 2, 3]
    for task, held_by in task_to_set.items():
        assert held_by <= len({task_to_set[earlier] for earlier in range(task)})


@given(matrix=accuracy_matrices(num_tasks=st.just(3)))
def test_accuracy_matrices_are_upper_triangular(matrix: list[list[float | None]]) -> None:
    """An entry is None exactly before its task was learned."""
    assert [[entry is None for entry in row] for row in matrix] == [
        [i > t for t in range(3)] for i in range(3)
    ]


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
