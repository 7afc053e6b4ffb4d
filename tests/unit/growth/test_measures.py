"""Measures on samples made by hand: what their definitions say, and what they must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lw2g.errors import ContractError
from lw2g.interfaces.evidence import Candidate
from lw2g.interfaces.growth import Measurement
from lw2g.maths.subspace import Subspace
from lw2g_growth.agreement import Agreement
from lw2g_growth.energy import Energy, Novelty
from lw2g_growth.options import EnergyConfig, PlainConfig
from lw2g_growth.projection import Capacity, Projection
from lw2g_testing.made_evidence import grouped_moments, made_sample, made_site

SITE = made_site("here", 4)
TAP = SITE.activation.tap
LABELS = torch.arange(2).repeat_interleave(8)


def generator(seed=0):
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def span(*columns, dim=4):
    """The space of some axes."""
    return Subspace(basis=torch.eye(dim, dtype=torch.float64)[None, :, list(columns)], ranks=(len(columns),))


def candidate(set_id=0, *, site=SITE, **said):
    """A set with one site."""
    return Candidate(set=set_id, tasks=(0,), sites={site.name: site}, **said)


def rows_on(*scales, n=400, seed=0):
    """Rows whose axes have so much spread each."""
    return torch.randn(n, len(scales), generator=generator(seed), dtype=torch.float64) * torch.tensor(scales)


def compared(measure, old, new, *, energy=0.95, groups=8):
    """What a measure says of a set that has learned some rows, on other ones."""
    own = made_sample(
        LABELS,
        groups=groups,
        candidates=[candidate()],
        moments={TAP: grouped_moments(old, groups, 1)},
        energy=energy,
    )
    stored = {0: measure.store(own)}
    arrived = made_sample(
        LABELS,
        groups=groups,
        candidates=[candidate()],
        moments={TAP: grouped_moments(new, groups, 1)},
        energy=energy,
        stored=stored,
        task_to_set=(0,),
    )
    return measure.measure(arrived)[0]


# -- energy and novelty --------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [True, False])
def test_energy_in_the_old_span_is_none_and_outside_all(centre):
    """Rows in the span leave nothing outside, orthogonal rows everything; the null is the free share."""
    measure = Energy(EnergyConfig(centre=centre))
    old = rows_on(1.0, 1.0, 0.0, 0.0)
    inside = compared(measure, old, rows_on(2.0, 0.5, 0.0, 0.0, seed=1), energy=1.0)
    outside = compared(measure, old, rows_on(0.0, 0.0, 1.0, 3.0, seed=1), energy=1.0)
    assert inside.value == pytest.approx(0.0, abs=1e-12)
    assert outside.value == pytest.approx(1.0)
    assert (inside.null, inside.alike) == (0.5, -1)
    assert inside.own == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=10)
@given(seed=st.integers(0, 99), repeats=st.integers(1, 3))
def test_energy_knows_no_rotation_scale_or_repetition(seed, repeats):
    """Old and new rows turned together, new rows scaled or repeated: the share stays."""
    measure = Energy(EnergyConfig())
    old, new = rows_on(3.0, 1.0, 0.3, 0.1, seed=seed), rows_on(0.5, 1.0, 1.0, 0.2, seed=seed + 1)
    plain = compared(measure, old, new)
    turn, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator(seed), dtype=torch.float64))
    again = 2.5 * torch.cat([part.repeat(repeats, 1) for part in new.chunk(8)])
    moved = compared(measure, old @ turn, again @ turn)
    assert moved.value == pytest.approx(plain.value, abs=1e-6)
    assert moved.own == pytest.approx(plain.own, abs=1e-6)


def test_energy_of_the_own_task_is_what_own_says_however_small_the_sample():
    """New images of the same task leave about ``own`` outside, more than the space's energy promises."""
    scales = np.geomspace(1.0, 0.05, 24)
    site = made_site("wide", 24)
    found = []
    for seed in range(8):
        old, new = rows_on(*scales, n=64, seed=seed), rows_on(*scales, n=640, seed=100 + seed)
        measure = Energy(EnergyConfig(centre=False))
        moments = [{site.activation.tap: grouped_moments(rows, 8)} for rows in (old, new)]
        one = candidate(site=site)
        kept = measure.store(made_sample(LABELS, groups=8, candidates=[one], moments=moments[0]))
        sample = made_sample(LABELS, groups=8, candidates=[one], moments=moments[1], stored={0: kept})
        found.append(measure.measure(sample)[0])
    own, value = (float(np.mean([getattr(one, name) for one in found])) for name in ("own", "value"))
    assert value > 0.065  # the space leaves 5 % of what it was built from outside
    assert own == pytest.approx(value, rel=0.2)


