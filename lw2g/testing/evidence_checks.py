"""What the framework relies on in a measure: it only looks, says the same again, and says what it needs."""

from __future__ import annotations

import math
from typing import Any, get_args

import attrs

from lw2g.interfaces.evidence import NEEDS, Measure, Moment
from lw2g.interfaces.growth import CandidateEvidence, Measured
from lw2g.testing.guards import available
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check, told
from lw2g.testing.small_run import SmallRun, interrupted, learned, opened, repeated, whole
from lw2g.training.evidence.collecting import collect_evidence

__all__ = [
    "check_is_a_measure",
    "check_measures_a_small_stream",
    "check_other_candidates_do_not_matter",
    "check_resumes_with_what_it_stored",
    "check_says_the_same_again",
]

_CLOSE = 1e-6


@check("evidence")
def check_is_a_measure(subject: Subject) -> None:
    """It can be built from its options and declares what it is shown, and when it stores."""
    measure = available(lambda: subject.component.build(subject.config))
    if not isinstance(measure, Measure):
        raise ContractViolation(f"build returns {measure!r}; derive its class from lw2g's Measure")
    for name in ("needs", "store_needs"):
        strange = sorted(set(getattr(measure, name)) - set(NEEDS))
        if strange:
            raise ContractViolation(f"{name} has {strange[0]!r}; choose among {', '.join(NEEDS)}")
    if measure.stores not in (None, *get_args(Moment)):
        raise ContractViolation(f"stores is {measure.stores!r}; say 'begin', 'end' or None")
    if (measure.stores is None) != (type(measure).store is Measure.store):
        raise ContractViolation(
            "it has a method store and says stores = None, or the other way round; say when"
        )


@check("evidence")
def check_measures_a_small_stream(subject: Subject) -> None:
    """It says something of a live set in a run of three tasks, of so many images, in a unit."""
    found = whole(subject)
    if isinstance(found, Exception):
        raise ContractViolation(
            "make it measure the sets of a small run (3 tasks of 2 classes, 16 images of each looked at, in "
            f"groups of one, so that a group lacks a class). It raised {told(found)}"
        ) from found
    said = [one for task in (1, 2) for one in _said(subject, found, task).values()]
    defined = [one for one in said if one["value"] is not None]
    if not defined:
        reasons = sorted({str(one["why"]) for one in said}) or ["it leaves every set out"]
        raise ContractViolation(f"it says nothing of any set of a small run ({', '.join(reasons)})")
    for one in defined:
        if one["n"] < 1 or not one["unit"]:
            raise ContractViolation(
                f"its value has n = {one['n']} and the unit {one['unit']!r}; give both, for records show them"
            )
    for one in said:
        if one["value"] is None and not one["why"]:
            raise ContractViolation("its value is None and 'why' is empty; say why it is undefined")


@check("evidence")
def check_says_the_same_again(subject: Subject) -> None:
    """Two runs with the same seed have the same evidence."""
    _must_agree(
        subject,
        learned(subject),
        repeated(subject),
        "of two runs with the same seed; draw from sample.generator(purpose) alone",
    )


@check("evidence")
def check_resumes_with_what_it_stored(subject: Subject) -> None:
    """A run that is cut within a task and resumed has the evidence of an uninterrupted one."""
    _must_agree(
        subject,
        learned(subject),
        interrupted(subject),
        "of a resumed run and of an uninterrupted one; keep what is needed later in what store returns, and "
        "nothing on the measure itself",
    )


@check("evidence")
def check_other_candidates_do_not_matter(subject: Subject) -> None:
    """What it says of a set is the same whichever other sets are candidates."""
    run = learned(subject)
    session = opened(subject, run.resolved, run.checkpoints[run.tasks - 1])
    task = session.stream.tasks[-1]  # as if it had not been learned yet
    probe = session.probe(task.index, session.image_set([task.train], train=False))
    together = collect_evidence(session, probe).candidates
    growth = attrs.evolve(session.config.growth, screen=1)
    config = attrs.evolve(session.config, growth=growth)
    alone = collect_evidence(attrs.evolve(session, config=config), probe).candidates
    if not any(one.excluded for one in alone):
        raise NotApplicable("there is but one set in a small run")
    if all(one.excluded for one in alone):
        raise NotApplicable("every set of a small run is full")
    for one, other in zip(together, alone, strict=True):
        if other.excluded is None and not _alike(_of(subject, one), _of(subject, other)):
            raise ContractViolation(
                f"of set {one.set} it says {_of(subject, one)} beside another candidate, and "
                f"{_of(subject, other)} without; let what it says of a set depend on that set and the images"
            )


def _of(subject: Subject, candidate: CandidateEvidence) -> Measured | None:
    return candidate.measures.get(subject.component.name)


def _alike(one: Measured | None, other: Measured | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("value", "error", "null", "own")]
    return all(
        a is b if a is None or b is None else math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE)
        for a, b in pairs
    )


def _said(subject: Subject, run: SmallRun, task: int) -> dict[int, dict[str, Any]]:
    """Return what was said of each set before a task was learned."""
    name = subject.component.name
    candidates = run.decisions.get(task, {}).get("candidates", ())
    return {one["set"]: one["measures"][name] for one in candidates if name in one["measures"]}


def _must_agree(subject: Subject, one: SmallRun, other: SmallRun, whose: str) -> None:
    for task in other.decisions:
        if _said(subject, one, task) != _said(subject, other, task):
            raise ContractViolation(f"what it says before task {task + 1} differs {whose}")
