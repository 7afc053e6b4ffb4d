"""Checks of growth policies: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from broken_components import Broken, kept
from lw2g.errors import ConfigError
from lw2g.interfaces.component import NoOptions, PolicyComponent
from lw2g.interfaces.growth import Evidence, Grow, Reuse
from lw2g_testing import ContractCase, NotApplicable, contract_cases


def policy(name: str, build: Any, **said: Any) -> PolicyComponent:
    def made(config: NoOptions) -> Any:
        return build()

    made.__wrapped__ = build  # type: ignore[attr-defined]  # the class whose lines messages name
    return PolicyComponent(name=name, config=NoOptions, summary="for tests", build=made, **said)


BROKEN = Broken(policy)
breaks = BROKEN.breaks


class Sane:
    """Reuse the first eligible set, else grow: it keeps every promise."""

    margin = 0.0
    burden = None

    def decide(self, evidence, rng):
        return Reuse(evidence.eligible[0].set) if evidence.eligible else Grow()


@breaks("decides_on_any_evidence", r"it has 'decides' \(.*test_policy_checks\.py:\d+: def decides\(")
class Misspelt:
    margin = 0.0
    burden = None

    def decides(self, evidence, rng):
        return Grow()


@breaks(
    "overrides_what_it_means",
    r"^decide \(.*_checks\.py:\d+\) takes \(self, evidence\); let it take \(self, evidence, rng\)$",
)
class TakesNoGenerator(Sane):
    def decide(self, evidence):
        return Grow()


@breaks("record_tells_the_truth", "margin is None; set the attribute margin")
class WithoutMargin(Sane):
    margin = None


@breaks("record_tells_the_truth", r"margin is -1; set .*; its burden is 'unsaid'; set the attribute burden")
class SaysNeither:
    """Both are told at once."""

    margin = -1

    def decide(self, evidence, rng):
        return Grow()


@breaks("record_tells_the_truth", "burden is 'both'; set the attribute burden")
class ProvesBoth(Sane):
    burden = "both"


@breaks(
    "names_what_exists", "reads the measure 'hindrence'.*did you mean 'hindrance'", measures=("hindrence",)
)
class ForeignMeasure(Sane):
    pass


@breaks(
    "names_what_exists",
    "names 'orthogonl'.*did you mean 'orthogonal'",
    default_constraints=("orthogonl",),
)
class ForeignConstraint(Sane):
    pass


@breaks("decides_on_any_evidence", r"task 0 \[no set\], raises ValueError.*Grow\(\) where no candidate")
class NeedsCandidates(Sane):
    def decide(self, evidence, rng):
        return Reuse(min(one.set for one in evidence.candidates))


@breaks(
    "decides_on_any_evidence",
    r"^decide asks for .* 'hindrence', which is not measured.*did you mean 'hindrance'(?!.*Grow).*"
    r" \(.*test_policy_checks\.py:\d+, in .*: alike = .*\)$",
)
class MisspellsAMeasure(Sane):
    def decide(self, evidence, rng):
        alike = [one.set for one in evidence.eligible if one.measures.get("hindrence")]
        return Reuse(alike[0]) if alike else Grow()


@breaks("decides_on_any_evidence", "unmeasured.* raises KeyError")
class ComparesUndefined(Sane):
    def decide(self, evidence, rng):
        found = [one for one in evidence.eligible if one.measures["hindrance"].value < 0]
        return Reuse(found[0].set) if found else Grow()


@breaks("decides_on_any_evidence", r"decide returns True .*let decide \(.*:\d+\) return Grow\(\), Reuse")
class SaysYes(Sane):
    def decide(self, evidence, rng):
        return True


@breaks(
    "decides_on_any_evidence", r"but got the candidate itself; give .*_checks\.py:\d+, in decide: return Re"
)
class NamesCandidates(Sane):
    def decide(self, evidence, rng):
        return Reuse(evidence.eligible[0]) if evidence.eligible else Grow()


@breaks("decides_on_any_evidence", "set attribute of a candidate, not its position")
class NamesPositions(Sane):
    def decide(self, evidence, rng):
        return Reuse(len(evidence.eligible) - 1) if evidence.eligible else Grow()


@breaks("decides_on_any_evidence", "choose among evidence.eligible")
class ReusesClosed(Sane):
    def decide(self, evidence, rng):
        return Reuse(evidence.candidates[0].set) if evidence.candidates else Grow()


@breaks("same_evidence_same_decision", "keep no state between decisions")
class TakesTurns(Sane):
    def __init__(self):
        self.turn = 0

    def decide(self, evidence, rng):
        self.turn += 1
        return super().decide(evidence, rng) if self.turn % 2 else Grow()


@breaks("same_evidence_same_decision", r"of numpy.random; draw from rng alone; see decide \(.*:\d+\)$")
class DrawsFromNumpy(Sane):
    def decide(self, evidence, rng):
        eligible = evidence.eligible
        return Reuse(eligible[np.random.randint(len(eligible))].set) if eligible else Grow()


@breaks("same_evidence_same_decision", "global generator of torch; draw from rng")
class SeedsTorch(Sane):
    def decide(self, evidence, rng):
        torch.manual_seed(evidence.task)
        return super().decide(evidence, rng)


@breaks("same_evidence_same_decision", "depending on the global seed; draw from rng alone")
class PeeksAtTheGlobalSeed(Sane):
    def decide(self, evidence, rng):
        return super().decide(evidence, rng) if torch.initial_seed() % 2 else Grow()


@breaks("decides_on_any_evidence", "changes the evidence.*work on copies")
class WritesEvidence(Sane):
    def decide(self, evidence, rng):
        if len(evidence.candidates) > 1:
            object.__setattr__(evidence, "candidates", evidence.candidates[::-1])
        return Grow()


@breaks("record_tells_the_truth", "declares adds_always and gives Reuse", adds_always=True)
class GrowsAtTimes(Sane):
    pass


@breaks("record_tells_the_truth", r"measures = \(\) and decides otherwise", measures=())
class NeedsEvidence(Sane):
    def decide(self, evidence, rng):
        known = [one for one in evidence.candidates if one.measures]
        return Reuse(known[0].set) if known else Grow()


MAP = (0, 0, 1, 0, 2, 3, 1, 4, 5, 6, 2, 7)
CASES = [case for case in kept("policy") if case.subject.component.name != "fixed"]


@pytest.mark.parametrize("case", [*CASES, *contract_cases("fixed", options={"map": MAP})], ids=str)
def test_registered_policies_keep_their_promises(case: ContractCase) -> None:
    """Every registered policy passes every check."""
    case.run()


test_broken_ones_fail, test_every_check_is_broken, test_sane_ones_pass = BROKEN.tests("policy", Sane)


def test_a_policy_without_evidence_may_reuse_a_closed_set() -> None:
    """Where nothing is measured nothing can be excluded: all tasks may train one set."""

    class First(Sane):
        def decide(self, evidence: Evidence, rng: np.random.Generator) -> Grow | Reuse:
            return Reuse(evidence.candidates[0].set) if evidence.candidates else Grow()

    record = policy("first", First, measures=())
    assert {case.result().status for case in contract_cases(record)} == {"passed"}


def test_evidence_that_options_refuse_is_left_out() -> None:
    """A map of tasks to sets is judged where it fits, in growth and reuse, or not at all."""
    (case,) = [
        c for c in contract_cases("fixed", options={"map": MAP}) if c.check.name == "decides_on_any_evidence"
    ]
    case.run()
    records, built = case.subject.once("records", tuple), case.subject.component.build(case.subject.config)
    found = {type(built.decide(one, np.random.default_rng(0))) for one in records}
    assert (found, len(records) > 50) == ({Grow, Reuse}, True)

    class Refuses(Sane):
        def decide(self, evidence, rng):
            raise ConfigError("policy.map: no such task")

    case = next(c for c in contract_cases(policy("refuses", Refuses)) if c.check == case.check)
    with pytest.raises(NotApplicable, match="its options refuse every record of evidence"):
        case.run()


def test_an_unknown_measure_is_told_once() -> None:
    """The checks that decide would advise to ask for the misspelt measure."""

    class Reads(Sane):
        def decide(self, evidence, rng):
            for candidate in evidence.eligible:
                candidate.measures["hindrance"]
            return Grow()

    results = [case.result() for case in contract_cases(policy("reads", Reads, measures=("hinderance",)))]
    assert [one.check for one in results if one.status == "failed"] == ["names_what_exists"]
    assert "see the check 'names_what_exists'" in results[2].message


def test_options_that_are_missing_skip_the_checks() -> None:
    """A component that says what it needs is not judged without it."""

    def build() -> Any:
        raise ConfigError("policy.file: no file", "give one")

    case = next(
        one for one in contract_cases(policy("needy", build)) if one.check.name == "decides_on_any_evidence"
    )
    with pytest.raises(NotApplicable, match=r"cannot be had here: policy\.file: no file; give one"):
        case.run()