def test_energy_has_the_error_that_its_images_give():
    """Over new draws of the task's images the claimed error is the spread of the share."""
    old = rows_on(3.0, 1.0, 0.3, 0.1)
    found = [
        compared(Energy(EnergyConfig()), old, rows_on(1.0, 1.0, 1.0, 1.0, n=128, seed=seed))
        for seed in range(1, 61)
    ]
    claimed = math.sqrt(np.mean([one.error**2 for one in found]))
    assert claimed == pytest.approx(np.std([one.value for one in found], ddof=1), rel=0.3)


def test_a_second_task_extends_what_is_stored():
    """After a reuse both tasks lie in the space, and own images of both are known."""
    measure = Energy(EnergyConfig(centre=False))
    first, second = rows_on(1.0, 1.0, 0.0, 0.0), rows_on(0.0, 0.0, 1.0, 0.0, seed=1)
    kept = {}
    for rows in (first, second):
        sample = made_sample(
            LABELS,
            groups=8,
            candidates=[candidate()],
            moments={TAP: grouped_moments(rows, 8)},
            energy=1.0,
            stored={0: kept} if kept else {},
        )
        kept = measure.store(sample)
    space = Subspace.from_state({name.split("|")[1]: value for name, value in kept.items()})
    assert space.rank == 3
    assert float(space.off(torch.cat([first, second])).abs().max()) < 1e-9
    assert kept[f"{TAP}|own"].shape == (3, 16)
    assert float(kept[f"{TAP}|rows"]) == 800


def test_novelty_is_zero_at_home_and_counts_standard_deviations():
    """Own images stand near 0, a task that is reconstructed better below, a shifted one above: c / sd."""
    old = rows_on(3.0, 1.0, 0.3, 0.3, n=4000)
    measure = Novelty(PlainConfig())
    home = compared(measure, old, rows_on(3.0, 1.0, 0.3, 0.3, n=4000, seed=1))
    assert abs(home.value) < 4 * home.error
    better = compared(measure, old, rows_on(3.0, 1.0, 0.1, 0.1, n=4000, seed=1))
    assert better.value < -10 * better.error
    far = rows_on(3.0, 1.0, 0.3, 0.3, n=4000, seed=1)
    shift = torch.tensor([0.0, 0.0, 0.6, 0.0], dtype=torch.float64)
    further = compared(measure, old, far + 2 * shift)
    near = compared(measure, old, far + shift)
    # a shift outside the space adds its square to every residual
    assert (further.value - home.value) / (near.value - home.value) == pytest.approx(4, rel=0.1)


