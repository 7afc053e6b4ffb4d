"""Checks of a growth policy: it is a pure, total function of evidence and generator."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from lw2g.errors import ConfigError, ContractError, nearest
from lw2g.interfaces.defaults import DEFAULT_MEASURES
from lw2g.interfaces.growth import (
    CandidateEvidence,
    Decision,
    Evidence,
    Grow,
    Measurement,
    Measures,
    Merge,
    Reuse,
)
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, check, line_of_author, methods_of
from lw2g_testing.guards import available, bearing, seeded

_RANDOM_RECORDS = 150
_VALUES = (-90.0, -1e-12, 0.0, 5e-324, 0.5, 1.0, 90.0)
_ERRORS = (None, 0.0, 5e-324, 1.0, 1e300)


@check("policy")
def check_names_what_exists(subject: Subject) -> None:
    """The measures that it reads and its default constraints are registered."""
    named = [
        ("evidence", "it reads the measure", _read(subject)),
        ("constraint", "default_constraints names", subject.component.default_constraints),
    ]
    for kind, what, names in named:
        known = subject.catalogue.names(kind)  # type: ignore[arg-type]
        for name in set(names) - set(known):
            raise ContractViolation(
                f"{what} {name!r}, which no plugin registers{nearest(name, known)}; name a registered "
                "one, or register it in the same plugin"
            )


@check("policy")
def check_decides_on_any_evidence(subject: Subject) -> None:
    """On any legal evidence, which it leaves as it is, it grows or reuses a live set that is not excluded."""
    policy = _policy(subject)
    for evidence in _records(subject):
        given = copy.deepcopy(evidence)
        decision = _decide(policy, given)
        where = f"on {_shown(evidence)}"
        if given != evidence:
            raise ContractViolation(
                f"decide changes the evidence it is given ({_shown(evidence)}); work on copies"
            )
        if not isinstance(decision, Grow | Reuse | Merge):
            raise ContractViolation(
                f"decide returns {decision!r} {where}; let {methods_of(policy, 'decide')} return Grow(), "
                "Reuse(set) or Merge(set, weight)"
            )
        exclusions = {candidate.set: candidate.excluded for candidate in evidence.candidates}
        if isinstance(decision, Reuse | Merge) and decision.set not in exclusions:
            raise ContractViolation(
                f"decide reuses set {decision.set!r} {where}; return the set attribute of a candidate, not "
                "its position, and Grow() where there is none"
            )
        # a policy that reads no measure never gets excluded sets
        if isinstance(decision, Reuse | Merge) and exclusions[decision.set] and _read(subject):
            raise ContractViolation(
                f"decide reuses set {decision.set} {where}, though it is excluded "
                f"({exclusions[decision.set]}); choose among evidence.eligible, or declare measures = ()"
            )


@check("policy")
def check_same_evidence_same_decision(subject: Subject) -> None:
    """Its decision depends on the evidence and the given generator alone, not on earlier decisions."""
    records = _records(subject)
    policy = _policy(subject)
    with seeded(1) as generators:
        first = [_decide(policy, evidence) for evidence in records]
        generators.refuse_draws("decide", "; draw from rng alone")
    with seeded(1):
        # the same object asked in another order, then a new object for each record
        again = [_decide(policy, evidence) for evidence in reversed(records)]
        again.reverse()
        fresh = _decided_anew(subject, records)
    with seeded(2):
        other = _decided_anew(subject, records)
    for evidence, decision, later, rebuilt, reseeded in zip(records, first, again, fresh, other, strict=True):
        if (later, rebuilt) != (decision, decision):
            raise ContractViolation(
                f"decide gives {decision}, then {later}, and {rebuilt} when built anew, on "
                f"{_shown(evidence)}; keep no state between decisions, and read no clock or global generator"
            )
        if reseeded != decision:
            raise ContractViolation(
                f"decide gives {decision} or {reseeded} on {_shown(evidence)}, depending on the global seed; "
                "draw from rng alone"
            )


@check("policy")
def check_record_tells_the_truth(subject: Subject) -> None:
    """What it declares holds: margin, burden, adds_always, and measures = () if it reads none."""
    component = subject.component
    policy = _policy(subject)
    margin = getattr(policy, "margin", None)
    burden = getattr(policy, "burden", "unsaid")
    wrong = []
    if not isinstance(margin, int | float) or not math.isfinite(margin) or margin < 0:
        wrong.append(
            f"its margin is {margin!r}; set the attribute margin to a finite number from 0 (0 where it uses "
            "no error)"
        )
    if burden not in ("grow", "reuse", None):
        wrong.append(
            f"its burden is {burden!r}; set the attribute burden to 'grow' or 'reuse', whichever noisy "
            "evidence does not bring about, or to None where it reads no measure"
        )
    if wrong:
        raise ContractViolation(f"{'; '.join(wrong)}, since every record shows it")
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


def _decided_anew(subject: Subject, records: Sequence[Evidence]) -> list[Decision]:
    """Return the decision of a new object on each record; what can be had is found out for all at once."""

    def decide() -> list[Decision]:
        return [_decide(subject.component.build(subject.config), evidence) for evidence in records]

    return available(decide)


def _decide(policy: Any, evidence: Evidence) -> Decision:
    remedy = "return a decision on any evidence: Grow() where no candidate is measured"
    with bearing(f"decide, on {_shown(evidence)},", remedy):
        try:
            decision: Decision = policy.decide(evidence, np.random.default_rng(7))
        except ContractError as error:  # it says what to do itself
            place = line_of_author(error)
            raise ContractViolation(f"{error} ({place})" if place else str(error)) from error
    return decision


def _unmeasured(evidence: Evidence) -> Evidence:
    bare = (CandidateEvidence(set=each.set, rank=each.rank) for each in evidence.candidates)
    return attrs.evolve(evidence, candidates=tuple(bare))


def _read(subject: Subject) -> tuple[str, ...]:
    """Return the measures that the policy reads."""
    names: tuple[str, ...] = subject.component.reads(subject.config)
    return names


def _shown(evidence: Evidence) -> str:
    """Return evidence in short, for a message."""
    candidates = ", ".join(f"set {each.set}: {_shown_of(each)}" for each in evidence.candidates)
    return f"task {evidence.task} [{candidates or 'no set'}]"


def _shown_of(candidate: CandidateEvidence) -> str:
    """Return a candidate as text for a message."""
    if candidate.excluded:
        return "excluded"
    values = []
    for name, measured in candidate.measures.items():
        if measured.value is not None:
            error = "?" if measured.error is None else f"{measured.error:.2g}"
            values.append(f"{name} {measured.value:.4g} +- {error}")
    return ", ".join(values) or "unmeasured"


# -- evidence -----------------------------------------------------------------------------------------------


def _records(subject: Subject) -> tuple[Evidence, ...]:
    """Return legal evidence with the measures that the policy reads (else hindrance) and does not refuse.

    Raises:
        NotApplicable: No plugin registers a measure that it reads, or it refuses all evidence.
    """
    if not set(_read(subject)) <= set(subject.catalogue.names("evidence")):
        raise NotApplicable("not tried: it reads an unknown measure; see the check 'names_what_exists'")
    policy = _policy(subject)

    def fits(evidence: Evidence) -> bool:
        """Return whether the policy takes this evidence at all, its own errors included."""
        try:
            policy.decide(copy.deepcopy(evidence), np.random.default_rng(7))
        except ConfigError:  # such as a map of tasks to sets that this stream does not have
            return False
        except Exception:  # the checks report it
            return True
        return True

    def chosen() -> tuple[Evidence, ...]:
        return tuple(filter(fits, _made(_read(subject) or DEFAULT_MEASURES)))

    records: tuple[Evidence, ...] = subject.once("records", chosen)
    if not records:
        raise NotApplicable("its options refuse every record of evidence")
    return records


@cache
def _made(measures: tuple[str, ...]) -> tuple[Evidence, ...]:
    """Return all corner cases and many random records, the same in every process."""
    rng = np.random.default_rng(20)
    return (*_corners(measures), *(_random_record(measures, rng) for _ in range(_RANDOM_RECORDS)))


def _corners(measures: tuple[str, ...]) -> Iterator[Evidence]:
    """Yield evidence at the edges: no set, sets without numbers, extreme numbers, sets that are all alike."""
    yield Evidence(task=0)
    yield Evidence(task=3)
    values = [Measurement(why="gradient is zero at every site")]
    for value, error in itertools.product(_VALUES, _ERRORS):
        values.append(Measurement(value=value, error=error, null=None, alike=1))
        values.append(Measurement(value=value, error=error, null=0.5, alike=-1))
    nothing = Measures({}, measures)
    kinds: list[dict[str, Any]] = [
        {"rank": 8, "measures": nothing, "excluded": "its space is full"},
        {"measures": nothing},
    ]
    for measured in values:
        kinds.append({"rank": 12, "measures": Measures(dict.fromkeys(measures, measured), measures)})
    # of four sets that are all alike, too: a policy has to break ties
    for count in (1, 4):
        for fields in kinds:
            candidates = tuple(CandidateEvidence(set=number, **fields) for number in range(count))
            yield Evidence(task=count, candidates=candidates, task_to_set=tuple(range(count)))


def _random_record(measures: tuple[str, ...], rng: np.random.Generator) -> Evidence:
    ids = np.sort(rng.choice(15, size=rng.integers(0, 9), replace=False))  # ids may have gaps
    alike = {name: int(rng.choice([1, -1])) for name in measures}
    candidates = tuple(_random_candidate(alike, rng, int(set_id)) for set_id in ids)
    task = len(candidates) + int(rng.integers(1, 4))
    # every live set holds a task, and some hold several
    owners = ids.tolist()
    if owners:
        owners += rng.choice(ids, size=task - len(ids)).tolist()
    return Evidence(task=task, candidates=candidates, task_to_set=tuple(owners))


def _random_candidate(alike: Mapping[str, int], rng: np.random.Generator, set_id: int) -> CandidateEvidence:
    """Return a candidate that is measured, excluded or unmeasured at random."""
    kind = rng.choice(["measured", "excluded", "unmeasured"], p=[0.7, 0.2, 0.1])
    nothing = Measures({}, tuple(alike))
    if kind == "unmeasured":
        return CandidateEvidence(set=set_id, measures=nothing)
    if kind == "excluded":
        return CandidateEvidence(set=set_id, measures=nothing, rank=32, excluded="its space is full")
    said = {name: _random_measured(sign, rng) for name, sign in alike.items()}
    return CandidateEvidence(set=set_id, measures=Measures(said, tuple(alike)), rank=12)


def _random_measured(alike: Any, rng: np.random.Generator) -> Measurement:
    """Return a measurement of random numbers, some of them rounded and some missing."""
    # degrees, or a measure whose numbers are small
    value, null, own = rng.normal(0, [30.0, 1.0, 1.0][rng.integers(3)], 3)
    if rng.random() < 0.5:  # coarse values tie
        value = round(float(value), -1)
    error = [None, 0.0, float(rng.exponential(2.0))][rng.integers(3)]
    replicates: tuple[float, ...] = ()
    if error:
        replicates = tuple(error * factor for factor in (1.0, -1.0, 0.5, -0.5))
    return Measurement(
        value=float(value),
        error=error,
        null=[None, float(null)][rng.integers(2)],
        own=[None, float(own)][rng.integers(2)],
        alike=alike,
        parts={"hfc": float(abs(value)) % 90},
        sites={"blocks.0": {"value": float(value), "null": float(null)}, "blocks.1": {"value": None}},
        replicates=replicates,
    )
