"""Properties of the growth score: HFC means what the constraint does, and policies decide soundly by it."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from bits import moment_of
from lw2g.interfaces.growth import Evidence, Grow, Reuse, counts_directions
from lw2g.interfaces.site import Activation, Restriction, Site
from lw2g.learning.protection import Protection, SiteRule
from lw2g.maths.hindrance import hfc
from lw2g.maths.subspace import Subspace
from lw2g.vit.taps import Tap
from lw2g_growth.keeping import KeepPolicy
from lw2g_growth.options import BudgetConfig, KeepConfig, MarginConfig, TrustRegionConfig
from lw2g_growth.policies import AlgorithmPolicy, BudgetPolicy, ReleasePolicy, RulePolicy, VotePolicy
from lw2g_testing.made_evidence import measured_set
from lw2g_testing.strategies import energies, evidences, feature_matrices, gradients, subspaces

WIDTH = 6
ROWS = feature_matrices(dims=st.just(WIDTH))
HEADS = st.sampled_from([1, 2, 3])


@given(space=subspaces(), data=st.data())
def test_the_cosine_of_hfc_is_the_length_that_the_constraint_leaves(space, data):
    """``cos HFC = |bent gradient| / |gradient|``, for the gradient that the orthogonal constraint bends."""
    gradient = data.draw(gradients(dims=st.just(space.dim))).double()
    parameter = nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient.clone()
    site = Site(name="site", parameter=parameter, activation=Activation(tap=Tap(0, "query")))
    rule = SiteRule(site=site, restriction=Restriction(subspace=space), on="gradient", hard=True)
    Protection([rule]).after_backward()
    left = float(parameter.grad.norm() / gradient.norm())
    measured = hfc([gradient], [space], reduce="global").degrees
    assert math.cos(math.radians(measured)) == pytest.approx(left, abs=1e-7)


@given(rows=ROWS, heads=HEADS, one=energies(), two=energies(), data=st.data())
def test_a_space_of_less_energy_lies_in_one_of_more(rows, heads, one, two, data):
    """A space of energy e1 lies in that of e2 for e1 < e2, so HFC never falls as ``growth.energy`` rises."""
    less, more = (Subspace.build(moment_of(rows, heads), energy) for energy in sorted((one, two)))
    basis = less.basis
    assert all(low <= high for low, high in zip(less.ranks, more.ranks, strict=True))
    torch.testing.assert_close(more.basis[:, :, : basis.shape[2]] * (basis != 0).any(dim=1)[:, None], basis)
    gradient = data.draw(gradients(dims=st.just(WIDTH)))
    low, high = (hfc([gradient], [space]).degrees for space in (less, more))
    assert high >= low - 1e-9


@given(space=subspaces(), data=st.data())
def test_angles_with_a_space_and_its_complement_add_up_to_90(space, data):
    """What ``Subspace.complement`` returns holds all that the space leaves of a gradient, head by head."""
    gradient = data.draw(gradients(dims=st.just(space.dim)))
    rest = space.complement()
    both = [hfc([gradient], [one], reduce="global").degrees for one in (space, rest)]
    assert sum(both) == pytest.approx(90.0, abs=1e-5)
    torch.testing.assert_close(rest.complement().on(gradient.double()), space.on(gradient.double()))


@st.composite
def ranked(draw: st.DrawFn) -> Evidence:
    """Draw evidence with what the release, votes, budgets and ``keep`` read: nulls, sites, three measures."""
    drawn = draw(evidences())
    candidates = []
    for candidate in drawn.candidates:
        measures = {}
        for measured in candidate.measures.values():
            null_hfc = draw(st.integers(0, 9)) * 10.0
            sites = {f"blocks.{number}": {"value": draw(st.none() | st.floats(0, 1))} for number in range(3)}
            whole = attrs.evolve(
                measured,
                null=draw(st.none() | st.just(null_hfc - 40.0)),
                parts=dict(measured.parts) | {"null_hfc": null_hfc},
                sites=sites,
            )
            errors = {use: draw(st.none() | st.floats(0, 1)) for use in ("as it is", "trained on")}
            outcome = attrs.evolve(whole, parts=errors)
            measures = {"hindrance": whole, "projection": whole, "outcome": outcome}
        candidates.append(attrs.evolve(candidate, measures=measures))
    return attrs.evolve(drawn, candidates=tuple(candidates))


POLICIES = {
    "algorithm": AlgorithmPolicy(MarginConfig()),
    "release": ReleasePolicy(MarginConfig()),
    "vote": VotePolicy(
        TrustRegionConfig(), measure="projection", reading="affinity", burden="reuse", begin={"value": 0.5}
    ),
    "budget": BudgetPolicy(BudgetConfig(measure="hindrance")),
    "keep": KeepPolicy(KeepConfig()),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@given(evidence=ranked(), order=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_every_rule_is_total_deterministic_and_blind_to_order(policy, evidence, order, seed):
    """Any evidence gets one decision, in any order of candidates, and what is reused can be."""
    mixed = list(evidence.candidates)
    order.shuffle(mixed)
    decisions = [
        policy.decide(one, np.random.default_rng(seed))
        for one in (evidence, evidence, attrs.evolve(evidence, candidates=tuple(mixed)))
    ]
    assert decisions[0] == decisions[1] == decisions[2]
    match decisions[0]:
        case Reuse(set=chosen):
            assert chosen in {candidate.set for candidate in evidence.eligible}
        case decision:
            assert decision == Grow()


def confidence_of_sharing(name: str, hindered: float, error: float) -> float:
    """Return how sure a rule without a margin is that it should share, whatever it decides."""
    if name == "min":
        policy, candidate = RulePolicy(MarginConfig()), measured_set(0, hindered, error)
    else:  # what a new set saves is what an old one does not gain
        policy = KeepPolicy(KeepConfig(margin=0.0))
        candidate = measured_set(0, -hindered, error, measure="outcome")
    decision = policy.decide(Evidence(task=1, candidates=(candidate,)), np.random.default_rng(0))
    assert isinstance(decision, Grow) == (hindered > 0)
    return decision.confidence if isinstance(decision, Reuse) else 1 - decision.confidence


@pytest.mark.parametrize("rule", ["min", "keep"])
@given(one=st.floats(-20, 20), two=st.floats(-20, 20), error=st.floats(0.1, 10))
def test_confidence_follows_z_and_growing_is_the_rest_of_sharing(rule, one, two, error):
    """A larger Z never speaks more for sharing, and at -Z sharing is as sure as growing is at Z."""
    low, high = sorted((one, two))
    assert confidence_of_sharing(rule, low, error) >= confidence_of_sharing(rule, high, error)
    both = confidence_of_sharing(rule, low, error) + confidence_of_sharing(rule, -low, error)
    assert both == pytest.approx(1)


@given(z=st.floats(-60, 60), null=st.floats(-60, 60), scale=st.floats(0.01, 100))
def test_the_law_of_ranks_is_a_matter_of_proportion(z, null, scale):
    """A decision counts directions where Z is near that of random spaces, in whatever unit angles are."""
    assume(abs(3 * abs(z - null) - abs(z)) > 1e-6)

    def entry(factor: float) -> dict[str, object]:
        measured = {"value": factor * z, "null": factor * null, "parts": {"null_hfc": 1.0}}
        candidates = [{"set": 0, "measures": {"hindrance": measured}}]
        return {
            "decision": "reuse" if z <= 0 else "grow",
            "set": 0,
            "candidates": candidates,
            "limits": {"hindrance": {"0": 0.0}},
        }

    assert counts_directions(entry(1.0)) == (3 * abs(z - null) < abs(z))
    assert counts_directions(entry(scale)) == counts_directions(entry(1.0))
