"""Worked examples, limits and refusals of lw2g.maths.subspace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bits import moment_of
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace, image, union


def axes(dim: int, *kept: int) -> Subspace:
    """Return the joint span of some coordinate axes."""
    return Subspace(basis=torch.eye(dim, dtype=torch.float64)[None, :, list(kept)], ranks=(len(kept),))


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal float64 values."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# Energies 16, 9, 4 and 1 of 30: cumulative shares .533, .833, .967 and 1.
STAIRS = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("energy", "power", "rule", "rank"),
    [
        (1e-9, 2, "reach", 1),
        (16 / 30, 2, "reach", 1),
        (0.54, 2, "reach", 2),
        (0.9, 2, "reach", 3),
        (1.0, 2, "reach", 4),
        (1e-9, 2, "below", 0),
        (16 / 30, 2, "below", 0),
        (0.9, 2, "below", 2),
        (1.0, 2, "below", 3),
        (0.7, 4, "reach", 1),  # fourth powers 256, 81, 16, 1 of 354: shares .723, .952, .997, 1
        (0.95, 4, "reach", 2),
        (0.96, 4, "reach", 3),
        (0.96, 4, "below", 2),
        (1.0, 4, "reach", 4),
    ],
)
def test_rank_of_known_spectrum(energy: float, power: int, rule: str, rank: int) -> None:
    """Rank follows from shares that can be checked by hand, ties included."""
    assert Subspace.build(moment_of(STAIRS), energy, power=power, rule=rule).rank == rank


def test_extension_of_known_spectrum() -> None:
    """With axis 0 known, 9 of the other 14 parts of energy bring 25 of 30."""
    known = axes(4, 0)
    assert known.extend(moment_of(STAIRS), 16 / 30).rank == 1
    grown = known.extend(moment_of(STAIRS), 25 / 30)
    assert grown.rank == 2
    torch.testing.assert_close(grown.basis[0].abs(), torch.eye(4, dtype=torch.float64)[:, :2])


def test_extension_for_power_four_counts_what_residual_leaves_over() -> None:
    """Off a tilted direction the residual eigenvalues are squared, not those of the squared moment."""
    tilt = torch.tensor([[[0.6], [0.8]]], dtype=torch.float64)
    rows = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    # P C P has the one eigenvalue .8^2 * 4 + .6^2 * 1 = 2.92; left over 2.92^2 of 4^2 + 1^2 = 17.
    covered = 1 - 2.92**2 / 17
    tilted = Subspace(basis=tilt, ranks=(1,))
    assert tilted.extend(moment_of(rows), covered - 1e-6, power=4).rank == 1
    assert tilted.extend(moment_of(rows), covered + 1e-6, power=4).rank == 2


def test_no_rows_give_empty_space_and_extension_by_them_changes_nothing() -> None:
    """A zero moment has no direction, in one head as in all."""
    assert Subspace.build(SecondMoment(6, 2), 1.0).is_empty
    one_head = torch.cat([normal(9, 3), torch.zeros(9, 3)], dim=1)
    assert Subspace.build(moment_of(one_head, 2), 1.0).ranks == (3, 0)
    assert axes(6, 0).extend(SecondMoment(6), 1.0).rank == 1
    assert axes(6, 0).captured(SecondMoment(6)) == 0


def test_rank_of_float32_rows_is_not_inflated_by_their_rounding() -> None:
    """Rows of rank 5, rounded to float32, give rank 5 for energy 1."""
    rows = (normal(500, 5) @ normal(5, 64, seed=1)).float()
    assert Subspace.build(moment_of(rows), 1.0).rank == 5


def test_direction_at_rounding_level_is_not_kept() -> None:
    """Energy 1 drops a direction with 20 rounding units of the energy and keeps one with 1000."""
    for units, rank in [(20, 1), (1000, 2)]:
        weak = (units * torch.finfo(torch.float64).eps) ** 0.5
        assert (
            Subspace.build(moment_of(torch.diag(torch.tensor([1.0, weak], dtype=torch.float64))), 1.0).rank
            == rank
        )


def test_weak_new_directions_stay_orthogonal_to_old_ones() -> None:
    """Directions of relative energy 1e-11, whose eigenvectors lean on the old columns, are set upright."""
    old = Subspace.build(moment_of(normal(20, 3) @ normal(3, 6, seed=1)), 1.0)
    rows = old.on(normal(20, 6, seed=2)) + 3e-6 * old.off(normal(20, 6, seed=3))
    both = old.extend(moment_of(rows), 1.0)
    assert both.is_full
    gram = both.basis[0].T @ both.basis[0]
    torch.testing.assert_close(gram, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-14)


def test_rank_never_passes_width_even_for_a_rounded_basis() -> None:
    """A full space with coarsely rounded columns spans all; what rounding leaves over is no direction."""
    full = Subspace.build(moment_of(normal(30, 6)), 1.0).to(dtype=torch.bfloat16)
    assert full.extend(moment_of(normal(30, 6, seed=1)), 1.0).ranks == (6,)


def test_union_of_mixed_heads_is_joint() -> None:
    """A per-head and a joint space unite in R^dim."""
    per_head = Subspace.build(moment_of(normal(1, 6), 2), 1.0)
    diagonal = Subspace.build(moment_of(normal(1, 6, seed=5)), 1.0)
    both = union(per_head, diagonal)
    assert (both.heads, both.ranks) == (1, (3,))
    torch.testing.assert_close(both.on(diagonal.basis[0].T), diagonal.basis[0].T)


def test_union_counts_nearly_equal_directions_once() -> None:
    """A tilt of 1e-9 rad is the same direction, one of 1e-6 rad is not."""
    for tilt, rank in [(1e-9, 1), (1e-6, 2)]:
        tilted = Subspace(basis=torch.tensor([[[1.0], [tilt]]], dtype=torch.float64), ranks=(1,))
        assert union(axes(2, 0), tilted).rank == rank


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_image_does_not_depend_on_the_scale_of_its_map(scale: float) -> None:
    """Which directions count is relative to the largest: a small map has an image all the same."""
    plane = Subspace(basis=torch.eye(4, dtype=torch.float64)[None, :, :3], ranks=(3,))
    matrix = torch.diag(torch.tensor([1.0, 1e-3, 1e-12, 1.0], dtype=torch.float64)) * scale
    assert image(matrix, plane).rank == 3
    assert image(matrix.float(), plane).rank == 2  # 1e-12 is rounding in float32


def test_union_takes_the_coarser_precision_for_what_is_one_direction() -> None:
    """A float32 space and its float64 origin are one space; the union is in float64."""
    fine = Subspace(basis=torch.linalg.qr(normal(6, 2)).Q[None], ranks=(2,))
    both = union(fine.to(dtype=torch.float32), fine)
    assert (both.rank, both.basis.dtype) == (2, torch.float64)


def test_image_of_collapsed_or_zero_map() -> None:
    """The image drops what the map takes to zero, down to the empty space."""
    space = axes(4, 0, 1)
    assert image(torch.eye(4)[1:], space).rank == 1
    assert image(torch.zeros(3, 4), space).is_empty
    rounded = (normal(5, 2) @ normal(2, 4, seed=1)).float()
    assert image(rounded, axes(4, 0, 1, 2, 3)).rank == 2
    assert image(torch.eye(4)[:2], Subspace.empty(4, 2)).is_empty


@pytest.mark.parametrize("ranks", [(0, 0), (2, 0), (1, 2), (2, 4), (4, 4)])
def test_a_space_and_its_complement_are_all(ranks: tuple[int, int]) -> None:
    """Head by head the two projections add up to the identity and the bases are orthonormal together."""
    rows = torch.zeros(12, 8, dtype=torch.float64)
    for head, rank in enumerate(ranks):
        columns = slice(4 * head, 4 * head + 4)
        rows[:, columns] = normal(12, rank, seed=head) @ normal(rank, 4, seed=head + 5)
    space = Subspace.build(moment_of(rows, 2), 1.0)
    rest = space.complement()
    assert (space.ranks, rest.ranks) == (ranks, tuple(4 - rank for rank in ranks))
    probe = normal(6, 8, seed=9)
    torch.testing.assert_close(rest.on(probe), space.off(probe), rtol=0, atol=1e-14)
    gram = rest.basis.mT @ rest.basis
    for head, rank in enumerate(rest.ranks):
        torch.testing.assert_close(
            gram[head, :rank, :rank], torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-14
        )
    again = rest.complement()
    torch.testing.assert_close(again.on(probe), space.on(probe), rtol=0, atol=1e-14)


def test_altered_state_is_refused() -> None:
    """A stored basis that is not orthonormal, or has entries in the padding, does not load."""
    state = Subspace.build(moment_of(STAIRS, 2), 0.5).state()
    with pytest.raises(ValueError, match="expected an orthonormal basis"):
        Subspace.from_state({**state, "basis": state["basis"] * 1.1})
    padded = torch.eye(2, dtype=torch.float64).expand(2, -1, -1)
    with pytest.raises(ValueError, match="expected an orthonormal basis"):
        Subspace.from_state({"basis": padded, "ranks": torch.tensor([2, 1])})


def test_cast_copy_projects_in_float32() -> None:
    """A cast copy keeps the space; the original keeps its dtype."""
    space = axes(4, 2)
    cast = space.to(dtype=torch.float32)
    assert (cast.basis.dtype, space.basis.dtype) == (torch.float32, torch.float64)
    assert cast.on(torch.arange(4.0)).tolist() == [0.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Subspace.empty(0), "expected heads that divide dim but got dim 0"),
        (lambda: axes(4, 0).on(torch.ones(3)), r"expected floating point rows \[\.\.\., 4\]"),
        (lambda: axes(4, 0).captured(SecondMoment(4, 2)), "dim 4 in 1 heads but got 4 in 2"),
        (lambda: axes(4, 0).extend(SecondMoment(6), 0.5), "dim 4 in 1 heads but got 6 in 1"),
        (lambda: Subspace.build(moment_of(STAIRS), 0.0), r"expected an energy in \(0, 1\] but got 0.0"),
        (lambda: Subspace.build(moment_of(STAIRS), 1.5), r"expected an energy in \(0, 1\] but got 1.5"),
        (lambda: Subspace.build(moment_of(STAIRS), float("nan")), "but got nan"),
        (lambda: Subspace.build(moment_of(STAIRS), 0.5, power=3), "expected power 2 or 4 but got 3"),
        (
            lambda: Subspace.build(moment_of(STAIRS), 0.5, rule="above"),
            "expected rule 'reach' or 'below' but got 'above'",
        ),
        (
            lambda: axes(4, 0).extend(moment_of(STAIRS), 0.5, residual="cp"),
            "expected residual 'pcp' or 'pc' but got 'cp'",
        ),
        (lambda: Subspace.build(moment_of(STAIRS * float("inf")), 0.5), "expected a finite second moment"),
        (lambda: union(), "expected spaces of one width"),
        (lambda: union(axes(4, 0), axes(3, 0)), r"but got \[4, 3\]"),
        (lambda: image(torch.ones(2, 3), axes(4, 0)), r"expected a floating point matrix \[r, 4\]"),
        (
            lambda: Subspace(basis=torch.eye(3), ranks=(3,)),
            r"expected a floating point basis \[heads, width, rank\]",
        ),
        (
            lambda: Subspace(basis=torch.eye(3)[None], ranks=(2,)),
            r"expected 1 ranks from 0 to 3 but got \(2,\)",
        ),
        (lambda: Subspace(basis=torch.eye(3)[None], ranks=(3, 3)), "expected 1 ranks"),
    ],
)
def test_misuse_is_refused_with_expected_and_got(call: object, message: str) -> None:
    """Shapes, counts and choices that do not fit raise ValueError and say why."""
    with pytest.raises(ValueError, match=message):
        call()
