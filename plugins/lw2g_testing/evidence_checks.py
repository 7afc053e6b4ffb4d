"""Checks of a measure: it only reads, gives the same values again, and declares what it needs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import attrs

from lw2g.interfaces.evidence import NEEDS, Measure
from lw2g.interfaces.growth import CandidateEvidence, Measurement
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.trial import Trials
from lw2g_testing.cases import ContractViolation, Subject, check, error_line
from lw2g_testing.guards import available
from lw2g_testing.small_run import SmallRun, learned, opened, resumed, whole

_CLOSE = 1e-6


@check("evidence")
def check_measures_a_small_stream(subject: Subject) -> None:
    """It declares what it needs and stores, and measures a live set: a value, its unit and its n."""
    _require_measure(available(lambda: subject.component.build(subject.config)))
    run = whole(subject)
    if isinstance(run, Exception):
        raise ContractViolation(
            f"{error_line(run)}; it has to measure the sets of a small run (3 tasks of 2 and 3 classes, up "
            "to 15 images of each looked at, in groups of one, so that a group lacks a class)"
        ) from run
    # before the first task there is no set to measure
    entries = [*_measured(subject, run, 1).values(), *_measured(subject, run, 2).values()]
    if all(entry["value"] is None for entry in entries):
        reasons = sorted({str(entry["why"]) for entry in entries}) or ["it leaves every set out"]
        raise ContractViolation(f"it says nothing of any set of a small run ({', '.join(reasons)})")
    for entry in entries:
        if entry["value"] is None:
            if not entry["why"]:
                raise ContractViolation("its value is None and 'why' is empty; say why it is undefined")
        elif entry["n"] < 1 or not entry["unit"]:
            raise ContractViolation(
                f"its value has n = {entry['n']} and the unit {entry['unit']!r}; give both: records show them"
            )


def _require_measure(measure: Any) -> None:
    """Refuse an object that is no measure, or declares needs and times of storing that there are not."""
    if not isinstance(measure, Measure):
        raise ContractViolation(f"build returns {measure!r}; derive its class from lw2g's Measure")
    for name in ("needs", "store_needs"):
        strange = sorted(set(getattr(measure, name)) - set(NEEDS))
        if strange:
            raise ContractViolation(f"{name} has {strange[0]!r}; choose among {', '.join(NEEDS)}")
    if measure.stores not in (None, "begin", "end"):
        raise ContractViolation(f"stores is {measure.stores!r}; say 'begin', 'end' or None")
    if (measure.stores is None) != (type(measure).store is Measure.store):
        raise ContractViolation(
            "it has a method store and says stores = None, or the other way round; say when"
        )


@check("evidence")
def check_resumes_with_what_it_stored(subject: Subject) -> None:
    """A run resumed within a task has the evidence of the uninterrupted run."""
    uninterrupted = learned(subject)
    later = resumed(subject)
    for task in later.decisions:
        if _measured(subject, uninterrupted, task) != _measured(subject, later, task):
            raise ContractViolation(
                f"what it says before task {task + 1} differs of a resumed run and of an uninterrupted one; "
                "draw from sample.generator(purpose) alone, keep what is needed later in what store returns, "
                "and nothing on the measure itself"
            )


@check("evidence")
def check_other_candidates_do_not_matter(subject: Subject) -> None:
    """The value of a set does not depend on the other candidates."""
    run = learned(subject)
    session = opened(subject, run.checkpoints[run.tasks - 1])
    task = session.data.stream.tasks[-1]  # as if it had not been learned yet
    evidence_sample = session.parts.evidence_sample(
        task.index, session.data.image_set([task.train], train=False)
    )
    trials = partial(Trials, session, evidence_sample)
    together = collect_evidence(session.parts, evidence_sample, trials=trials).candidates
    # screening leaves one candidate: its evidence must be the same with and without the others
    growth = attrs.evolve(session.parts.config.growth, screen=1)
    config = attrs.evolve(session.parts.config, growth=growth)
    few = attrs.evolve(session.parts, config=config)
    alone = collect_evidence(few, evidence_sample, trials=trials).candidates
    for among_others, candidate in zip(together, alone, strict=True):
        if candidate.excluded is None and not _alike(_of(subject, among_others), _of(subject, candidate)):
            raise ContractViolation(
                f"of set {candidate.set} it says {_of(subject, among_others)} beside another candidate, and "
                f"{_of(subject, candidate)} without; let what it says of a set depend on that set and the "
                "images"
            )


def _of(subject: Subject, candidate: CandidateEvidence) -> Measurement | None:
    return candidate.measures.get(subject.component.name)


def _alike(first: Measurement | None, second: Measurement | None) -> bool:
    """Return whether two measurements are equal up to rounding; None equals None alone."""
    if first is None or second is None:
        return first is second
    for name in ("value", "error", "null", "own"):
        one = getattr(first, name)
        other = getattr(second, name)
        if one is None and other is None:
            continue
        if one is None or other is None or not math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE):
            return False
    return True


def _measured(subject: Subject, run: SmallRun, task: int) -> dict[int, dict[str, Any]]:
    """Return the measure's entry of each set before a task was learned."""
    name = subject.component.name
    candidates = run.decisions.get(task, {}).get("candidates", ())
    return {each["set"]: each["measures"][name] for each in candidates if name in each["measures"]}
