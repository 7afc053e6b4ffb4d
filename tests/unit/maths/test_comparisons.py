"""Comparisons of groups: which are disjoint, and what their spread says of an error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lw2g.interfaces.growth import error_of_difference
from lw2g.maths.comparisons import (
    Comparisons,
    Spread,
    half_samples,
    spread_over_halves,
)


def plan_of(groups: int, make=Comparisons.disjoint_halves) -> Comparisons:
    """A plan with a fixed generator."""
    return make(groups, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("groups", [2, 5, 16, 20])
def test_gradients_meet_spaces_of_other_groups(groups: int) -> None:
    """Whatever carries weight compares disjoint subsets; Z uses every group on both sides alike often."""
    plan = plan_of(groups)
    weight = plan.whole + plan.halves.sum(dim=(0, 1))
    gradient = plan.subsets[plan.gradient]  # [width, subsets, groups]
    assert not (gradient * plan.subsets).sum(dim=-1)[weight > 0].any()
    used = torch.einsum("ws,wsg->g", plan.whole, gradient)
    assert torch.equal(used, torch.einsum("ws,sg->g", plan.whole, plan.subsets))
    assert used.min() == used.max() == plan.whole.sum() / 2


@pytest.mark.parametrize("make", [Comparisons.disjoint_halves, Comparisons.in_sample])
def test_a_plan_draws_from_its_generator_alone(make) -> None:
    """The same seed gives the same comparisons, another seed others, and torch's generator stays put."""
    before = torch.get_rng_state()
    one, again = plan_of(16, make), plan_of(16, make)
    other = make(16, torch.Generator().manual_seed(1))
    assert torch.equal(one.subsets, again.subsets)
    assert torch.equal(one.halves, again.halves)
    assert one.subsets.shape != other.subsets.shape or not torch.equal(one.subsets, other.subsets)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("make", [Comparisons.disjoint_halves, Comparisons.in_sample])
def test_the_halves_behind_the_error_are_disjoint(make) -> None:
    """Of a pair of half-samples each uses its own half of the groups, for gradients and spaces."""
    plan = plan_of(16, make)
    assert plan.halves.shape[1] == (24 if make == Comparisons.disjoint_halves else 8)
    gradient = plan.subsets[plan.gradient]
    used = torch.einsum("hnws,wsg->hng", plan.halves, gradient)
    used = used + torch.einsum("hnws,sg->hng", plan.halves, plan.subsets)
    assert not (used[0] * used[1]).any()
    assert ((used[0] + used[1]) > 0).all()
    assert len({tuple(row.tolist()) for row in used[0] > 0}) > 6


@pytest.mark.parametrize("make", [Comparisons.disjoint_halves, Comparisons.in_sample])
@pytest.mark.parametrize("groups", [16, 18])
def test_the_variance_of_a_mean_is_that_of_a_mean(make, groups: int) -> None:
    """For gradients' group values the statistic is their mean, and its variance s^2 / n on average."""
    plan = plan_of(groups, make)
    values = np.random.default_rng(1).normal(size=(200, groups))
    means = plan.subsets @ torch.as_tensor(values).T / plan.subsets.sum(dim=1, keepdim=True)
    tables = means[plan.gradient].permute(2, 0, 1)  # [200, width, subsets]
    np.testing.assert_allclose(plan.value(tables), values.mean(axis=1), atol=1e-12)
    found = np.mean([plan.spread(table[None]).error ** 2 for table in tables])
    assert found == pytest.approx(values.var(axis=1, ddof=1).mean() / groups, rel=0.1)


def test_undefined_comparisons_are_left_out() -> None:
    """A zero gradient in some subsets leaves the others; where all are undefined, so is the error."""
    plan = plan_of(8)
    table = torch.ones(plan.whole.shape, dtype=torch.float64)
    table[:, 0] = torch.nan
    assert float(plan.value(table)) == 1.0
    assert plan.spread(table[None]).error == 0.0
    assert plan.spread(torch.full_like(table, torch.nan)[None]) == Spread()
    assert torch.isnan(plan.value(torch.full_like(table, torch.nan)))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_few_groups_have_a_value_and_no_error(groups: int) -> None:
    """One group shares its image between gradient and space; fewer than four give no halves of halves."""
    plan = plan_of(groups)
    table = torch.ones(plan.whole.shape, dtype=torch.float64)
    assert float(plan.value(table)) == 1.0
    assert plan.spread(table[None]).error is None


def test_a_spread_holds_images_and_draws_and_its_replicates_add_up_to_it() -> None:
    """The error has a part for draws, alone where no image is left out; replicates have its mean square."""
    plan = plan_of(16)
    table = torch.randn(4, *plan.whole.shape, dtype=torch.float64)
    both, images = plan.spread(table), plan.spread(table.mean(dim=0, keepdim=True))
    heads = float(plan.value(table).var()) / 4
    assert both.error**2 == pytest.approx(images.error**2 + heads)
    assert np.mean(np.square(both.replicates)) == pytest.approx(both.error**2)
    assert plan.spread(table, 0.0).error == pytest.approx(heads**0.5)
    assert plan.spread(table, 0.5).error ** 2 == pytest.approx(images.error**2 / 2 + heads)


def test_replicates_of_two_statistics_give_the_error_of_their_difference() -> None:
    """It is that of the difference's own table, with draws; what one lacks shifts nothing."""
    plan = plan_of(16)
    generator = torch.Generator().manual_seed(2)
    common, one, other = torch.randn(3, 4, *plan.whole.shape, generator=generator, dtype=torch.float64)
    one, other = common + 0.2 * one + 0.1 * common.square(), common + 0.2 * other
    spreads = [plan.spread(table, 0.5) for table in (one, other)]
    paired = error_of_difference(*(spread.replicates for spread in spreads))
    assert paired == pytest.approx(plan.spread(one - other, 0.5).error)
    assert paired < 0.5 * np.hypot(*(spread.error for spread in spreads))
    one[2] = torch.nan
    lacking = plan.spread(one).replicates
    assert len(lacking) == len(spreads[1].replicates)
    assert lacking[-2] == 0
    assert error_of_difference(lacking, ()) is error_of_difference((), ()) is None


def test_half_samples_of_images_are_disjoint_halves_of_the_groups() -> None:
    """Groups stay whole, and the error of a mean is that of a mean of so many images."""
    groups = torch.arange(8).repeat_interleave(5)
    halves = half_samples(groups, torch.Generator().manual_seed(0), 12)
    for one, other in halves:
        assert len(one) == len(other) == 20
        assert not set(groups[one].tolist()) & set(groups[other].tolist())
    assert half_samples(torch.zeros(4, dtype=torch.long), torch.Generator()) == []
    found = []
    for seed in range(200):
        values = torch.from_numpy(np.random.default_rng(seed).normal(size=40))
        spread = spread_over_halves(lambda at, values=values: float(values[at].mean()), halves, 1.0)
        found.append(spread.error**2)
    assert np.mean(found) == pytest.approx(1 / 40, rel=0.1)
    assert spread_over_halves(lambda at: None, halves, 1.0) == Spread()
