"""What the framework relies on in a growth policy: a pure, total function of evidence and generator."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from lw2g.errors import nearest
from lw2g.interfaces.growth import CandidateEvidence, Decision, Evidence, Grow, Reuse, SiteEvidence
from lw2g.testing.guards import available, bearing, seeded
from lw2g.testing.kit import ContractViolation, Subject, check

__all__ = [
    "check_default_constraints_exist",
    "check_draws_from_its_generator_alone",
    "check_excluded_sets_stay_out",
    "check_leaves_the_evidence_alone",
    "check_margin_is_a_number",
    "check_names_only_live_sets",
    "check_policy_is_deterministic",
    "check_policy_is_total",
    "check_record_tells_the_truth",
]

_RANDOM_RECORDS = 150
_ANGLES = (0.0, 5e-324, 1e-12, 45.0, 90.0 - 1e-12, 90.0)
_ERRORS = (None, 0.0, 5e-324, 1.0, 1e300)


@check("policy")
def check_margin_is_a_number(subject: Subject) -> None:
    """It can be built from its options and says by its margin how many errors Z must clear."""
    margin = getattr(_policy(subject), "margin", None)
    if not isinstance(margin, int | float) or not math.isfinite(margin) or margin < 0:
        raise ContractViolation(
            f"its margin is {margin!r}; set the attribute margin to a finite number from 0 "
            "(0 where it uses no error), since every record shows it"
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
    for evidence in _records():
        decision = _decide(policy, evidence)
        if not isinstance(decision, Grow | Reuse):
            raise ContractViolation(
                f"decide returns {decision!r} on {_shown(evidence)}; return Grow() or Reuse(set)"
            )


@check("policy")
def check_names_only_live_sets(subject: Subject) -> None:
    """A set that it reuses is one that exists."""
    policy = _policy(subject)
    for evidence in _records():
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
    for evidence in _records() if subject.component.needs_evidence else ():
        decision, closed = _decide(policy, evidence), {c.set: c.excluded for c in evidence.candidates}
        if isinstance(decision, Reuse) and closed.get(decision.set):
            raise ContractViolation(
                f"decide reuses set {decision.set} on {_shown(evidence)}, though it is excluded "
                f"({closed[decision.set]}); choose among evidence.eligible, or declare needs_evidence = False"
            )


@check("policy")
def check_policy_is_deterministic(subject: Subject) -> None:
    """The same evidence and generator state give the same decision, whatever was decided before."""
    records, policy = _records(), _policy(subject)
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
            found.append([_decide(policy, evidence) for evidence in _records()])
            moved = generators.moved()
        if moved:
            raise ContractViolation(
                f"decide draws from the global generator of {' and '.join(moved)}; draw from rng alone"
            )
    for evidence, one, other in zip(_records(), *found, strict=True):
        if one != other:
            raise ContractViolation(
                f"decide gives {one} or {other} on {_shown(evidence)} as the global seed goes; draw from "
                "rng alone"
            )


@check("policy")
def check_leaves_the_evidence_alone(subject: Subject) -> None:
    """The evidence is the same after a decision: it goes into the record."""
    policy = _policy(subject)
    for evidence in _records():
        given = copy.deepcopy(evidence)
        _decide(policy, given)
        if given != evidence:
            raise ContractViolation(
                f"decide changes the evidence it is given ({_shown(evidence)}); work on copies"
            )


@check("policy")
def check_record_tells_the_truth(subject: Subject) -> None:
    """What its record declares holds: adds_always never reuses, needs_evidence = False needs none."""
    component, policy = subject.component, _policy(subject)
    for evidence in _records():
        decision = _decide(policy, evidence)
        if component.adds_always and decision != Grow():
            raise ContractViolation(
                f"it declares adds_always and gives {decision} on {_shown(evidence)}; declare it False: "
                "baselines of one fixed set rely on it"
            )
        if not component.needs_evidence and decision != _decide(policy, _unmeasured(evidence)):
            raise ContractViolation(
                f"it declares needs_evidence = False and decides otherwise when {_shown(evidence)} is not "
                "measured; declare it True, else nothing will be measured for it"
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


def _shown(evidence: Evidence) -> str:
    def one(candidate: CandidateEvidence) -> str:
        z, error = candidate.z, candidate.z_error
        measured = "unmeasured" if z is None else f"Z {z:.4g} +- {'?' if error is None else f'{error:.2g}'}"
        return f"set {candidate.set}: {'excluded' if candidate.excluded else measured}"

    return f"task {evidence.task} [{', '.join(map(one, evidence.candidates)) or 'no set'}]"


# -- evidence -----------------------------------------------------------------------------------------------


@cache
def _records() -> tuple[Evidence, ...]:
    """Return legal evidence: every corner by hand, and many random records, the same in every process."""
    rng = np.random.default_rng(20)
    return (*_corners(), *(_random_record(rng) for _ in range(_RANDOM_RECORDS)))


def _corners() -> Iterator[Evidence]:
    yield Evidence(task=0)
    yield Evidence(task=3)
    for count in (1, 4):
        yield _evidence(
            [CandidateEvidence(set=i, rank=8, excluded="its space is full") for i in range(count)]
        )
        yield _evidence([CandidateEvidence(set=i) for i in range(count)])
        for old in _ANGLES:
            for new in _ANGLES:
                for error in _ERRORS:
                    yield _evidence([_measured(i, old, new, error) for i in range(count)])


def _random_record(rng: np.random.Generator) -> Evidence:
    ids = np.sort(rng.choice(15, size=rng.integers(0, 9), replace=False))  # ids may have gaps
    return _evidence([_random_candidate(rng, int(set_id)) for set_id in ids], int(rng.integers(1, 4)))


def _random_candidate(rng: np.random.Generator, set_id: int) -> CandidateEvidence:
    kind = rng.choice(["measured", "excluded", "unmeasured"], p=[0.7, 0.2, 0.1])
    if kind == "unmeasured":
        return CandidateEvidence(set=set_id)
    if kind == "excluded":
        return CandidateEvidence(set=set_id, rank=32, excluded="its space is full")
    old, new = rng.uniform(0, 90, 2)
    if rng.random() < 0.5:  # coarse values tie
        old, new = round(old, -1), round(new, -1)
    error = [None, 0.0, float(rng.exponential(2.0))][rng.integers(3)]
    return _measured(set_id, float(old), float(new), error)


def _measured(set_id: int, hfc: float, hfc_pre: float, error: float | None) -> CandidateEvidence:
    silent = SiteEvidence(site="blocks.1.prefix_key", hfc=None, hfc_pre=None, rank=4, dim=32)
    loud = SiteEvidence(site="blocks.0.prefix_key", hfc=hfc, hfc_pre=hfc_pre, rank=8, dim=32)
    return CandidateEvidence(
        set=set_id,
        hfc=hfc,
        hfc_pre=hfc_pre,
        z=hfc - hfc_pre,
        z_error=error,
        rank=12,
        null_hfc=30.0,
        energy_null_hfc=None if set_id % 2 else 70.0,
        sites=(loud, silent),
    )


def _evidence(candidates: Sequence[CandidateEvidence], more: int = 0) -> Evidence:
    return Evidence(task=len(candidates) + more, candidates=tuple(candidates))