def test_novelty_counts_in_the_spread_of_images_whatever_the_size_of_their_groups():
    """Own residuals 3, 1, 4 of groups of 1, 2, 5 images, by hand; the new task leaves nothing outside."""
    measure, rows = Novelty(PlainConfig()), rows_on(1.0, 1.0, 0.0, 0.0)
    said = {"candidates": [candidate()], "moments": {TAP: grouped_moments(rows, 4)}, "energy": 1.0}
    kept = dict(measure.store(made_sample(LABELS, **said)))
    kept[f"{TAP}|own"] = torch.tensor([[3.0, 2.0, 20.0], [30.0, 20.0, 80.0], [1.0, 2.0, 5.0]]).double()
    found = measure.measure(made_sample(LABELS, stored={0: kept}, **said))[0]
    mean = 25 / 8
    variance = ((3 - mean) ** 2 + 2 * (1 - mean) ** 2 + 5 * (4 - mean) ** 2) / (3 - 1)
    assert found.value == pytest.approx(-mean / variance**0.5)


@pytest.mark.parametrize("measure", [Energy(EnergyConfig()), Novelty(PlainConfig())])
def test_what_was_never_stored_says_nothing(measure):
    """A set of which nothing is known is left out; one image group has no other to be compared with."""
    rows = rows_on(1.0, 1.0, 1.0, 1.0)
    moments = {TAP: grouped_moments(rows, 4)}
    assert measure.measure(made_sample(LABELS, candidates=[candidate()], moments=moments)) == {}
    alone = made_sample(LABELS, groups=1, candidates=[candidate()], moments={TAP: grouped_moments(rows, 1)})
    kept = measure.store(alone)
    assert kept[f"{TAP}|own"].shape == (3, 0)
    found = measure.measure(made_sample(LABELS, candidates=[candidate()], moments=moments, stored={0: kept}))
    assert found[0].own is None


# -- projection and capacity ---------------------------------------------------------------------------------


def overlap(gradient, space, dim=4):
    """Projection and capacity of gradients ``[draws, groups, rows, dim]`` against a space."""
    site = made_site("here", dim)
    one = candidate(site=site, spaces={"here": space}, gradients={"here": gradient})
    sample = made_sample(LABELS, groups=gradient.shape[1], candidates=[one])
    return Projection(PlainConfig()).measure(sample)[0], Capacity(PlainConfig()).measure(sample)[0]


def test_projection_and_capacity_by_hand():
    """A gradient (3, 4) on the first axis: .6 inside, .8 outside; opposite readings of one overlap."""
    gradient = torch.tensor([3.0, 4.0, 0.0, 0.0]).expand(1, 8, 1, 4)
    p, q = overlap(gradient, span(0))
    assert (p.value, q.value) == (pytest.approx(0.6), pytest.approx(0.8))
    assert (p.alike, q.alike) == (1, -1)
    assert (p.null, q.null) == (0.5, pytest.approx(math.sqrt(0.75)))
    assert p.error == pytest.approx(0.0, abs=1e-9)
    assert q.parts == {"dimensions": 0.0}


@pytest.mark.parametrize(("q", "dimensions"), [(0.26, 3.0), (0.5, 0.0), (0.0, 5.0), (0.49, 1.0)])
def test_api_adds_dimensions_where_room_is_short(q, dimensions):
    """``ceil(10 max(1/2 - q, 0))``."""
    gradient = torch.tensor([math.sqrt(1 - q * q), q, 0.0, 0.0]).double().expand(1, 4, 1, 4)
    assert overlap(gradient, span(0))[1].parts["dimensions"] == dimensions


@settings(max_examples=20)
@given(seed=st.integers(0, 999), rank=st.integers(0, 4))
def test_squares_of_projection_and_capacity_add_up_to_one(seed, rank):
    """Site by site, whatever the gradient; an empty space leaves all room and a full one none."""
    gradient = torch.randn(2, 4, 3, 4, generator=generator(seed))
    p, q = overlap(gradient.mean(dim=(0, 1), keepdim=True).expand(1, 4, 3, 4), span(*range(rank)))
    assert p.value**2 + q.value**2 == pytest.approx(1)
    if rank in (0, 4):
        assert (p.value, q.value) == (
            pytest.approx(rank / 4, abs=1e-9),
            pytest.approx(1 - rank / 4, abs=1e-9),
        )


