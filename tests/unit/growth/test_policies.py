"""Growth policies on hand-made evidence: rules, ties, margins, and evidence that breaks its contract."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow, Measurement, Planned, Reuse
from lw2g.interfaces.options import published_differences
from lw2g.registry.catalogue import load_catalogue
from lw2g_growth.options import FixedConfig, MarginConfig
from lw2g_growth.plugin import lw2g_policies
from lw2g_growth.policies import (
    RandomPolicy,
    RulePolicy,
)
from lw2g_testing.made_evidence import measured_set


def evidence(*rows, task=5, measure="hindrance", **more):
    """Evidence from ``(set, value)`` or ``(set, value, error)`` rows; an HFC stands 40 degrees above Z."""
    candidates = (
        measured_set(*row, measure=measure, **({"parts": {"hfc": row[1] + 40.0}} | more)) for row in rows
    )
    return Evidence(task=task, candidates=tuple(candidates))


def said(*rows, measure="energy", **more):
    """Evidence of another measure."""
    return evidence(*rows, measure=measure, **more)


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


MIXED = evidence((0, 3.0), (1, -1.0), (2, -4.0))
TIED = evidence((4, -2.0), (3, -2.0), (7, -2.0))
NOISY = evidence((0, 5.0, 2.0), (1, 2.0, 0.5))
APART = [measured_set(0, -1.0, parts={"hfc": 20.0}), measured_set(1, -9.0, parts={"hfc": 60.0})]
RANKED = [measured_set(0, 3.0, null=5.0), measured_set(1, 1.0, null=-1.0)]
DISAGREEING, BY_RANK = (Evidence(task=2, candidates=tuple(rows)) for rows in (APART, RANKED))
# angles by ranks: 40 and 20 degrees against 30 (of the last set), whatever was measured
BY_COUNT = Evidence(
    task=2,
    candidates=(
        measured_set(0, -9.0, null=-5.0, parts={"hfc": 1.0, "null_hfc": 40.0}),
        measured_set(1, 9.0, null=-10.0, parts={"hfc": 1.0, "null_hfc": 20.0}),
    ),
)
# the first set lies below its own threshold of 45, but not below that of the last set, 15
BY_LAST = Evidence(
    task=2,
    candidates=(
        measured_set(0, -9.0, null=-5.0, parts={"hfc": 1.0, "null_hfc": 40.0}),
        measured_set(1, -9.0, null=30.0, parts={"hfc": 1.0, "null_hfc": 45.0}),
    ),
)


def by_rank(set_id, null):
    """A set whose ranks give 30 degrees, and so much more than the pre-trained space."""
    return measured_set(set_id, 0.0, null=null, parts={"null_hfc": 30.0})


AT_LAST = Evidence(task=2, candidates=(by_rank(0, 0.0),))
BELOW_LAST = Evidence(task=2, candidates=(by_rank(0, -1e-9),))
TIED_BY_RANKS = Evidence(task=9, candidates=(by_rank(7, -5.0), by_rank(3, -5.0)))
CLOSED = Evidence(task=7, candidates=(CandidateEvidence(set=0, excluded="its space is full"),))
gains, room = partial(said, measure="trial"), partial(said, measure="capacity", alike=-1)
STRICT = ("min", "max", "rnd")
FALLING = {"null": 0.7, "own": 0.05, "alike": -1}
LIMIT = {"scale": "value", "threshold": 0.5, "burden": "grow", "margin": 1.0}
DECISIONS = [
    ("min takes the least Z", "min", {}, MIXED, Reuse(2)),
    ("min by the paper's text", "min", {"reading": "text"}, MIXED, Reuse(2)),
    ("by its algorithm the greatest Z", "min", {"reading": "algorithm"}, MIXED, Reuse(0)),
    ("which grows as the text does", "min", {"reading": "algorithm"}, NOISY, Grow()),
    ("by its release ranks alone count", "min", {"reading": "release"}, BY_COUNT, Reuse(1)),
    ("against the last set's threshold", "min", {"reading": "release"}, BY_LAST, Grow()),
    ("whose tie grows", "min", {"reading": "release"}, AT_LAST, Grow()),
    ("and a hair below it reuses", "min", {"reading": "release"}, BELOW_LAST, Reuse(0)),
    ("and the lowest id of equals", "min", {"reading": "release"}, TIED_BY_RANKS, Reuse(3)),
    ("max takes the greatest HFC", "max", {}, MIXED, Reuse(0)),
    ("one takes the first set", "one", {}, MIXED, Reuse(0)),
    ("affinity takes the greatest Z", "affinity", {}, MIXED, Reuse(0)),
    ("max goes by HFC where Z says otherwise", "max", {}, DISAGREEING, Reuse(1)),
    ("min reuses the lowest id of equals", "min", {}, TIED, Reuse(3)),
    ("max reuses the lowest id of equals", "max", {}, TIED, Reuse(3)),
    ("affinity reuses the lowest id of equals", "affinity", {}, evidence((4, 2.0), (3, 2.0)), Reuse(3)),
    ("Z at the threshold is not alike", "affinity", {"threshold": 1.5}, evidence((0, 1.5)), Grow()),
    ("Z above it is", "affinity", {"threshold": 1.5}, evidence((0, 1.5), (1, 1.6)), Reuse(1)),
    ("too noisy a Z is passed over", "affinity", {"margin": 2.0}, evidence((0, 9, 5), (1, 2, 0.1)), Reuse(1)),
    ("no margin asks for no error", "min", {}, NOISY, Grow()),
    ("every Z is beyond its error", "min", {"margin": 1.0}, NOISY, Grow()),
    ("one Z is within three; the least is reused", "min", {"margin": 3.0}, NOISY, Reuse(1)),
    ("an unknown error does not let min grow", "min", {"margin": 1.0}, evidence((0, 50.0)), Reuse(0)),
    ("nor affinity share", "affinity", {"margin": 1.0}, evidence((0, 50.0)), Grow()),
    ("ranks alone can make Z large", "affinity", {}, BY_RANK, Reuse(0)),
    ("beyond chance they do not", "affinity", {"scale": "chance"}, BY_RANK, Reuse(1)),
    ("one goes on with a closed set", "one", {}, CLOSED, Reuse(0)),
    ("a measure falls towards home", "threshold", {}, said((0, 0.1, 0.01), **FALLING), Reuse(0)),
    ("and is far from it", "threshold", {}, said((0, 0.6, 0.01), **FALLING), Grow()),
    ("all are below the limit", "threshold", LIMIT, said((0, 0.1, 0.01), (1, 0.3, 0.1)), Grow()),
    ("one is within its error of it", "threshold", LIMIT, said((0, 0.1, 0.5), (1, 0.3, 0.1)), Reuse(1)),
    ("two gains exceed their error", "trial", {}, gains((0, 0.1, 0.05), (1, 0.2, 0.05)), Reuse(1)),
    ("a gain is within its error", "trial", {}, gains((0, 0.1, 0.2)), Grow()),
    # a gradient with enough of it outside fits in
    ("most room", "capacity", {}, room((0, 0.3), (1, 0.7), (2, 0.6)), Reuse(1)),
    ("too little room", "capacity", {}, room((0, 0.3)), Grow()),
    ("just enough room", "capacity", {}, room((0, 0.5)), Reuse(0)),
    # the grow test is strict, as in the paper
    *[(f"{one} grows above zero", one, {}, evidence((0, 0.1), (1, 2.0)), Grow()) for one in STRICT],
    *[(f"{one} reuses at zero", one, {}, evidence((0, 0.0)), Reuse(0)) for one in STRICT],
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "given", "expected"),
    [row[1:] for row in DECISIONS],
    ids=[row[0] for row in DECISIONS],
)
def test_decisions_by_hand(name, options, given, expected):
    """What each policy decides on evidence made for one of its promises."""
    assert decide(built(name, **options), given) == expected


@pytest.mark.parametrize("name", ["min", "max", "rnd", "affinity"])
def test_excluded_and_undefined_sets_are_no_candidates(name):
    """A closed set or one without a gradient is never reused; if no other is left the pool grows."""
    closed = measured_set(0, -30.0, excluded="its space is full")
    undefined = CandidateEvidence(set=1, measures={"hindrance": Measurement(why="gradient is zero")})
    assert decide(built(name), Evidence(task=3, candidates=(closed, undefined))) == Grow()
    lone = measured_set(2, -1.0)
    chosen = decide(built(name), Evidence(task=3, candidates=(closed, undefined, lone)))
    assert chosen == (Grow() if name == "affinity" else Reuse(2))


def test_rnd_is_uniform_over_the_candidates():
    """Each candidate is drawn about equally often, an excluded one never."""
    rows = evidence((0, -1.0), (2, 5.0), (3, -2.0)).candidates
    given = Evidence(task=4, candidates=(*rows, measured_set(1, -9.0, excluded="full")))
    rng = np.random.default_rng(7)
    counts = dict.fromkeys((0, 2, 3), 0)
    for _ in range(900):
        counts[RandomPolicy(MarginConfig()).decide(given, rng).set] += 1
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
    with pytest.raises(ConfigError, match=r"each task: policy.map=\[0,0,1\]"):
        built("fixed")


def test_an_unknown_error_sets_no_limit():
    """With a margin nothing finite would clear it; without one the threshold is the limit."""
    given = Evidence(
        task=1, candidates=(CandidateEvidence(set=0, measures={"hindrance": Measurement(value=1.0)}, rank=1),)
    )
    assert RulePolicy(MarginConfig(margin=1.0)).limits(given) == {"hindrance": {}}
    assert RulePolicy(MarginConfig()).limits(given) == {"hindrance": {0: 0.0}}


# -- rules by any measure ------------------------------------------------------------------------------------


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


def test_confidence_is_that_of_the_sign():
    """A value two errors beyond is 98 % sure, at the threshold 50 %, without an error nothing is said."""
    assert decide(threshold(), said((0, 0.7, 0.1))).confidence == pytest.approx(0.977, abs=1e-3)
    assert decide(threshold(), said((0, 0.3, 0.1))).confidence == pytest.approx(0.977, abs=1e-3)
    assert decide(threshold(), said((0, 0.5, 0.1))).confidence == pytest.approx(0.5)
    assert decide(threshold(), said((0, 0.7))).confidence is None
    shared_in_doubt = decide(threshold(burden="grow", margin=3.0), said((0, 0.3, 0.1)))
    assert shared_in_doubt == Reuse(0)
    assert shared_in_doubt.confidence == pytest.approx(0.023, abs=1e-3)


def test_growth_is_as_sure_as_the_set_nearest_to_sharing_is_far_from_it():
    """Of two sets that are not shared the one of better standing tells, though the other has less error."""
    grown = decide(built("min"), evidence((0, 8.0, 0.1), (1, 2.0, 2.0), (2, 9.0, 3.0)))
    assert grown == Grow()
    assert grown.confidence == pytest.approx(0.841, abs=1e-3)


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


def test_a_budget_is_kept():
    """So many sets are added whatever is measured; then the best is reused, of unknown ones the first."""
    policy = built("budget", sets=2)
    assert decide(policy, said((0, 0.0), alike=-1)) == Grow()
    assert decide(policy, said((0, 0.4), (1, 0.3), alike=-1)) == Reuse(1)
    unknown = Evidence(
        task=4, candidates=(CandidateEvidence(set=0, excluded="full"), CandidateEvidence(set=1))
    )
    assert decide(policy, unknown) == Reuse(1)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (((0.6, 0.6, 0.1), (0.6, 0.9, 0.1)), 1),  # two votes each: the greater value of the whole
        (((0.6, 0.9, 0.1), (0.6, 0.6, 0.1)), 0),
        (((0.9, 0.9, 0.1), (0.51, 0.51, 0.51)), 1),  # votes come before values
        (((0.6, 0.6, 0.1), (0.6, 0.6, 0.1)), 0),  # equal in both: the lowest number
    ],
)
def test_equal_votes_are_told_apart_by_the_whole(sets, expected):
    """The most votes, then the greater value, then the lower number."""
    rows = []
    for number, values in enumerate(sets):
        sites = {str(place): {"value": value, "null": 0.6} for place, value in enumerate(values)}
        rows.append(measured_set(number, float(np.mean(values)), measure="projection", null=0.6, sites=sites))
    given = Evidence(task=3, candidates=tuple(rows))
    assert decide(built("trust-region"), given) == Reuse(expected)


@pytest.mark.parametrize("burden", ["grow", "reuse"])
@pytest.mark.parametrize("margin", [0.0, 1.5])
@pytest.mark.parametrize(
    ("scale", "threshold_at"), [("value", 0.5), ("chance", 0.1), ("position", 0.5), ("errors", 2.0)]
)
def test_a_limit_is_where_the_decision_turns(scale, threshold_at, burden, margin):
    """Just beyond the limit that a record states the set is shared, just before it the policy grows."""
    policy = threshold(scale=scale, threshold=threshold_at, burden=burden, margin=margin)

    def given(value):
        return said((0, value, 0.04), null=0.4, own=0.9)

    (limit,) = policy.limits(given(0.6))["energy"].values()
    assert decide(policy, given(limit + 1e-6)) == Reuse(0)
    assert decide(policy, given(limit - 1e-6)) == Grow()


@pytest.mark.parametrize("own", [0.9, 0.1])
def test_the_limit_of_a_position_lies_towards_home(own):
    """Half way from the null to its own value, whether the measure rises or falls on the way."""
    policy = threshold(scale="position", threshold=0.5, burden="reuse", margin=1.0)

    def given(value):
        return said((0, value, 0.04), null=0.4, own=own)

    (limit,) = policy.limits(given(0.6))["energy"].values()
    towards = 1e-6 if own > 0.4 else -1e-6
    half_way = (0.4 + own) / 2
    assert limit == pytest.approx(half_way + 0.04 * np.sign(towards))
    assert decide(policy, given(limit + towards)) == Reuse(0)
    assert decide(policy, given(limit - towards)) == Grow()


def test_a_reading_brings_its_options_and_is_told():
    """The letter of the paper sets spaces, evidence and projection; what the user sets goes before it."""
    catalogue = load_catalogue()
    literal = resolve(catalogue, policy="min", overrides={"policy.reading": "text"}).config
    assert (literal.growth.heads, literal.growth.evidence) == ("joint", "literal")
    assert {constraint.config.on for constraint in literal.constraints} == {"gradient"}
    released = {"policy.reading": "release", "growth.heads": "per-head"}
    config = resolve(catalogue, policy="min", overrides=released).config
    assert (config.growth.heads, config.growth.energy_power, config.growth.rule) == ("per-head", 4, "below")
    ours = resolve(catalogue, policy="min").config
    assert (ours.growth.heads, ours.growth.evidence) == ("per-head", "averaged")
    told = [entry["option"] for entry in published_differences(literal.policy.config, "policy")]
    assert told == ["policy.reading"]
    assert published_differences(ours.policy.config, "policy") == []


def test_a_reading_keeps_what_the_preset_says():
    """The authors' energies and phi stay; only what the reading names is replaced."""
    overrides = {"policy.reading": "text"}
    config = resolve(
        load_catalogue(), policy="min", baseline="dual-prompt", benchmark="imagenet-r", overrides=overrides
    ).config
    plain = resolve(load_catalogue(), policy="min", baseline="dual-prompt", benchmark="imagenet-r").config
    phi = {one.name: getattr(one.config, "phi", None) for one in config.constraints}
    assert phi == {one.name: getattr(one.config, "phi", None) for one in plain.constraints}
    assert (config.growth.energy, config.growth.heads) == (plain.growth.energy, "joint")
