"""Growth policies on hand-made evidence: rules, ties, margins, and evidence that breaks its contract."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from lw2g.errors import ConfigError
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow, Measured, Planned, Reuse
from lw2g.testing.evidence import measured_set
from lw2g_growth.options import FixedConfig
from lw2g_growth.plugin import lw2g_policies
from lw2g_growth.policies import (
    MaxPolicy,
    MinPolicy,
    OnePolicy,
    RandomPolicy,
    RulePolicy,
)
from lw2g_growth.rules import Rule


def evidence(*rows, task=5):
    """Evidence from ``(set, z)`` or ``(set, z, error)`` rows; the HFC stands 40 degrees above Z."""
    return Evidence(
        task=task,
        candidates=tuple(measured_set(*row, parts={"hfc": row[1] + 40.0}) for row in rows),
    )


def decide(policy, given, seed=0):
    """Ask a policy with a fresh generator."""
    return policy.decide(given, np.random.default_rng(seed))


def built(name, **options):
    """Build a registered policy by name."""
    component = next(item for item in lw2g_policies() if item.name == name)
    return component.build(component.config(**options))


def test_only_always_comes_without_evidence_and_constraints():
    """What the runner needs to know is said by the record, not by a list of names."""
    by_name = {item.name: item for item in lw2g_policies()}
    assert {name for name, item in by_name.items() if item.adds_always} == {"always"}
    assert {name for name, item in by_name.items() if not item.reads(item.config())} == {
        "always",
        "fixed",
        "one",
    }
    assert {name for name, item in by_name.items() if item.default_constraints == ()} == {"always"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("min", 2), ("max", 0), ("one", 0), ("affinity", 0)],
)
def test_each_policy_picks_its_own_set(name, expected):
    """With Z of both signs, min takes the least Z, max the greatest HFC, affinity the greatest Z."""
    assert decide(built(name), evidence((0, 3.0), (1, -1.0), (2, -4.0))) == Reuse(expected)


@pytest.mark.parametrize("name", ["min", "max", "rnd"])
def test_all_positive_grows_and_zero_reuses(name):
    """The grow test is strict: Z = 0 reuses, as in the paper."""
    assert decide(built(name), evidence((0, 0.1), (1, 2.0))) == Grow()
    assert decide(built(name), evidence((0, 0.0))) == Reuse(0)


def test_max_goes_by_hindrance_not_by_z():
    """Where HFC and Z disagree, max takes the greatest HFC."""
    rows = (
        measured_set(0, -1.0, parts={"hfc": 20.0}),
        measured_set(1, -9.0, parts={"hfc": 60.0}),
    )
    assert decide(MaxPolicy(), Evidence(task=2, candidates=rows)) == Reuse(1)


@pytest.mark.parametrize("policy", [MinPolicy(), MaxPolicy()])
def test_ties_go_to_the_lowest_set(policy):
    """Equal evidence names the lowest id, in whatever order the candidates come."""
    assert decide(policy, evidence((4, -2.0), (3, -2.0), (7, -2.0))) == Reuse(3)


def test_affinity_ties_go_to_the_lowest_set():
    """Equal positive Z names the lowest id."""
    assert decide(built("affinity"), evidence((4, 2.0), (3, 2.0))) == Reuse(3)


def test_affinity_is_strict_at_its_threshold():
    """Z must exceed the threshold; at it the task is not yet alike."""
    policy = built("affinity", threshold=1.5)
    assert decide(policy, evidence((0, 1.5))) == Grow()
    assert decide(policy, evidence((0, 1.5), (1, 1.6))) == Reuse(1)


def test_affinity_takes_the_greatest_z_among_those_that_clear():
    """A greater Z whose error is too large does not count."""
    policy = built("affinity", margin=2.0)
    assert decide(policy, evidence((0, 9.0, 5.0), (1, 2.0, 0.1))) == Reuse(1)


@pytest.mark.parametrize(("margin", "expected"), [(0.0, Grow()), (1.0, Grow()), (3.0, Reuse(1))])
def test_margin_counts_standard_errors(margin, expected):
    """Z must exceed margin * error of every candidate; the reused one is still that of least Z."""
    given = evidence((0, 5.0, 2.0), (1, 2.0, 0.5))
    assert decide(MinPolicy(margin=margin), given) == expected


def test_an_unknown_error_clears_no_margin():
    """Without an error, a margin can neither be met for growing (min) nor for sharing (affinity)."""
    assert decide(MinPolicy(margin=1.0), evidence((0, 50.0))) == Reuse(0)
    assert decide(built("affinity", margin=1.0), evidence((0, 50.0))) == Grow()


@pytest.mark.parametrize("name", ["min", "max", "rnd", "affinity"])
def test_excluded_and_undefined_sets_are_no_candidates(name):
    """A closed set or one without a gradient is never reused; if no other is left the pool grows."""
    closed = measured_set(0, -30.0, excluded="its space is full")
    undefined = CandidateEvidence(set=1, measures={"hindrance": Measured(why="gradient is zero")})
    assert decide(built(name), Evidence(task=3, candidates=(closed, undefined))) == Grow()
    lone = measured_set(2, -1.0)
    chosen = decide(built(name), Evidence(task=3, candidates=(closed, undefined, lone)))
    assert chosen == (Grow() if name == "affinity" else Reuse(2))


def test_one_goes_on_even_with_a_closed_set():
    """ONE reuses the first set whatever happens."""
    closed = CandidateEvidence(set=0, excluded="its space is full")
    assert decide(OnePolicy(), Evidence(task=7, candidates=(closed,))) == Reuse(0)


def test_rnd_is_uniform_over_the_candidates():
    """Each candidate is drawn about equally often, an excluded one never."""
    rows = evidence((0, -1.0), (2, 5.0), (3, -2.0)).candidates
    given = Evidence(task=4, candidates=(*rows, measured_set(1, -9.0, excluded="full")))
    rng = np.random.default_rng(7)
    counts = dict.fromkeys((0, 2, 3), 0)
    for _ in range(900):
        counts[RandomPolicy().decide(given, rng).set] += 1
    # 300 expected, standard deviation 14
    assert all(abs(count - 300) < 60 for count in counts.values())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("min", {"margin": -0.1}),
        ("min", {"margin": math.nan}),
        ("rnd", {"margin": math.inf}),
        ("affinity", {"threshold": 91.0}),
        ("affinity", {"margin": -1.0}),
    ],
)
def test_bad_options_are_refused(name, options):
    """A value outside its range is refused when the config is made, naming the field."""
    with pytest.raises(ValueError, match=next(iter(options))):
        built(name, **options)


def test_fixed_follows_its_map():
    """It grows where the next set is named, and reuses the named one otherwise."""
    policy = built("fixed", map=(0, 0, 1, 0))
    assert isinstance(policy, Planned)
    rows = ((), ((0, 3.0),), ((0, 3.0),), ((0, 3.0), (1, -1.0)))
    decisions = [decide(policy, evidence(*row, task=task)) for task, row in enumerate(rows)]
    assert decisions == [Grow(), Reuse(0), Grow(), Reuse(0)]
    policy.require_tasks(4)
    with pytest.raises(
        ConfigError, match=r"policy.map: expected the sets of 5 tasks but got 4 \(\[0, 0, 1, 0\]\)"
    ):
        policy.require_tasks(5)
    with pytest.raises(ConfigError, match=r"task 3 gets set 1, and the run has the sets \[\] then; name one"):
        decide(policy, evidence(task=2))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ((1,), "task 1 set 1, and only the sets 0 to 0"),
        ((0, 1, 3), "task 3 set 3, and only the sets 0 to 2"),
        ((-1,), "must be >= 0"),
    ],
)
def test_fixed_refuses_a_map_of_sets_that_cannot_exist(sets, said):
    """A set is named once it exists, and new ones in turn."""
    with pytest.raises(ValueError, match=said):
        FixedConfig(map=sets)


def test_fixed_needs_a_map():
    """Without one it says how to give it."""
    with pytest.raises(ConfigError, match=r"--set policy.map=\[0,0,1\]"):
        built("fixed")


@pytest.mark.parametrize("reading", ["affinity", "hindrance"])
@pytest.mark.parametrize("burden", ["grow", "reuse"])
@pytest.mark.parametrize("scale", ["value", "chance", "errors", "position"])
@pytest.mark.parametrize(("own", "alike"), [(9.0, 1), (-7.0, -1)])
def test_a_limit_is_where_a_set_begins_to_be_shared(reading, burden, scale, own, alike):
    """Just on one side of it the set is reused, just on the other the policy grows."""
    rule = Rule(reading=reading, burden=burden, scale=scale, threshold=0.3, margin=1.5)
    policy = RulePolicy(rule)

    def said(value):
        measured = Measured(value=value, error=0.5, null=1.0, own=own, alike=alike)
        return Evidence(
            task=1, candidates=(CandidateEvidence(set=4, measures={"hindrance": measured}, rank=1),)
        )

    limit = policy.limits(said(2.0))["hindrance"][4]
    assert policy.limits(said(-3.0))["hindrance"][4] == pytest.approx(limit)
    sides = [decide(policy, said(limit + step)) for step in (-1e-6, 1e-6)]
    assert {type(side) for side in sides} == {Grow, Reuse}


def test_an_unknown_error_sets_no_limit():
    """With a margin nothing finite would clear it; without one the threshold is the limit."""
    given = Evidence(
        task=1, candidates=(CandidateEvidence(set=0, measures={"hindrance": Measured(value=1.0)}, rank=1),)
    )
    assert MinPolicy(margin=1.0).limits(given) == {"hindrance": {}}
    assert MinPolicy().limits(given) == {"hindrance": {0: 0.0}}


# -- rules by any measure ------------------------------------------------------------------------------------


def said(*rows, measure="energy", **more):
    """Evidence from ``(set, value)`` or ``(set, value, error)`` rows of one measure."""
    return Evidence(task=5, candidates=tuple(measured_set(*row, measure=measure, **more) for row in rows))


def threshold(**options):
    """The policy ``threshold`` on energy as it is, unless told otherwise."""
    return built("threshold", **({"scale": "value", "threshold": 0.5} | options))


@pytest.mark.parametrize(
    ("options", "alike", "expected"),
    [
        ({}, 1, Reuse(1)),
        ({}, -1, Reuse(0)),
        ({"reading": "hindrance"}, 1, Reuse(0)),
        ({"reading": "hindrance"}, -1, Reuse(1)),
        ({"threshold": 0.9}, 1, Grow()),
        ({"threshold": 0.1}, -1, Grow()),
    ],
)
def test_a_threshold_follows_reading_and_what_large_means(options, alike, expected):
    """Alike and affinity share what lies above, either turned round what lies below, both what lies above."""
    assert decide(threshold(**options), said((0, 0.2), (1, 0.8), alike=alike)) == expected


@pytest.mark.parametrize(
    ("burden", "margin", "error", "expected"),
    [
        ("reuse", 1.0, 0.05, Reuse(0)),
        ("reuse", 1.0, 0.2, Grow()),
        ("grow", 1.0, 0.2, Reuse(0)),
        ("reuse", 1.0, None, Grow()),
        ("grow", 1.0, None, Reuse(0)),
    ],
)
def test_noise_speaks_for_what_has_not_to_be_proved(burden, margin, error, expected):
    """A value .1 above the threshold: shared within its error only where growth bears the burden."""
    assert decide(threshold(burden=burden, margin=margin), said((0, 0.6, error))) == expected


def test_a_set_is_added_against_the_burden_only_where_all_are_below():
    """Under the burden of growth one set within its error of the threshold is enough to share the best."""
    policy = threshold(burden="grow", margin=1.0)
    assert decide(policy, said((0, 0.1, 0.01), (1, 0.3, 0.1))) == Grow()
    assert decide(policy, said((0, 0.1, 0.5), (1, 0.3, 0.1))) == Reuse(1)


@pytest.mark.parametrize(
    ("scale", "value", "own", "expected"),
    [
        ("chance", 0.6, None, Reuse(0)),
        ("chance", 0.39, None, Grow()),
        ("position", 0.61, 0.8, Reuse(0)),
        ("position", 0.59, 0.8, Grow()),
        ("position", 0.61, 0.45, Grow()),
        ("position", 0.61, None, Grow()),
        ("errors", 0.5, None, Reuse(0)),
        ("errors", 0.42, None, Grow()),
    ],
)
def test_scales_hold_other_things_against_the_threshold(scale, value, own, expected):
    """With null .4 and error .04: beyond chance, half way home (undefined if near), or by errors."""
    limit = {"chance": 0.0, "position": 0.5, "errors": 2.0}[scale]
    given = said((0, value, 0.04), null=0.4, own=own)
    assert decide(threshold(scale=scale, threshold=limit), given) == expected


def test_a_position_knows_its_direction_from_the_own_tasks():
    """A measure that falls towards home is read alike, whatever ``alike`` says."""
    given = said((0, 0.1, 0.01), null=0.7, own=0.05, alike=-1)
    assert decide(built("threshold"), given) == Reuse(0)
    assert decide(built("threshold"), said((0, 0.6, 0.01), null=0.7, own=0.05, alike=-1)) == Grow()


def test_the_least_of_many_has_a_wider_margin():
    """Independent noise of many sets puts one far out: what clears it alone does not clear it among many."""
    rng = np.random.default_rng(0)
    rows = [
        measured_set(i, 0.7, 0.1, measure="energy", replicates=tuple(0.1 * rng.normal(size=400)))
        for i in range(16)
    ]
    given = Evidence(task=20, candidates=tuple(rows))
    assert decide(threshold(margin=1.0), given) == Reuse(0)
    assert decide(threshold(margin=1.0, least_of_many=True), given) == Grow()
    alone = Evidence(task=20, candidates=tuple(rows[:1]))
    assert decide(threshold(margin=1.0, least_of_many=True), alone) == Reuse(0)
    assert decide(threshold(margin=2.5, least_of_many=True), alone) == Grow()
    without = Evidence(
        task=20, candidates=tuple(measured_set(i, 0.7, 0.1, measure="energy") for i in range(3))
    )
    assert decide(threshold(margin=1.0, least_of_many=True), without) == Reuse(0)


@pytest.mark.parametrize("count", [1, 3, 12])
@pytest.mark.parametrize("alike", [1, -1])
def test_the_margin_of_many_is_the_quantile_of_their_largest_deviation(count, alike):
    """By normal deviations: of independent sets that of the greatest of so many, of like ones that of one."""
    errors = 0.02 + 0.03 * np.arange(count)

    def margins(own):
        replicates = errors[:, None] * own / np.sqrt(np.square(own).mean(axis=1, keepdims=True))
        rows = [
            measured_set(i, 0.7, errors[i], measure="energy", alike=alike, replicates=tuple(replicates[i]))
            for i in range(count)
        ]
        limits = threshold(margin=0.5, least_of_many=True).limits(Evidence(task=20, candidates=tuple(rows)))
        return [alike * (limits["energy"][i] - 0.5) / errors[i] for i in range(count)]

    # skewed and far more sets on one side: only products of replicates may count
    skewed = np.random.default_rng(3).exponential(size=(count, 600)) - 1
    expected = NormalDist().inv_cdf(0.95 ** (1 / count))
    assert margins(skewed) == pytest.approx([expected] * count, rel=0.06)
    assert margins(np.repeat(skewed[:1], count, axis=0)) == pytest.approx([1.645] * count, rel=0.04)


def test_confidence_is_that_of_the_sign():
    """A value two errors beyond is 98 % sure, at the threshold 50 %, without an error nothing is said."""
    assert decide(threshold(), said((0, 0.7, 0.1))).confidence == pytest.approx(0.977, abs=1e-3)
    assert decide(threshold(), said((0, 0.3, 0.1))).confidence == pytest.approx(0.977, abs=1e-3)
    assert decide(threshold(), said((0, 0.5, 0.1))).confidence == pytest.approx(0.5)
    assert decide(threshold(), said((0, 0.7))).confidence is None
    shared_in_doubt = decide(threshold(burden="grow", margin=3.0), said((0, 0.3, 0.1)))
    assert shared_in_doubt == Reuse(0)
    assert shared_in_doubt.confidence == pytest.approx(0.023, abs=1e-3)


def test_a_trust_region_is_voted_for_by_sites():
    """Half of the sites above one half share, fewer grow, whatever the mean is; the most votes win.

    Sites that are undefined have no vote; where all are, the value of the whole decides.
    """

    def voted(*sets, whole=None):
        rows = [
            measured_set(
                number,
                float(np.mean(values)) if whole is None else whole,
                measure="projection",
                null=0.6,
                sites={str(i): {"value": value, "null": 0.6} for i, value in enumerate(values)},
            )
            for number, values in enumerate(sets)
        ]
        return Evidence(task=3, candidates=tuple(rows))

    policy = built("trust-region")
    assert decide(policy, voted((0.6, 0.6, 0.1, 0.1))) == Reuse(0)
    assert decide(policy, voted((0.6, 0.4, 0.4, 0.99))) == Reuse(0)
    assert decide(policy, voted((0.9, 0.4, 0.4, 0.4))) == Grow()
    assert decide(policy, voted((0.6, 0.6, 0.1), (0.51, 0.51, 0.51))) == Reuse(1)
    assert decide(policy, voted((0.6, None, None), whole=0.1)) == Reuse(0)
    assert decide(policy, voted((None, None, 0.4), whole=0.9)) == Grow()
    for whole, expected in ((0.51, Reuse(0)), (0.5, Grow()), (0.4, Grow())):
        assert decide(policy, voted((None, None), whole=whole)) == expected
    assert decide(built("trust-region", scale="chance"), voted((0.59, 0.59, 0.7))) == Grow()
    assert decide(built("trust-region", scale="chance"), voted((0.61, 0.61, 0.1))) == Reuse(0)


def test_capacity_shares_where_room_is_left():
    """API reads the same overlap the other way: a gradient with enough outside fits in."""
    room = said((0, 0.3), (1, 0.7), (2, 0.6), measure="capacity", alike=-1)
    assert decide(built("capacity"), room) == Reuse(1)
    assert decide(built("capacity"), said((0, 0.3), measure="capacity", alike=-1)) == Grow()
    assert decide(built("capacity"), said((0, 0.5), measure="capacity", alike=-1)) == Reuse(0)


def test_trial_shares_what_was_proved_better():
    """A gain that exceeds its error; a larger one wins."""
    assert decide(built("trial"), said((0, 0.1, 0.05), (1, 0.2, 0.05), measure="trial")) == Reuse(1)
    assert decide(built("trial"), said((0, 0.1, 0.2), measure="trial")) == Grow()


def test_a_budget_is_kept():
    """So many sets are added whatever is measured; then the best is reused, of unknown ones the first."""
    policy = built("budget", sets=2)
    assert decide(policy, said((0, 0.0), alike=-1)) == Grow()
    assert decide(policy, said((0, 0.4), (1, 0.3), alike=-1)) == Reuse(1)
    unknown = Evidence(
        task=4, candidates=(CandidateEvidence(set=0, excluded="full"), CandidateEvidence(set=1))
    )
    assert decide(policy, unknown) == Reuse(1)


def test_affinity_beyond_chance_is_free_of_the_ranks():
    """What ranks alone make of Z is taken off."""
    rows = (measured_set(0, 3.0, null=5.0), measured_set(1, 1.0, null=-1.0))
    given = Evidence(task=2, candidates=rows)
    assert decide(built("affinity"), given) == Reuse(0)
    assert decide(built("affinity", scale="chance"), given) == Reuse(1)
