"""Properties of second moments and representation subspaces."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from bits import moment_of
from lw2g.interfaces.memory import SpaceOptions
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace, image, union
from lw2g_testing.strategies import energies, feature_matrices, gradients, orthonormal_bases, subspaces

WIDTH = 6
ROWS = feature_matrices(dims=st.just(WIDTH))
HEADS = st.sampled_from([1, 2, 3])


def projector(space: Subspace) -> Tensor:
    """Build the dim x dim projector that the library never builds."""
    blocks = [one[:, :rank] @ one[:, :rank].T for one, rank in zip(space.basis, space.ranks, strict=True)]
    return torch.block_diag(*blocks)


def head_energies(rows: Tensor, heads: int) -> list[Tensor]:
    """Return squared singular values of each head's data matrix, descending."""
    return [torch.linalg.svdvals(part).square() for part in rows.chunk(heads, dim=-1)]


def captured_per_head(space: Subspace, rows: Tensor) -> list[float]:
    """Return the share of energy inside the space, head by head, from projected rows; 1 of no energy."""
    inside = space.on(rows).chunk(space.heads, dim=-1)
    parts = zip(inside, rows.chunk(space.heads, dim=-1), strict=True)
    return [float(one.square().sum() / all_.square().sum()) if all_.any() else 1.0 for one, all_ in parts]


def assert_orthonormal(space: Subspace) -> None:
    """Check the columns of each head and the zero padding."""
    for one, rank in zip(space.basis, space.ranks, strict=True):
        eye = torch.eye(rank, dtype=torch.float64)
        torch.testing.assert_close(one[:, :rank].T @ one[:, :rank], eye, rtol=0, atol=1e-12)
        assert not one[:, rank:].any()


# Second moments


