"""Properties of HFC, and its nulls."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bits import moment_of
from lw2g.interfaces.evidence import Candidate
from lw2g.interfaces.growth import Measurement
from lw2g.maths.hindrance import Reduce, energy_null_hfc, hfc, null_hfc, over_sites, site_angles
from lw2g.maths.subspace import Subspace, captured_shares, union
from lw2g_growth.hindrance_measure import Hindrance
from lw2g_growth.options import PlainConfig
from lw2g_testing.made_evidence import grouped_moments, made_sample, made_site
from lw2g_testing.strategies import (
    energies,
    feature_matrices,
    gradients,
    orthonormal_bases,
    space_pairs,
    subspaces,
)

WIDTH = 6
ROWS = feature_matrices(dims=st.just(WIDTH))
GRADIENTS = gradients(dims=st.just(WIDTH))
HEADS = st.sampled_from([1, 2, 3])
REDUCES = st.sampled_from(["mean-cos", "mean-angle", "global"])


@st.composite
def sites(draw: st.DrawFn, max_size: int = 4) -> tuple[list[Tensor], list[Subspace]]:
    """Draw one gradient and one space per site."""
    spaces = draw(st.lists(subspaces(widths=st.integers(2, 4)), min_size=1, max_size=max_size))
    return [draw(gradients(dims=st.just(space.dim))) for space in spaces], spaces


def cosines(gradient: Tensor, space: Subspace) -> Tensor:
    """Return the cosine of each row with its outside part, by a least-squares fit on the joint basis."""
    parts = zip(space.basis, space.ranks, strict=True)
    joint = torch.block_diag(*[one[:, :rank] for one, rank in parts])
    fit = (
        joint @ torch.linalg.lstsq(joint, gradient.T).solution if space.rank else torch.zeros_like(gradient.T)
    )
    return torch.linalg.vector_norm(gradient - fit.T, dim=1) / torch.linalg.vector_norm(gradient, dim=1)


@given(drawn=sites())
def test_mean_cos_is_arccos_of_mean_over_sites_of_mean_over_rows(drawn):
    """Rows are averaged as cosines first, then sites with equal weight, with one arccos at the end."""
    gradient_list, spaces = drawn
    found = hfc(gradient_list, spaces)
    site_means = [float(cosines(g, s).mean()) for g, s in zip(gradient_list, spaces, strict=True)]
    assert found.degrees is not None
    assert math.cos(math.radians(found.degrees)) == pytest.approx(statistics.mean(site_means), abs=1e-12)
    for angle, mean in zip(found.per_site, site_means, strict=True):
        assert math.cos(math.radians(angle)) == pytest.approx(mean, abs=1e-12)


@given(drawn=sites())
def test_mean_angle_and_global_average_as_they_say(drawn):
    """Reduce "mean-angle" averages angles twice; "global" averages cosines of whole sites."""
    gradient_list, spaces = drawn
    pairs = list(zip(gradient_list, spaces, strict=True))
    angles = [float(torch.rad2deg(torch.arccos(cosines(g, s).clamp(max=1))).mean()) for g, s in pairs]
    assert hfc(gradient_list, spaces, reduce="mean-angle").degrees == pytest.approx(
        statistics.mean(angles), abs=1e-5
    )
    whole = [float(s.off(g).norm() / g.norm()) for g, s in pairs]
    found = hfc(gradient_list, spaces, reduce="global").degrees
    assert math.cos(math.radians(found)) == pytest.approx(statistics.mean(whole), abs=1e-12)


@given(drawn=sites(), reduce=REDUCES)
def test_angle_is_between_0_and_90(drawn, reduce):
    """HFC and each site's angle lie in [0, 90], and the whole lies between the least and the largest site."""
    found = hfc(*drawn, reduce=reduce)
    assert all(0 <= angle <= 90 + 1e-12 for angle in found.per_site)
    assert min(found.per_site) - 1e-9 <= found.degrees <= max(found.per_site) + 1e-9


