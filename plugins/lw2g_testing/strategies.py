"""Hypothesis strategies for the mathematics of lw2g: small float64 tensors from seeds that hypothesis draws.

Seed 0, to which examples shrink, gives unit rows instead of random ones. ``dims``, ``heads`` and the like are
strategies themselves, so a test fixes a size with ``st.just(6)``.
"""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from lw2g.interfaces.growth import CandidateEvidence, Evidence
from lw2g.maths.subspace import Subspace
from lw2g_testing.made_evidence import measured_set

__all__ = [
    "accuracy_matrices",
    "energies",
    "evidences",
    "feature_matrices",
    "gradients",
    "orthonormal_bases",
    "space_pairs",
    "subspaces",
    "task_splits",
    "task_to_set_maps",
]

_SEEDS = st.integers(0, 2**31 - 1)
_DIMS = st.integers(2, 8) | st.sampled_from([12, 17, 33])
_HEADS = st.integers(1, 3)
_MANY_ROWS = st.integers(1, 24)
_FEW_ROWS = st.integers(1, 6)
_NUM_TASKS = st.integers(1, 7)
_NUM_SETS = st.integers(0, 6)
_ANGLES = st.integers(0, 9).map(lambda tens: 10.0 * tens) | st.floats(0.0, 90.0).map(lambda x: round(x, 3))
_EXCLUDED = "its space is full"


def _normal(seed: int, *shape: int) -> Tensor:
    if seed == 0:
        return torch.eye(shape[1], dtype=torch.float64)[torch.arange(shape[0]) % shape[1]]
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@st.composite
def feature_matrices(
    draw: DrawFn,
    *,
    dims: SearchStrategy[int] = _DIMS,
    rows: SearchStrategy[int] = _MANY_ROWS,
    ranks: SearchStrategy[int] | None = None,
) -> Tensor:
    """Draw activation rows [n, dim]: a few directions of falling energy, mostly with a mean that is not zero.

    ``ranks`` is the number of directions (the mean is one of them), by default from 1 to ``dim``.
    """
    dim = draw(dims)
    count = draw(rows)
    if ranks is None:
        ranks = st.integers(1, dim)
    rank = min(draw(ranks), dim)
    decay = draw(st.sampled_from([1.0, 0.7, 0.4]))
    seed = draw(_SEEDS)
    orthonormal = torch.linalg.qr(_normal(seed, dim, rank)).Q
    directions = orthonormal * decay ** torch.arange(rank)
    mean = torch.zeros(rank, dtype=torch.float64)
    mean[0] = draw(st.sampled_from([0.0, 1.0, 5.0]))
    # other numbers than those of the directions; seed 0 has unit rows for both
    seed_of_rows = seed + 1 if seed else 0
    coordinates = _normal(seed_of_rows, count, rank) + mean
    features: Tensor = coordinates @ directions.T
    return features


@st.composite
def orthonormal_bases(
    draw: DrawFn, *, dims: SearchStrategy[int] = _DIMS, ranks: SearchStrategy[int] | None = None
) -> Tensor:
    """Draw orthonormal columns [dim, k], with k from 0 to ``dim`` unless ``ranks`` is given."""
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
    ranks = tuple(part.shape[1] for part in columns)
    basis = torch.zeros(len(columns), width, max(ranks), dtype=torch.float64)
    for head, part in enumerate(columns):
        basis[head, :, : ranks[head]] = part
    return Subspace(basis=basis, ranks=ranks)


@st.composite
def space_pairs(draw: DrawFn, *, dims: SearchStrategy[int] = _DIMS) -> tuple[Subspace, Subspace]:
    """Draw two subspaces of one head and width; the second may be the first, turned by as little as 1e-9."""
    width = st.just(draw(dims))
    a = draw(orthonormal_bases(dims=width))
    b = draw(orthonormal_bases(dims=width))
    if draw(st.booleans()):
        turned = a + 10.0 ** draw(st.integers(-9, -1)) * b[:, : a.shape[1]].sum(dim=1, keepdim=True)
        b = torch.linalg.qr(turned).Q
    first = Subspace(basis=a[None], ranks=(a.shape[1],))
    second = Subspace(basis=b[None], ranks=(b.shape[1],))
    return first, second