@given(rows=ROWS, heads=HEADS, cut=st.integers(0, 24), seed=st.integers(0, 99))
def test_order_and_batching_of_rows_do_not_matter(rows, heads, cut, seed):
    """Rows shuffled, split in two batches and shaped otherwise give the same moment."""
    shuffled = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    other = SecondMoment(WIDTH, heads)
    other.update(shuffled[:cut])
    other.update(shuffled[cut:].reshape(1, -1, WIDTH))
    whole = moment_of(rows, heads)
    torch.testing.assert_close(other.matrix, whole.matrix, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(other.row_sum, whole.row_sum, rtol=1e-12, atol=1e-12)
    assert other.count == whole.count == len(rows)


@given(rows=ROWS, heads=HEADS)
def test_moment_is_sum_of_outer_products_per_head(rows, heads):
    """Block h is the sum of outer products of columns h * width onwards, and the trace is the energy."""
    moment = moment_of(rows, heads)
    for head, part in enumerate(rows.chunk(heads, dim=-1)):
        outer = sum(torch.outer(row, row) for row in part)
        torch.testing.assert_close(moment.matrix[head], outer, rtol=1e-12, atol=1e-12)
    assert abs(moment.trace() - float(rows.square().sum())) <= 1e-12 * (1 + moment.trace())


@given(first=ROWS, second=ROWS, heads=HEADS)
def test_merge_is_the_moment_of_all_rows(first, second, heads):
    """A merged moment is that of both sets of rows together, and neither operand changes."""
    one, two = moment_of(first, heads), moment_of(second, heads)
    before = one.matrix.clone()
    both = one.merge(two)
    whole = moment_of(torch.cat([first, second]), heads)
    torch.testing.assert_close(both.matrix, whole.matrix)
    torch.testing.assert_close(both.row_sum, whole.row_sum)
    assert both.count == len(first) + len(second)
    assert torch.equal(one.matrix, before)


@given(rows=ROWS, heads=HEADS)
def test_centred_is_moment_of_rows_about_their_mean(rows, heads):
    """The rank-one correction equals centring the rows first; a centred moment stays as it is."""
    centred = moment_of(rows, heads).centred()
    direct = moment_of(rows - rows.mean(dim=0), heads)
    torch.testing.assert_close(centred.matrix, direct.matrix, rtol=0, atol=1e-11)
    assert torch.equal(centred.centred().matrix, centred.matrix)


# Projections


@given(space=subspaces(), seed=st.integers(0, 99))
def test_on_equals_least_squares(space, seed):
    """The part inside is the least-squares fit of each head by its basis."""
    rows = torch.randn(3, space.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    inside = space.on(rows)
    width = space.dim // space.heads
    for head, (one, rank) in enumerate(zip(space.basis, space.ranks, strict=True)):
        columns = slice(head * width, (head + 1) * width)
        expected = torch.zeros(3, width, dtype=torch.float64)
        if rank:
            fit = torch.linalg.lstsq(one[:, :rank], rows[:, columns].T).solution
            expected = (one[:, :rank] @ fit).T
        torch.testing.assert_close(inside[:, columns], expected, rtol=0, atol=1e-11)


@given(space=subspaces(widths=st.just(4)), data=st.data())
def test_projection_is_idempotent_and_splits_orthogonally(space, data):
    """On and off are idempotent and annihilate each other; both they and their squared norms add up."""
    rows = data.draw(gradients(dims=st.just(space.dim)))
    inside, outside = space.on(rows), space.off(rows)
    size = float(torch.linalg.vector_norm(rows))
    for value, expected in [
        (space.on(inside), inside),
        (space.off(outside), outside),
        (space.on(outside), torch.zeros_like(rows)),
        (inside + outside, rows),
    ]:
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-14 * size)
    squares = inside.square().sum() + outside.square().sum()
    torch.testing.assert_close(squares, rows.square().sum(), rtol=1e-12, atol=0)


@given(space=subspaces(widths=st.just(3)), data=st.data())
def test_projection_is_symmetric_and_linear(space, data):
    """<on x, y> = <x, on y>, and on commutes with sums and scaling."""
    one = st.just(1)
    x, y = (data.draw(gradients(dims=st.just(space.dim), rows=one)) for _ in range(2))
    x, y = x / x.norm(), y / y.norm()
    torch.testing.assert_close((space.on(x) * y).sum(), (x * space.on(y)).sum(), rtol=0, atol=1e-14)
    torch.testing.assert_close(space.on(2 * x - y), 2 * space.on(x) - space.on(y), rtol=0, atol=1e-13)


@given(space=subspaces(widths=st.just(4), heads=st.just(1)), rotation=st.integers(0, 99))
def test_projection_does_not_depend_on_choice_of_basis(space, rotation):
    """Turning the columns among themselves leaves the projector as it is."""
    assume(space.rank > 1)
    normal = torch.randn(
        space.rank, space.rank, dtype=torch.float64, generator=torch.Generator().manual_seed(rotation)
    )
    turned = Subspace(basis=space.basis @ torch.linalg.qr(normal).Q, ranks=space.ranks)
    torch.testing.assert_close(projector(turned), projector(space), rtol=0, atol=1e-13)


@given(space=subspaces(widths=st.just(4)), rows=st.integers(0, 3))
def test_projection_keeps_shape_and_dtype_of_rows(space, rows):
    """Single rows, batches, no rows at all and float32 come back as they went in."""
    batch = torch.ones(rows, 2, space.dim, dtype=torch.float32)
    assert space.on(batch).shape == space.off(batch).shape == batch.shape
    assert space.on(batch).dtype == torch.float32
    single = space.on(torch.ones(space.dim, dtype=torch.float64))
    torch.testing.assert_close(single, projector(space).sum(dim=1), rtol=0, atol=1e-13)


@given(space=subspaces(widths=st.just(4)), data=st.data())
def test_captured_is_energy_of_projected_rows(space, data):
    """The captured share equals the squared norm of the rows inside over that of all, within [0, 1]."""
    rows = data.draw(feature_matrices(dims=st.just(space.dim)))
    moment = moment_of(rows, space.heads)
    expected = float(space.on(rows).square().sum() / rows.square().sum())
    assert abs(space.captured(moment) - expected) <= 1e-12
    assert 0 <= space.captured(moment) <= 1


# Build


@given(rows=ROWS, heads=HEADS, energy=energies())
def test_build_keeps_least_rank_that_reaches_energy_in_each_head(rows, heads, energy):
    """Each head's share reaches the energy, and with one direction less it would not."""
    space = Subspace.build(moment_of(rows, heads), energy)
    assert_orthonormal(space)
    for share in captured_per_head(space, rows):
        assert share >= energy - 1e-12
    for values, rank in zip(head_energies(rows, heads), space.ranks, strict=True):
        # a head without any activation needs no direction
        assert not rank or float(values[: rank - 1].sum() / values.sum()) < energy
        assert bool(rank) == bool(values.sum() > 0)


@given(rows=ROWS, energy=st.floats(0.05, 0.999))
def test_build_spans_leading_singular_vectors(rows, energy):
    """The space equals the span of the leading right singular vectors of the rows."""
    space = Subspace.build(moment_of(rows), energy)
    _, sigma, right = torch.linalg.svd(rows, full_matrices=True)
    padded = torch.cat([sigma, torch.zeros(WIDTH)])
    assume(padded[space.rank - 1] - padded[space.rank] > 1e-3 * sigma[0])
    expected = right[: space.rank].T @ right[: space.rank]
    torch.testing.assert_close(projector(space), expected, rtol=0, atol=1e-8)


@given(data=st.data(), heads=HEADS, rank=st.integers(1, WIDTH))
def test_full_energy_reaches_rank_of_data_and_not_more(data, heads, rank):
    """With energy 1 the rank of each head is the rank of its data, and the rows lie inside."""
    rows = data.draw(feature_matrices(dims=st.just(WIDTH), ranks=st.just(rank)))
    space = Subspace.build(moment_of(rows, heads), 1.0)
    expected = tuple(int(torch.linalg.matrix_rank(part, rtol=1e-6)) for part in rows.chunk(heads, dim=-1))
    assert space.ranks == expected
    torch.testing.assert_close(space.on(rows), rows, rtol=0, atol=1e-6 * float(rows.abs().max()))


@given(rows=ROWS, energy=energies(), heads=HEADS)
def test_power_four_weighs_squared_eigenvalues(rows, energy, heads):
    """Rank for power 4 is the least whose share of fourth powers of singular values is enough."""
    assume(energy < 1)
    space = Subspace.build(moment_of(rows, heads), energy, power=4)
    for values, rank in zip(head_energies(rows, heads), space.ranks, strict=True):
        shares = (values.square().cumsum(0) / values.square().sum()).tolist()
        assume(all(abs(share - energy) > 1e-9 for share in shares))
        assert rank == next(count for count, share in enumerate(shares, 1) if share >= energy)
        assert rank <= max(Subspace.build(moment_of(rows, heads), energy).ranks)


@given(rows=ROWS, energy=energies(), heads=HEADS, power=st.sampled_from([2, 4]))
def test_rule_below_stops_one_short(rows, energy, heads, power):
    """Rule "below" has one direction less than "reach" in every head that has any, and its first ones."""
    reach = Subspace.build(moment_of(rows, heads), energy, power=power)
    below = Subspace.build(moment_of(rows, heads), energy, power=power, rule="below")
    assert below.ranks == tuple(max(rank - 1, 0) for rank in reach.ranks)
    torch.testing.assert_close(reach.on(projector(below)), projector(below), rtol=0, atol=1e-12)


@given(rows=ROWS, energy=energies(), scale=st.integers(-30, 30), power=st.sampled_from([2, 4]))
def test_space_does_not_know_scale_of_activations(rows, energy, scale, power):
    """Rows times a power of two give the same space bit for bit."""
    space = Subspace.build(moment_of(rows), energy, power=power)
    scaled = Subspace.build(moment_of(rows * 2.0**scale), energy, power=power)
    assert scaled.ranks == space.ranks
    assert torch.equal(scaled.basis, space.basis)


@given(rows=ROWS, rotation=orthonormal_bases(dims=st.just(WIDTH), ranks=st.just(WIDTH)), energy=energies())
def test_rotating_features_rotates_space(rows, rotation, energy):
    """Rows turned by R span the turned space: same rank, same part of every turned gradient."""
    assume(not any(abs(float(share) - energy) < 1e-9 for share in shares_of(rows)))
    space = Subspace.build(moment_of(rows), energy)
    turned = Subspace.build(moment_of(rows @ rotation), energy)
    assert turned.rank == space.rank
    values = head_energies(rows, 1)[0]
    padded = torch.cat([values, torch.zeros(WIDTH)])
    assume(padded[space.rank - 1] - padded[space.rank] > 1e-4 * padded[0])
    expected = rotation.T @ projector(space) @ rotation
    torch.testing.assert_close(projector(turned), expected, rtol=0, atol=1e-8)


def shares_of(rows: Tensor) -> Tensor:
    """Return cumulative energy shares, the last ones (1 up to rounding) left out."""
    values = head_energies(rows, 1)[0]
    shares = values.cumsum(0) / values.sum()
    return shares[shares < 1 - 1e-9]


# Extend


@given(old=ROWS, new=ROWS, heads=HEADS, energy=energies(), power=st.sampled_from([2, 4]))
def test_extension_reaches_energy_and_keeps_old_columns(old, new, heads, energy, power):
    """Old columns stay bit for bit and first, all are orthonormal, and the new energy is reached per head."""
    first = Subspace.build(moment_of(old, heads), energy, power=power)
    both = first.extend(moment_of(new, heads), energy, power=power)
    assert_orthonormal(both)
    for head, (before, after) in enumerate(zip(first.ranks, both.ranks, strict=True)):
        assert before <= after <= WIDTH // heads
        assert torch.equal(both.basis[head, :, :before], first.basis[head, :, :before])
    if power == 2:
        assert all(share >= energy - 1e-12 for share in captured_per_head(both, new))


@given(old=ROWS, new=ROWS, heads=HEADS, energy=st.floats(0.05, 0.999))
def test_extension_appends_least_number_of_residual_directions(old, new, heads, energy):
    """The count is the least h for which the old space and h singular directions off it are enough."""
    first = Subspace.build(moment_of(old, heads), 0.8)
    both = first.extend(moment_of(new, heads), energy)
    off = first.off(new).chunk(heads, dim=-1)
    for head, part in enumerate(new.chunk(heads, dim=-1)):
        total = float(part.square().sum())
        if not total:  # nothing reaches this head
            assert both.ranks[head] == first.ranks[head]
            continue
        values = torch.linalg.svdvals(off[head]).square()
        reached = [(total - float(values[h:].sum())) / total for h in range(len(values) + 1)]
        assume(all(abs(share - energy) > 1e-9 for share in reached))
        least = next(h for h, share in enumerate(reached) if share >= energy)
        assert both.ranks[head] - first.ranks[head] == least


@given(old=ROWS, heads=HEADS, energy=energies(), seed=st.integers(0, 99), power=st.sampled_from([2, 4]))
def test_data_inside_space_adds_nothing(old, heads, energy, seed, power):
    """Extending by rows inside the space, or by the same data once more, gives the very same basis."""
    space = Subspace.build(moment_of(old, heads), energy, power=power)
    again = space.extend(moment_of(old, heads), energy, power=power)
    assert torch.equal(again.basis, space.basis)
    mix = torch.randn(5, len(old), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    inside = moment_of(space.on(mix @ old), heads)
    assert torch.equal(space.extend(inside, 1.0, power=power).basis, space.basis)


@given(parts=st.lists(ROWS, min_size=5, max_size=8), heads=HEADS, energy=energies())
def test_many_extensions_stay_orthonormal_and_within_width(parts, heads, energy):
    """After many extensions the columns are orthonormal, ranks never fell and never passed the width."""
    space = Subspace.empty(WIDTH, heads)
    for rows in parts:
        grown = space.extend(moment_of(rows, heads), energy)
        assert all(b <= a <= WIDTH // heads for b, a in zip(space.ranks, grown.ranks, strict=True))
        assert_orthonormal(grown)
        space = grown


@given(old=ROWS, new=ROWS, heads=HEADS, energy=st.floats(0.05, 0.999), power=st.sampled_from([2, 4]))
def test_rule_below_holds_for_new_spaces_alone(old, new, heads, energy, power):
    """Under "below" a new space is one direction short, and what extends it reaches the energy."""
    options = SpaceOptions(energy=energy, power=power, rule="below")
    first = options.build(moment_of(old, heads))
    reached = Subspace.build(moment_of(old, heads), energy, power=power)
    # a head without any energy has no direction to leave out
    assert first.ranks == tuple(max(rank - 1, 0) for rank in reached.ranks)
    both = options.extend(first, moment_of(new, heads))
    assert torch.equal(both.basis, first.extend(moment_of(new, heads), energy, power=power).basis)
    if power == 2:
        assert all(share >= energy - 1e-12 for share in captured_per_head(both, new))


@given(old=ROWS, new=ROWS, energy=st.floats(0.05, 0.999))
def test_one_sided_residual_extends_as_released(old, new, energy):
    """With residual "pc" the old columns and the leading left singular vectors of P C reach the energy of C.

    The loop below is InfLoRA's: energies are squared singular values of C and of P C.
    """
    first = Subspace.build(moment_of(old), 0.8, power=4)
    both = first.extend(moment_of(new), energy, power=4, residual="pc")
    second_moment = moment_of(new).matrix[0]
    left, values, _ = torch.linalg.svd(first.off(second_moment.mT).mT)
    total = float(second_moment.square().sum())
    captured, count = total - float(values.square().sum()), 0
    while captured < energy * total and count < WIDTH - first.rank:
        assume(abs(captured / total - energy) > 1e-9)
        captured, count = captured + float(values[count] ** 2), count + 1
    assume(abs(captured / total - energy) > 1e-9)
    assert both.rank == first.rank + count >= first.extend(moment_of(new), energy, power=4).rank
    assert torch.equal(both.basis[..., : first.rank], first.basis)
    padded = torch.cat([values, torch.zeros(1, dtype=values.dtype)])
    assume(count == 0 or padded[count - 1] - padded[count] > 1e-4 * padded[0])
    appended = left[:, :count] @ left[:, :count].mT
    torch.testing.assert_close(projector(both), projector(first) + appended, rtol=0, atol=1e-8)


# Per head, unions and images


@given(rows=ROWS, seed=st.integers(0, 99))
def test_per_head_space_of_old_rows_annihilates_each_heads_logits(rows, seed):
    """Off the per-head space of old queries a key change moves no head's logit, not only their sum."""
    space = Subspace.build(moment_of(rows, 3), 1.0)
    change = torch.randn(2, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    kept = space.off(change)
    logits = torch.einsum("nhw,khw->hnk", rows.unflatten(1, (3, -1)), kept.unflatten(1, (3, -1)))
    assert float(logits.abs().max()) <= 1e-6 * float(rows.abs().max())


@given(rows=ROWS, energy=energies())
def test_one_head_is_joint_form(rows, energy):
    """A head's space of a per-head build equals the joint build of that head's columns alone."""
    per_head = Subspace.build(moment_of(rows, 2), energy)
    for head, part in enumerate(rows.chunk(2, dim=-1)):
        alone = Subspace.build(moment_of(part.contiguous()), energy)
        assert per_head.ranks[head] == alone.rank
        block = projector(per_head)[head * 3 : head * 3 + 3, head * 3 : head * 3 + 3]
        torch.testing.assert_close(block, projector(alone), rtol=0, atol=1e-9)


@given(data=st.data(), one=HEADS, two=HEADS)
def test_union_holds_its_parts_and_nothing_else(data, one, two):
    """Each part lies in the union, and its rank is the rank of all columns side by side."""
    parts = [
        data.draw(subspaces(widths=st.just(WIDTH // heads), heads=st.just(heads))) for heads in (one, two)
    ]
    both = union(*parts)
    assert_orthonormal(both)
    assert both.heads == (one if one == two else 1)
    for part in parts:
        torch.testing.assert_close(both.on(projector(part)), projector(part), rtol=0, atol=1e-7)
    together = torch.cat([projector(part) for part in parts], dim=1)
    assert both.rank == int(torch.linalg.matrix_rank(together, rtol=1e-6))


@given(space=subspaces(), seed=st.integers(0, 99))
def test_union_with_itself_and_with_empty_changes_nothing(space, seed):
    """Union is idempotent, and the empty space is neutral."""
    for other in (space, Subspace.empty(space.dim, space.heads)):
        both = union(space, other)
        assert both.ranks == space.ranks
        torch.testing.assert_close(projector(both), projector(space), rtol=0, atol=1e-12)


@given(space=subspaces(widths=st.just(3)), outputs=st.integers(1, 5), seed=st.integers(0, 99))
def test_image_holds_derived_activations(space, outputs, seed):
    """D x lies in the image for every x in the space, and the rank is that of D B."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(outputs, space.dim, dtype=torch.float64, generator=generator)
    derived = image(matrix, space)
    assert_orthonormal(derived)
    assert (derived.dim, derived.heads) == (outputs, 1)
    assert derived.rank == int(torch.linalg.matrix_rank(matrix @ projector(space)))
    inside = space.on(torch.randn(4, space.dim, dtype=torch.float64, generator=generator)) @ matrix.T
    torch.testing.assert_close(derived.on(inside), inside, rtol=0, atol=1e-10)


@given(space=subspaces())
def test_state_restores_space(space):
    """A space comes back from its state with the same bits."""
    restored = Subspace.from_state(space.state())
    assert torch.equal(restored.basis, space.basis)
    assert restored.ranks == space.ranks
    assert (restored.is_empty, restored.is_full) == (space.rank == 0, space.rank == space.dim)