@given(drawn=sites(), scale=st.integers(-200, 200), reduce=REDUCES)
def test_positive_scaling_changes_nothing(drawn, scale, reduce):
    """A positive factor per site, however tiny or huge, leaves every angle as it is."""
    gradient_list, spaces = drawn
    scaled = [g * 10.0 ** (scale if site % 2 else -scale) for site, g in enumerate(gradient_list)]
    before, after = hfc(gradient_list, spaces, reduce=reduce), hfc(scaled, spaces, reduce=reduce)
    assert after.degrees == pytest.approx(before.degrees, abs=1e-10)
    assert after.per_site == pytest.approx(before.per_site, abs=1e-10)


@given(gradient=GRADIENTS, heads=HEADS, reduce=REDUCES)
def test_empty_space_gives_0_and_full_space_90(gradient, heads, reduce):
    """Nothing protected hinders nothing; everything protected leaves nothing."""
    empty = Subspace.empty(WIDTH, heads)
    eye = torch.eye(WIDTH // heads, dtype=torch.float64).expand(heads, -1, -1)
    full = Subspace(basis=eye, ranks=(WIDTH // heads,) * heads)
    assert hfc([gradient], [empty], reduce=reduce).degrees == 0
    assert hfc([gradient], [full], reduce=reduce).degrees == pytest.approx(90, abs=1e-12)


@given(space=subspaces(), data=st.data(), reduce=REDUCES)
def test_gradient_outside_gives_0_and_inside_90(space, data, reduce):
    """The limits are reached to rounding: no arccos of 1 - eps, which would be off by 1e-6 degrees."""
    gradient = data.draw(gradients(dims=st.just(space.dim)))
    gradient = gradient / gradient.abs().max()
    inside, outside = space.on(gradient), space.off(gradient)
    if float(torch.linalg.vector_norm(outside, dim=1).min()) > 1e-2:
        assert hfc([outside], [space], reduce=reduce).degrees == pytest.approx(0, abs=1e-10)
    if float(torch.linalg.vector_norm(inside, dim=1).min()) > 1e-2:
        assert hfc([inside], [space], reduce=reduce).degrees == pytest.approx(90, abs=1e-10)


@given(exponent=st.floats(-12, -1), near=st.sampled_from([0.0, 90.0]))
def test_small_angles_keep_their_digits(exponent, near):
    """An angle of 1e-12 rad, or one as close to 90 degrees, comes back with relative precision."""
    tilt = 10.0**exponent
    axis = Subspace(basis=torch.tensor([[[1.0], [0.0]]], dtype=torch.float64), ranks=(1,))
    rows = torch.tensor([[math.sin(tilt), math.cos(tilt)]], dtype=torch.float64)
    found = hfc([rows if near == 0 else rows.flip(1)], [axis]).degrees
    distance = math.radians(abs(found - near))
    assert distance == pytest.approx(tilt, rel=1e-9 if near == 0 else 1e-2, abs=0 if near == 0 else 1e-15)


@given(old=ROWS, new=ROWS, heads=HEADS, energy=energies(), gradient=GRADIENTS, reduce=REDUCES)
def test_theorem_1_more_protection_never_hinders_less(old, new, heads, energy, gradient, reduce):
    """For nested spaces the smaller complement gives the larger or an equal HFC (Theorem 1 with >=)."""
    small = Subspace.build(moment_of(old, heads), 0.6)
    large = small.extend(moment_of(new, heads), energy)
    less, more = (hfc([gradient], [space], reduce=reduce).degrees for space in (small, large))
    assert more >= less - 1e-10


@given(old=ROWS, new=ROWS, gradient=GRADIENTS)
def test_theorem_1_equality_without_component_along_added_directions(old, new, gradient):
    """A gradient without part in the appended directions is hindered equally by both spaces."""
    small = Subspace.build(moment_of(old), 0.6)
    large = small.extend(moment_of(new), 0.95)
    blind = gradient - (large.on(gradient) - small.on(gradient))
    if float(torch.linalg.vector_norm(blind, dim=1).min()) > 1e-3 * float(gradient.abs().max()):
        less, more = (hfc([blind], [space]).degrees for space in (small, large))
        assert more == pytest.approx(less, abs=1e-9)


@given(
    space=subspaces(widths=st.just(WIDTH), heads=st.just(1)),
    gradient=GRADIENTS,
    rotation=orthonormal_bases(dims=st.just(WIDTH), ranks=st.just(WIDTH)),
    reduce=REDUCES,
)
def test_turning_gradient_and_space_together_changes_nothing(space, gradient, rotation, reduce):
    """HFC is a statement of geometry, not of coordinates."""
    turned = Subspace(basis=rotation.T @ space.basis, ranks=space.ranks)
    before = hfc([gradient], [space], reduce=reduce).degrees
    assert hfc([gradient @ rotation], [turned], reduce=reduce).degrees == pytest.approx(before, abs=1e-9)


@given(drawn=sites(), data=st.data(), reduce=REDUCES)
def test_zero_rows_and_zero_sites_are_left_out(drawn, data, reduce):
    """Zero rows change no angle; a site of zero rows reports None and weighs nothing."""
    gradient_list, spaces = drawn
    plain = hfc(gradient_list, spaces, reduce=reduce)
    padded = [torch.cat([torch.zeros(2, g.shape[1], dtype=g.dtype), g]) for g in gradient_list]
    padded.append(torch.zeros(3, 4, dtype=torch.float32))
    found = hfc(padded, [*spaces, data.draw(subspaces(widths=st.just(4), heads=st.just(1)))], reduce=reduce)
    assert found.degrees == pytest.approx(plain.degrees, abs=1e-12)
    assert found.per_site[:-1] == pytest.approx(plain.per_site, abs=1e-12)
    assert found.per_site[-1] is None


@given(space=subspaces(), data=st.data())
def test_measuring_leaves_gradient_and_graph_alone(space, data):
    """The gradient keeps its values, and a leaf that requires grad gets none."""
    gradient = data.draw(gradients(dims=st.just(space.dim)))
    leaf = gradient.clone().requires_grad_()
    hfc([leaf], [space])
    assert torch.equal(leaf.detach(), gradient)
    assert leaf.grad is None


# Union, complement, and Z


@given(pair=space_pairs(), data=st.data(), reduce=REDUCES)
def test_a_union_hinders_no_less_than_either_space(pair, data, reduce):
    """More is protected; with a space that it holds already, a union hinders as before."""
    one, other = pair
    gradient = [data.draw(gradients(dims=st.just(one.dim)))]
    both = union(one, other)
    apart = [hfc(gradient, [space], reduce=reduce).degrees for space in pair]
    together = hfc(gradient, [both], reduce=reduce).degrees
    assert together >= max(apart) - 1e-5
    assert hfc(gradient, [union(both, one)], reduce=reduce).degrees == pytest.approx(together, abs=1e-5)


@given(pair=space_pairs(), data=st.data())
def test_angles_with_a_space_and_its_complement_add_up_to_90(pair, data):
    """Squared cosines of a row add up to 1, and so the angles of rows, of their mean, and of whole sites."""
    basis = pair[1].basis[0]
    rest = torch.linalg.qr(basis, mode="complete").Q[:, basis.shape[1] :]
    complement = Subspace(basis=rest[None], ranks=(rest.shape[1],))
    rows = data.draw(gradients(dims=st.just(len(basis))))

    def sum_of_angles(gradient: Tensor, reduce: Reduce) -> float:
        return sum(hfc([gradient], [space], reduce=reduce).degrees for space in (pair[1], complement))

    for gradient, reduce in ((rows, "mean-angle"), (rows, "global"), (rows[:1], "mean-cos")):
        assert sum_of_angles(gradient, reduce) == pytest.approx(90, abs=1e-6)
    # the mean of cosines is concave in the squares: several rows reach 90 degrees only where they are alike
    assert sum_of_angles(rows, "mean-cos") >= 90 - 1e-6


@given(
    width=st.sampled_from([2, 5, 12]),
    data=st.data(),
    literal=st.booleans(),
    energy=st.sampled_from([0.5, 0.9]),
)
def test_z_turns_its_sign_when_old_and_pretrained_space_change_places(width, data, literal, energy):
    """Where all groups have the same activations, so that halves have the same space: its null does, too."""
    one, other = (data.draw(feature_matrices(dims=st.just(width), rows=st.integers(3, 9))) for _ in range(2))
    site = made_site("here", width)
    gradient = torch.randn(
        2, 4, 3, width, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    )

    def measured(old: Tensor, pretrained: Tensor) -> Measurement:
        space = Subspace.build(moment_of(old), energy)
        candidate = Candidate(
            set=0, tasks=(0,), sites={"here": site}, spaces={"here": space}, gradients={"here": gradient}
        )
        moments = {site.activation.tap: grouped_moments(pretrained.repeat(4, 1), 4)}
        sample = made_sample(
            torch.arange(8), candidates=[candidate], moments=moments, energy=energy, literal=literal
        )
        return Hindrance(PlainConfig()).measure(sample)[0]

    there, back = measured(one, other), measured(other, one)
    assert there.value == pytest.approx(-back.value, abs=1e-6)
    assert there.null == pytest.approx(-back.null, abs=1e-9)
    assert there.parts["hfc"] == pytest.approx(back.parts["hfc_pre"], abs=1e-6)
    assert there.error == pytest.approx(back.error, abs=1e-6)
    assert there.replicates == pytest.approx([-one for one in back.replicates], abs=1e-6)


# Nulls


@given(ranks=st.lists(st.integers(0, 64), min_size=1, max_size=5))
def test_null_grows_with_rank_and_is_close_to_rank_law(ranks):
    """One more direction gives a larger null, and it lies just above arccos of the mean of sqrt(1 - r/d)."""
    null = null_hfc([(rank, 64) for rank in ranks])
    law = math.degrees(math.acos(statistics.mean(math.sqrt(1 - rank / 64) for rank in ranks)))
    assert law - 1e-9 <= null <= law + 2.0
    more = null_hfc([(min(rank + 1, 64), 64) for rank in ranks])
    assert more > null or ranks == [64] * len(ranks)


@given(rows=ROWS, heads=HEADS, energy=energies(), seed=st.integers(0, 99))
def test_energy_null_is_root_mean_square_cosine_of_random_combinations(rows, heads, energy, seed):
    """One site's null squared cosine is the share of new energy outside the space."""
    space = Subspace.build(moment_of(rows, heads), energy)
    new = torch.randn(9, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    null = energy_null_hfc(captured_shares([(space, moment_of(new, heads))]))
    outside = float(space.off(new).square().sum() / new.square().sum())
    assert math.cos(math.radians(null)) ** 2 == pytest.approx(outside, abs=1e-12)


@given(rows=ROWS, energy=st.floats(0.05, 1.0))
def test_energy_null_of_own_data_is_bounded_by_energy(rows, energy):
    """A space of energy e holds at least the share e of the data it was built from."""
    moment = moment_of(rows)
    null = energy_null_hfc(captured_shares([(Subspace.build(moment, energy), moment)]))
    assert null >= math.degrees(math.asin(energy**0.5)) - 1e-5


# Many at once


@given(data=st.data(), reduce=REDUCES)
def test_many_at_once_are_each_alone(data, reduce):
    """Of a table of sums each has its own angle, against one space for all or each column against its own."""
    spaces = data.draw(st.lists(subspaces(widths=st.just(2), heads=st.just(2)), min_size=2, max_size=3))
    count = len(spaces)
    generator = torch.Generator().manual_seed(3)
    groups = torch.randn(2, 5, 3, 4, generator=generator).double()
    groups[0, :, 1] = 0
    groups[1] = 0
    weights = torch.randint(0, 2, (count, 2, 5), generator=generator).double()
    weights[:, :, 0] = 1
    one, own = spaces[0], Subspace.side_by_side(spaces)
    all_one = site_angles(groups, weights.flatten(0, 1)[None], one, reduce=reduce)[:, :, 0]
    same = all_one.unflatten(1, (count, 2)).transpose(1, 2)
    angles = torch.stack([site_angles(groups, weights, own, reduce=reduce), same])
    found = torch.cat([over_sites(angles, reduce=reduce)[None], angles]).rad2deg()
    for m, w, n in itertools.product(range(2), range(2), range(count)):
        total = torch.einsum("g,grd->rd", weights[n, w], groups[m])
        alone = hfc([total] * 2, [spaces[n], one], reduce=reduce)
        wanted = [math.nan if angle is None else angle for angle in (alone.degrees, *alone.per_site)]
        assert found[:, m, w, n].tolist() == pytest.approx(wanted, abs=1e-9, nan_ok=True)
    assert [part.ranks for part in own.parts(count)] == [space.ranks for space in spaces]
