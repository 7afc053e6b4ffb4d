"""What the framework relies on in a measure: it only looks, says the same again, and says what it needs."""

from __future__ import annotations

import math
from typing import Any

import attrs

from lw2g.interfaces.evidence import NEEDS, Measure
from lw2g.interfaces.growth import CandidateEvidence, Measurement
from lw2g.testing.guards import available
from lw2g.testing.kit import ContractViolation, Subject, check, error_line
from lw2g.testing.world import SmallRun, learned, opened, resumed, whole
from lw2g.training.evidence.collecting import collect_evidence

__all__ = [
    "check_measures_a_small_stream",
    "check_other_candidates_do_not_matter",
    "check_resumes_with_what_it_stored",
]

_CLOSE = 1e-6


@check("evidence")
def check_measures_a_small_stream(subject: Subject) -> None:
    """It declares what it is shown and stores, and says something of a live set: in a unit, of n images."""
    _require_measure(available(lambda: subject.component.build(subject.config)))
    run = whole(subject)
    if isinstance(run, Exception):
        raise ContractViolation(
            "make it measure the sets of a small run (3 tasks of 2 and 3 classes, up to 15 images of each "
            f"looked at, in groups of one, so that a group lacks a class). It raised {error_line(run)}"
        ) from run
    said = [one for task in (1, 2) for one in _said(subject, run, task).values()]
    defined = [one for one in said if one["value"] is not None]
    if not defined:
        reasons = sorted({str(one["why"]) for one in said}) or ["it leaves every set out"]
        raise ContractViolation(f"it says nothing of any set of a small run ({', '.join(reasons)})")
    for one in defined:
        if one["n"] < 1 or not one["unit"]:
            raise ContractViolation(
                f"its value has n = {one['n']} and the unit {one['unit']!r}; give both, for records show them"
            )
    if any(one["value"] is None and not one["why"] for one in said):
        raise ContractViolation("its value is None and 'why' is empty; say why it is undefined")


def _require_measure(measure: Any) -> None:
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
    """A second run that is cut within a task and resumed has the evidence of the first one."""
    first, rest = learned(subject), resumed(subject)
    for task in rest.decisions:
        if _said(subject, first, task) != _said(subject, rest, task):
            raise ContractViolation(
                f"what it says before task {task + 1} differs of a resumed run and of an uninterrupted one; "
                "draw from sample.generator(purpose) alone, keep what is needed later in what store returns, "
                "and nothing on the measure itself"
            )


@check("evidence")
def check_other_candidates_do_not_matter(subject: Subject) -> None:
    """What it says of a set is the same whichever other sets are candidates."""
    run = learned(subject)
    session = opened(subject, run.checkpoints[run.tasks - 1])
    task = session.stream.tasks[-1]  # as if it had not been learned yet
    d_sub = session.d_sub(task.index, session.image_set([task.train], train=False))
    together = collect_evidence(session, d_sub).candidates
    growth = attrs.evolve(session.config.growth, screen=1)
    config = attrs.evolve(session.config, growth=growth)
    alone = collect_evidence(attrs.evolve(session, config=config), d_sub).candidates
    for one, other in zip(together, alone, strict=True):
        if other.excluded is None and not _alike(_of(subject, one), _of(subject, other)):
            raise ContractViolation(
                f"of set {one.set} it says {_of(subject, one)} beside another candidate, and "
                f"{_of(subject, other)} without; let what it says of a set depend on that set and the images"
            )


def _of(subject: Subject, candidate: CandidateEvidence) -> Measurement | None:
    return candidate.measures.get(subject.component.name)


def _alike(one: Measurement | None, other: Measurement | None) -> bool:
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