@st.composite
def gradients(
    draw: DrawFn, *, dims: SearchStrategy[int] = _DIMS, rows: SearchStrategy[int] = _FEW_ROWS
) -> Tensor:
    """Draw a gradient [rows, dim] of any scale without a zero row."""
    shape = (draw(rows), draw(dims))
    return _normal(draw(_SEEDS), *shape) * 10.0 ** draw(st.integers(-12, 6))


def energies() -> SearchStrategy[float]:
    """Draw an energy threshold in (0, 1], often a usual one."""
    return st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]) | st.floats(0.01, 1.0)


@st.composite
def accuracy_matrices(
    draw: DrawFn, *, num_tasks: SearchStrategy[int] = _NUM_TASKS
) -> list[list[float | None]]:
    """Draw a square accuracy matrix in percent: entry [i][t] is None for i > t."""
    tasks = draw(num_tasks)
    percent = st.floats(0.0, 100.0)
    matrix: list[list[float | None]] = []
    for i in range(tasks):
        row: list[float | None] = [None] * i
        row += [draw(percent) for _ in range(i, tasks)]
        matrix.append(row)
    return matrix


@st.composite
def task_splits(
    draw: DrawFn, *, num_tasks: SearchStrategy[int] = _NUM_TASKS, largest: int = 5
) -> tuple[tuple[int, ...], ...]:
    """Draw the classes of each task: disjoint, 1 to ``largest``, together 0 .. num_classes - 1."""
    sizes = [draw(st.integers(1, largest)) for _ in range(draw(num_tasks))]
    order = draw(st.permutations(range(sum(sizes))))
    tasks = []
    first = 0
    for size in sizes:
        tasks.append(tuple(order[first : first + size]))
        first += size
    return tuple(tasks)


@st.composite
def task_to_set_maps(draw: DrawFn, *, num_tasks: SearchStrategy[int] = _NUM_TASKS) -> dict[int, int]:
    """Draw a map task -> set as growth makes it: each task reuses a live set or gets the next one."""
    result: dict[int, int] = {}
    for task in range(draw(num_tasks)):
        result[task] = draw(st.integers(0, len(set(result.values()))))
    return result


@st.composite
def evidences(
    draw: DrawFn,
    *,
    num_sets: SearchStrategy[int] = _NUM_SETS,
    measured: bool = False,
) -> Evidence:
    """Draw the evidence for a task: the hindrance of each live set, or why there is none.

    The value is ``hfc - hfc_pre`` of its parts; ids ascend and may have gaps. Ties are likely, because half
    of the angles are multiples of ten degrees. With ``measured=True`` no set is excluded or unmeasured: every
    set has both angles and a standard error.
    """
    count = draw(num_sets)
    ids = sorted(draw(st.sets(st.integers(0, 2 * count), min_size=count, max_size=count)))
    candidates = tuple(draw(_candidates(set_id, measured)) for set_id in ids)
    # every live set holds a task, and some hold several
    shared = draw(st.lists(st.sampled_from(ids), max_size=3)) if ids else []
    return Evidence(task=count + len(shared), candidates=candidates, task_to_set=(*ids, *shared))


@st.composite
def _candidates(draw: DrawFn, set_id: int, measured: bool) -> CandidateEvidence:
    """Draw a candidate; with ``measured`` it has all numbers, else it may be excluded or unmeasured."""
    rank = draw(st.integers(0, 32))
    errors: SearchStrategy[float | None] = st.floats(0.0, 5.0)
    if not measured:
        errors = st.none() | errors
        # half of the draws are measured
        kind = draw(st.sampled_from(["measured", "measured", "excluded", "unmeasured"]))
        if kind == "excluded":
            return CandidateEvidence(set=set_id, rank=rank, excluded=_EXCLUDED)
        if kind == "unmeasured":
            return CandidateEvidence(set=set_id, rank=rank)
    hfc = draw(_ANGLES)
    hfc_pre = draw(_ANGLES)
    error = draw(errors)
    return measured_set(
        set_id, hfc - hfc_pre, error, rank=rank, parts={"hfc": hfc, "hfc_pre": hfc_pre}, unit="degrees"
    )
