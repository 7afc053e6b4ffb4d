"""What the framework relies on in a growth policy: a pure, total function of evidence and generator."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from lw2g.errors import ConfigError, nearest
from lw2g.interfaces.growth import CandidateEvidence, Decision, Evidence, Grow, Measured, Reuse
from lw2g.testing.guards import available, bearing, seeded
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check

__all__ = [
    "check_default_constraints_exist",
    "check_draws_from_its_generator_alone",
    "check_excluded_sets_stay_out",
    "check_leaves_the_evidence_alone",
    "check_margin_is_a_number",
    "check_measures_exist",
    "check_names_only_live_sets",
    "check_policy_is_deterministic",
    "check_policy_is_total",
    "check_record_tells_the_truth",
]

_RANDOM_RECORDS = 150
_VALUES = (-90.0, -1e-12, 0.0, 5e-324, 0.5, 1.0, 90.0)
_ERRORS = (None, 0.0, 5e-324, 1.0, 1e300)


@check("policy")
def check_margin_is_a_number(subject: Subject) -> None:
    """It can be built from its options, and says what has to be proved and by how many errors."""
    policy = _policy(subject)
    margin, burden = getattr(policy, "margin", None), getattr(policy, "burden", "unsaid")
    if not isinstance(margin, int | float) or not math.isfinite(margin) or margin < 0:
        raise ContractViolation(
            f"its margin is {margin!r}; set the attribute margin to a finite number from 0 "
            "(0 where it uses no error), since every record shows it"
        )
    if burden not in ("grow", "reuse", None):
        raise ContractViolation(
            f"its burden is {burden!r}; set the attribute burden to 'grow' or 'reuse', whichever noisy "
            "evidence does not bring about, or to None where it reads no measure, since every record shows it"
        )


@check("policy")
def check_measures_exist(subject: Subject) -> None:
    """The measures that it reads are registered."""
    known = subject.catalogue.names("evidence")
    for name in _read(subject):
        if name not in known:
            raise ContractViolation(
                f"it reads the measure {name!r}, which no plugin registers{nearest(name, known)}; name a "
                "registered one, or register it in the same plugin"
            )


@check("policy")
def check_default_constraints_exist(subject: Subject) -> None:
    """The constraints that it brings along are registered."""
    known = subject.catalogue.names("constraint")
    for name in subject.component.default_constraints:
        if name not in known:
            raise ContractViolation(
                f"default_constraints names {name!r}, which no plugin registers{nearest(name, known)}; "
                "name a registered constraint, or register it in the same plugin"
            )


@check("policy")
def check_policy_is_total(subject: Subject) -> None:
    """It decides on any legal evidence: no set, all closed or unmeasured, ties, extreme angles and errors."""
    policy = _policy(subject)
    for evidence in _records(subject):
        decision = _decide(policy, evidence)
        if not isinstance(decision, Grow | Reuse):
            raise ContractViolation(
                f"decide returns {decision!r} on {_shown(evidence)}; return Grow() or Reuse(set)"
            )


@check("policy")
def check_names_only_live_sets(subject: Subject) -> None:
    """A set that it reuses is one that exists."""
    policy = _policy(subject)
    for evidence in _records(subject):
        decision, live = _decide(policy, evidence), {one.set for one in evidence.candidates}
        if isinstance(decision, Reuse) and decision.set not in live:
            raise ContractViolation(
                f"decide reuses set {decision.set!r} on {_shown(evidence)}; return the set attribute of a "
                "candidate, not its position, and Grow() where there is none"
            )


@check("policy")
def check_excluded_sets_stay_out(subject: Subject) -> None:
    """A policy that asks for evidence never reuses a set that the evidence excludes."""
    policy = _policy(subject)
    for evidence in _records(subject) if _read(subject) else ():
        decision, closed = _decide(policy, evidence), {c.set: c.excluded for c in evidence.candidates}
        if isinstance(decision, Reuse) and closed.get(decision.set):
            raise ContractViolation(
                f"decide reuses set {decision.set} on {_shown(evidence)}, though it is excluded "
                f"({closed[decision.set]}); choose among evidence.eligible, or declare measures = ()"
            )


@check("policy")
def check_policy_is_deterministic(subject: Subject) -> None:
    """The same evidence and generator state give the same decision, whatever was decided before."""
    records, policy = _records(subject), _policy(subject)
    first = [_decide(policy, evidence) for evidence in records]
    again = [_decide(policy, evidence) for evidence in reversed(records)][::-1]
    fresh = [_decide(_policy(subject), evidence) for evidence in records]
    for evidence, one, *others in zip(records, first, again, fresh, strict=True):
        if others != [one, one]:
            raise ContractViolation(
                f"decide gives {one}, then {others[0]}, and {others[1]} when built anew, on "
                f"{_shown(evidence)}; keep no state between decisions, and read no clock or global generator"
            )


@check("policy")
def check_draws_from_its_generator_alone(subject: Subject) -> None:
    """It draws from the generator it is given: global ones are neither read nor moved."""
    policy = _policy(subject)
    found: list[list[Decision]] = []
    for seed in (1, 2):
        with seeded(seed) as generators:
            found.append([_decide(policy, evidence) for evidence in _records(subject)])
            moved = generators.moved()
        if moved:
            raise ContractViolation(
                f"decide draws from the global generator of {' and '.join(moved)}; draw from rng alone"
            )
    for evidence, one, other in zip(_records(subject), *found, strict=True):
        if one != other:
            raise ContractViolation(
                f"decide gives {one} or {other} on {_shown(evidence)} as the global seed goes; draw from "
                "rng alone"
            )


@check("policy")
def check_leaves_the_evidence_alone(subject: Subject) -> None:
    """The evidence is the same after a decision: it goes into the record."""
    policy = _policy(subject)
    for evidence in _records(subject):
        given = copy.deepcopy(evidence)
        _decide(policy, given)
        if given != evidence:
            raise ContractViolation(
                f"decide changes the evidence it is given ({_shown(evidence)}); work on copies"
            )


@check("policy")
def check_record_tells_the_truth(subject: Subject) -> None:
    """What its record declares holds: adds_always never reuses, measures = () needs none."""
    component, policy = subject.component, _policy(subject)
    for evidence in _records(subject):
        decision = _decide(policy, evidence)
        if component.adds_always and decision != Grow():
            raise ContractViolation(
                f"it declares adds_always and gives {decision} on {_shown(evidence)}; declare it False: "
                "baselines of one fixed set rely on it"
            )
        if not _read(subject) and decision != _decide(policy, _unmeasured(evidence)):
            raise ContractViolation(
                f"it declares measures = () and decides otherwise when {_shown(evidence)} is not measured; "
                "name what it reads, else nothing will be measured for it"
            )


def _policy(subject: Subject) -> Any:
    return available(lambda: subject.component.build(subject.config))


def _decide(policy: Any, evidence: Evidence) -> Decision:
    remedy = "return a decision on any evidence: Grow() where no candidate is measured"
    with bearing(f"decide, on {_shown(evidence)},", remedy):
        decision: Decision = policy.decide(evidence, np.random.default_rng(7))
    return decision


def _unmeasured(evidence: Evidence) -> Evidence:
    bare = (CandidateEvidence(set=one.set, rank=one.rank) for one in evidence.candidates)
    return attrs.evolve(evidence, candidates=tuple(bare))


def _read(subject: Subject) -> tuple[str, ...]:
    """Return the measures that the policy reads."""
    found: tuple[str, ...] = subject.component.reads(subject.config)
    return found


def _shown(evidence: Evidence) -> str:
    def one(candidate: CandidateEvidence) -> str:
        said = [
            f"{name} {measured.value:.4g} +- {'?' if measured.error is None else f'{measured.error:.2g}'}"
            for name, measured in candidate.measures.items()
            if measured.value is not None
        ]
        told = "excluded" if candidate.excluded else ", ".join(said) or "unmeasured"
        return f"set {candidate.set}: {told}"

    return f"task {evidence.task} [{', '.join(map(one, evidence.candidates)) or 'no set'}]"


# -- evidence -----------------------------------------------------------------------------------------------


def _records(subject: Subject) -> tuple[Evidence, ...]:
    """Return legal evidence of what the policy reads (else hindrance) and its options do not refuse."""
    policy = _policy(subject)

    def fits(evidence: Evidence) -> bool:
        try:
            policy.decide(copy.deepcopy(evidence), np.random.default_rng(7))
        except ConfigError:  # such as a map of tasks to sets that this stream does not have
            return False
        # what else it may raise is for the checks to tell
        except Exception:
            return True
        return True

    def chosen() -> tuple[Evidence, ...]:
        return tuple(filter(fits, _made(_read(subject) or ("hindrance",))))

    found: tuple[Evidence, ...] = subject.once("records", chosen)
    if not found:
        raise NotApplicable("its options refuse every record of evidence")
    return found


@cache
def _made(measures: tuple[str, ...]) -> tuple[Evidence, ...]:
    """Return every corner by hand, and many random records, the same in every process."""
    rng = np.random.default_rng(20)
    return (*_corners(measures), *(_random_record(measures, rng) for _ in range(_RANDOM_RECORDS)))


def _corners(measures: tuple[str, ...]) -> Iterator[Evidence]:
    yield Evidence(task=0)
    yield Evidence(task=3)
    for count in (1, 4):
        yield _evidence(
            [CandidateEvidence(set=i, rank=8, excluded="its space is full") for i in range(count)]
        )
        yield _evidence([CandidateEvidence(set=i) for i in range(count)])
        undefined = Measured(why="gradient is zero at every site")
        yield _evidence([_with(i, dict.fromkeys(measures, undefined)) for i in range(count)])
        for value in _VALUES:
            for error in _ERRORS:
                for null, alike in ((None, 1), (0.5, -1)):
                    said = Measured(value=value, error=error, null=null, alike=alike)  # type: ignore[arg-type]
                    yield _evidence([_with(i, dict.fromkeys(measures, said)) for i in range(count)])


def _random_record(measures: tuple[str, ...], rng: np.random.Generator) -> Evidence:
    ids = np.sort(rng.choice(15, size=rng.integers(0, 9), replace=False))  # ids may have gaps
    alike = {name: int(rng.choice([1, -1])) for name in measures}
    candidates = [_random_candidate(alike, rng, int(set_id)) for set_id in ids]
    return _evidence(candidates, int(rng.integers(1, 4)))


def _random_candidate(alike: Mapping[str, int], rng: np.random.Generator, set_id: int) -> CandidateEvidence:
    kind = rng.choice(["measured", "excluded", "unmeasured"], p=[0.7, 0.2, 0.1])
    if kind == "unmeasured":
        return CandidateEvidence(set=set_id)
    if kind == "excluded":
        return CandidateEvidence(set=set_id, rank=32, excluded="its space is full")
    return _with(set_id, {name: _random_measured(sign, rng) for name, sign in alike.items()})


def _random_measured(alike: Any, rng: np.random.Generator) -> Measured:
    value, null, own = rng.normal(0, [30.0, 1.0, 1.0][rng.integers(3)], 3)
    if rng.random() < 0.5:  # coarse values tie
        value = round(float(value), -1)
    error = [None, 0.0, float(rng.exponential(2.0))][rng.integers(3)]
    return Measured(
        value=float(value),
        error=error,
        null=[None, float(null)][rng.integers(2)],
        own=[None, float(own)][rng.integers(2)],
        alike=alike,
        parts={"hfc": float(abs(value)) % 90},
        sites={"blocks.0": {"value": float(value), "null": float(null)}, "blocks.1": {"value": None}},
        replicates=tuple(error * one for one in (1.0, -1.0, 0.5, -0.5)) if error else (),
    )


def _with(set_id: int, measures: Mapping[str, Measured]) -> CandidateEvidence:
    return CandidateEvidence(set=set_id, measures=measures, rank=12)


def _evidence(candidates: Sequence[CandidateEvidence], more: int = 0) -> Evidence:
    return Evidence(task=len(candidates) + more, candidates=tuple(candidates))
