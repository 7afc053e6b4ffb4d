"""Properties of growth policies over arbitrary evidence."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from lw2g.interfaces.growth import Evidence, Grow, Reuse
from lw2g.interfaces.pool import Pool
from lw2g_growth.options import AffinityConfig, MarginConfig, PlainConfig
from lw2g_growth.policies import (
    AlwaysPolicy,
    MaxPolicy,
    OnePolicy,
    RandomPolicy,
    RulePolicy,
)
from lw2g_testing.made_evidence import measured_set
from lw2g_testing.strategies import evidences


def affinity(margin=0.0, threshold=0.0):
    """Like tasks share."""
    return RulePolicy(AffinityConfig(margin=margin, threshold=threshold), reading="affinity", burden="reuse")


POLICIES = [
    RulePolicy(MarginConfig()),
    RulePolicy(MarginConfig(margin=1.5)),
    MaxPolicy(MarginConfig()),
    RandomPolicy(MarginConfig()),
    RandomPolicy(MarginConfig(margin=1.0)),
    OnePolicy(PlainConfig()),
    AlwaysPolicy(PlainConfig()),
    affinity(threshold=1.0),
    affinity(margin=1.0),
]
GROWING = [RulePolicy, MaxPolicy, RandomPolicy]


def decide(policy, given, seed=0):
    """Ask a policy with a fresh generator."""
    return policy.decide(given, np.random.default_rng(seed))


def shifted(given, by):
    """Add the same number of degrees to every Z."""
    return changed(given, lambda z: z + by)


def z_of(candidate):
    """Return Z of a measured candidate."""
    return candidate.measures["hindrance"].value


def changed(given, by):
    """Change every Z by a function."""
    moved = [
        attrs.evolve(c, measures={"hindrance": attrs.evolve(c.measures["hindrance"], value=by(z_of(c)))})
        for c in given.candidates
    ]
    return attrs.evolve(given, candidates=tuple(moved))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{type(policy).__name__}-{policy.margin}")
@given(given=evidences(), seed=st.integers(0, 99))
def test_total_deterministic_and_within_the_pool(policy, given, seed):
    """Any evidence gets the same decision twice, and a reused set is one that exists."""
    first, again = decide(policy, given, seed), decide(policy, given, seed)
    assert first == again
    match first:
        case Grow():
            assert not isinstance(policy, OnePolicy) or not given.candidates
        case Reuse(set=set_id):
            live = given.candidates if isinstance(policy, OnePolicy) else given.eligible
            assert set_id in {candidate.set for candidate in live}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{type(policy).__name__}-{policy.margin}")
@given(given=evidences(), order=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_order_of_candidates_does_not_matter(policy, given, order, seed):
    """Permuting the candidates leaves the decision, the random one included."""
    mixed = list(given.candidates)
    order.shuffle(mixed)
    permuted = attrs.evolve(given, candidates=tuple(mixed))
    assert decide(policy, permuted, seed) == decide(policy, given, seed)


@given(given=evidences(measured=True))
def test_min_is_the_papers_rule(given):
    """Against a plain array: grow iff min Z > 0, else the first argmin."""
    z = np.array([z_of(candidate) for candidate in given.candidates])
    expected = Grow() if len(z) == 0 or z.min() > 0 else Reuse(given.candidates[z.argmin()].set)
    assert decide(RulePolicy(MarginConfig()), given) == expected


@pytest.mark.parametrize("kind", GROWING)
@given(given=evidences(num_sets=st.integers(1, 6), measured=True), share=st.floats(-0.99, 0.99))
def test_a_shift_below_the_least_margin_keeps_the_choice(kind, given, share):
    """A shift of all Z by less than |min Z| moves nothing across zero."""
    least = min(z_of(candidate) for candidate in given.candidates)
    assume(abs(least) > 1e-6)
    gaps = np.diff(sorted({z_of(candidate) for candidate in given.candidates}))
    assume(len(gaps) == 0 or gaps.min() > 1e-6)  # rounding must not make ties
    moved = shifted(given, share * abs(least))
    assert decide(kind(MarginConfig()), moved) == decide(kind(MarginConfig()), given)


@pytest.mark.parametrize("kind", GROWING)
@given(given=evidences(measured=True), a=st.floats(0, 4), b=st.floats(0, 4))
def test_a_larger_margin_never_adds_growth(kind, given, a, b):
    """What is reused at a margin is reused, and the same set, at every larger one."""
    low, high = sorted((a, b))
    lenient, strict = (
        decide(kind(MarginConfig(margin=low)), given),
        decide(kind(MarginConfig(margin=high)), given),
    )
    assert lenient == Grow() or strict == lenient


@given(given=evidences(measured=True), a=st.floats(0, 4), b=st.floats(0, 4))
def test_a_larger_margin_never_adds_sharing_by_affinity(given, a, b):
    """What grows at a margin grows at every larger one."""
    low, high = sorted((a, b))
    assert decide(affinity(margin=low), given) != Grow() or decide(affinity(margin=high), given) == Grow()


@given(given=evidences(measured=True))
def test_affinity_is_min_with_the_sign_turned_round(given):
    """Reuse by affinity is reuse by min on -Z, except that Z = 0 reuses under min alone."""
    assume(all(z_of(candidate) != 0 for candidate in given.candidates))
    turned = changed(given, lambda z: -z)
    assert decide(affinity(), given) == decide(RulePolicy(MarginConfig()), turned)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{type(policy).__name__}-{policy.margin}")
@given(tasks=st.integers(1, 8), seed=st.integers(0, 999))
def test_streams_keep_the_pool_sound(policy, tasks, seed):
    """Every task has a live set and sets never outnumber tasks; ONE ends with 1 set, ALWAYS with T."""
    pool, rng = Pool(), np.random.default_rng(seed)
    for task in range(tasks):
        candidates = tuple(
            measured_set(key, rng.normal(), rng.uniform(0, 2), parts={"hfc": rng.uniform(0, 90)})
            for key in pool.ids
        )
        match policy.decide(Evidence(task=task, candidates=candidates), rng):
            case Grow():
                pool.grow(nn.Module())
            case Reuse(set=set_id):
                pool.reuse(set_id)
    assert len(pool.task_to_set) == tasks
    assert set(pool.task_to_set) == set(pool.ids)
    assert len(pool) <= tasks
    if isinstance(policy, OnePolicy):
        assert len(pool) == 1
    if isinstance(policy, AlwaysPolicy):
        assert len(pool) == tasks
