"""Hypothesis strategies for the mathematics of lw2g: small float64 tensors, seeds drawn through hypothesis.

Each strategy is named after the plural of what it makes. ``dims``, ``heads`` and the like are strategies of
their own, so a test fixes a size with ``st.just(6)``.
"""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from lw2g.subspace import Subspace

__all__ = [
    "accuracy_matrices",
    "energies",
    "feature_matrices",
    "gradients",
    "orthonormal_bases",
    "subspaces",
    "task_splits",
    "task_to_set_maps",
]

_SEEDS = st.integers(0, 2**31 - 1)
_DIMS = st.integers(2, 8)
_HEADS = st.integers(1, 3)
_MANY_ROWS = st.integers(1, 24)
_FEW_ROWS = st.integers(1, 6)
_NUM_TASKS = st.integers(1, 7)


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@st.composite
def feature_matrices(
    draw: DrawFn,
    *,
    dims: SearchStrategy[int] = _DIMS,
    rows: SearchStrategy[int] = _MANY_ROWS,
    ranks: SearchStrategy[int] | None = None,
) -> Tensor:
    """Draw activation rows [n, dim]: a few directions of falling energy about a mean that is not zero.

    ``ranks`` is the number of directions (the mean is one of them), by default anything from 1 to ``dim``.
    """
    dim = draw(dims)
    count = draw(rows)
    rank = min(draw(st.integers(1, dim) if ranks is None else ranks), dim)
    decay = draw(st.sampled_from([1.0, 0.7, 0.4]))
    seed = draw(_SEEDS)
    directions: Tensor = torch.linalg.qr(_normal(seed, dim, rank)).Q * decay ** torch.arange(rank)
    offset = torch.zeros(rank, dtype=torch.float64)
    offset[0] = draw(st.sampled_from([0.0, 1.0, 5.0]))
    rows_drawn: Tensor = (_normal(seed + 1, count, rank) + offset) @ directions.T
    return rows_drawn


@st.composite
def orthonormal_bases(
    draw: DrawFn, *, dims: SearchStrategy[int] = _DIMS, ranks: SearchStrategy[int] | None = None
) -> Tensor:
    """Draw orthonormal columns [dim, k], with k from 0 to ``dim`` unless ``ranks`` says otherwise."""
    dim = draw(dims)
    rank = min(draw(st.integers(0, dim) if ranks is None else ranks), dim)
    square: Tensor = torch.linalg.qr(_normal(draw(_SEEDS), dim, dim)).Q
    return square[:, :rank]


@st.composite
def subspaces(
    draw: DrawFn,
    *,
    widths: SearchStrategy[int] = _DIMS,
    heads: SearchStrategy[int] = _HEADS,
) -> Subspace:
    """Draw a subspace of ``heads`` heads, ``widths`` wide, each with a rank from 0 to its width."""
    width = draw(widths)
    columns = [draw(orthonormal_bases(dims=st.just(width))) for _ in range(draw(heads))]
    ranks = tuple(one.shape[1] for one in columns)
    basis = torch.zeros(len(columns), width, max(ranks), dtype=torch.float64)
    for head, one in enumerate(columns):
        basis[head, :, : ranks[head]] = one
    return Subspace(basis=basis, ranks=ranks)


@st.composite
def gradients(
    draw: DrawFn, *, dims: SearchStrategy[int] = _DIMS, rows: SearchStrategy[int] = _FEW_ROWS
) -> Tensor:
    """Draw a gradient [rows, dim] of any scale without a zero row."""
    shape = (draw(rows), draw(dims))
    return _normal(draw(_SEEDS), *shape) * 10.0 ** draw(st.integers(-12, 6))


def energies() -> SearchStrategy[float]:
    """Draw an energy threshold in (0, 1], the usual ones among them."""
    return st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]) | st.floats(0.01, 1.0)


@st.composite
def accuracy_matrices(
    draw: DrawFn, *, num_tasks: SearchStrategy[int] = _NUM_TASKS
) -> list[list[float | None]]:
    """Draw a square accuracy matrix in percent: entry [i][t] is None for i > t."""
    tasks = draw(num_tasks)
    percent = st.floats(0.0, 100.0)
    return [[draw(percent) if i <= t else None for t in range(tasks)] for i in range(tasks)]


@st.composite
def task_splits(
    draw: DrawFn, *, num_tasks: SearchStrategy[int] = _NUM_TASKS, largest: int = 5
) -> tuple[tuple[int, ...], ...]:
    """Draw the classes of each task: disjoint, 1 to ``largest``, together 0 .. num_classes - 1."""
    sizes = [draw(st.integers(1, largest)) for _ in range(draw(num_tasks))]
    order = draw(st.permutations(range(sum(sizes))))
    starts = [sum(sizes[:task]) for task in range(len(sizes))]
    return tuple(tuple(order[start : start + size]) for start, size in zip(starts, sizes, strict=True))


@st.composite
def task_to_set_maps(draw: DrawFn, *, num_tasks: SearchStrategy[int] = _NUM_TASKS) -> dict[int, int]:
    """Draw a map task -> set as growth makes it: each task joins a set that exists or starts the next one."""
    result: dict[int, int] = {}
    for task in range(draw(num_tasks)):
        result[task] = draw(st.integers(0, len(set(result.values()))))
    return result