def test_a_random_space_of_a_quarter_of_the_dimensions_is_called_related():
    """TRGP's threshold of one half is a statement about rank: r = d/4 gives p = .5 of noise."""
    gradient = torch.randn(1, 4, 8, 64, generator=generator())
    p, _ = overlap(gradient, span(*range(16), dim=64), dim=64)
    assert p.value == pytest.approx(0.5, abs=0.05)
    assert p.null == 0.5


def test_a_zero_gradient_says_why_it_is_undefined():
    """It has no direction."""
    found = overlap(torch.zeros(1, 4, 1, 4), span(0))
    assert [(one.value, one.why) for one in found] == [(None, "gradient is zero at every site")] * 2


# -- gradient agreement --------------------------------------------------------------------------------------


def agreeing(old, new, space):
    """What gradient agreement says of mean gradients ``[groups, rows, dim]``."""
    measure = Agreement(PlainConfig())
    one = candidate(spaces={"here": space}, fitted={"here": old})
    stored = {0: measure.store(made_sample(LABELS, groups=8, candidates=[one]))}
    one = candidate(spaces={"here": space}, fitted={"here": new})
    return measure.measure(made_sample(LABELS, groups=8, candidates=[one], stored=stored))[0]


def test_gradients_agree_with_themselves_and_not_with_their_negative():
    """1, -1, 0 where they are orthogonal; only what lies in the space counts."""
    pull = torch.tensor([1.0, 2.0, 0.0, 5.0]).expand(8, 1, 4)
    across = torch.tensor([2.0, -1.0, 0.0, 5.0]).expand(8, 1, 4)
    space = span(0, 1)
    assert agreeing(pull, 3 * pull, space).value == pytest.approx(1.0)
    assert agreeing(pull, -pull, space).value == pytest.approx(-1.0)
    assert agreeing(pull, across, space).value == pytest.approx(0.0, abs=1e-9)
    found = agreeing(pull, pull, space)
    assert (found.own, found.error) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))
    assert found.parts["projection"] == pytest.approx(math.sqrt(5 / 30))
    assert agreeing(pull, pull, span(2)).why == "a gradient is zero in the space"


def test_noise_lowers_agreement_and_its_ceiling_alike():
    """With as much noise as signal the cosine of one direction is about what its reliabilities allow."""
    signal = torch.randn(1, 1, 64, generator=generator(1))

    def noisy(seed):
        return signal + 2.5 * torch.randn(8, 1, 64, generator=generator(seed))

    found = [agreeing(noisy(seed), noisy(50 + seed), span(*range(64), dim=64)) for seed in range(20)]
    value, ceiling = np.mean([one.value for one in found]), np.mean([one.own for one in found])
    assert value < 0.75
    assert ceiling == pytest.approx(value, abs=0.1)


def test_a_reused_set_stores_the_sum_of_its_tasks_gradients():
    """Each task adds its mean gradient."""
    measure, kept = Agreement(PlainConfig()), {}
    for scale in (1.0, 2.0):
        one = candidate(fitted={"here": torch.full((4, 1, 4), scale)})
        kept = measure.store(made_sample(LABELS, candidates=[one], stored={0: kept} if kept else {}))
    torch.testing.assert_close(kept["here"], torch.full((2, 1, 4), 2 * 3 / 16, dtype=torch.float64))


# -- the record of a measure ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["value", "error", "null", "own", "shuffled"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_undefined_is_none_and_never_nan(name, bad):
    """A comparison with NaN would decide in silence."""
    with pytest.raises(ValueError, match=name):
        Measurement(**{name: bad})
    with pytest.raises(ValueError, match="parts: 'x' must be finite"):
        Measurement(parts={"x": bad})


def test_activations_are_read_for_those_who_say_so():
    """A measure that does not declare moments is told."""
    from lw2g.interfaces.evidence import unread

    with pytest.raises(ContractError, match="add 'moments' to its needs"):
        unread([TAP])
