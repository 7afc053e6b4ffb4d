"""The contract kit on measures: ours keep every promise, and each check fails on one that breaks it."""

from __future__ import annotations

import pytest

from broken_components import Broken, kept
from lw2g.interfaces.component import EvidenceComponent, NoOptions
from lw2g.interfaces.evidence import Measure
from lw2g.interfaces.growth import Measurement
from lw2g_testing import ContractCase


def evidence(name: str, cls: type) -> EvidenceComponent:
    def made(config: NoOptions) -> Measure:
        return cls()

    made.__wrapped__ = cls  # type: ignore[attr-defined]  # the class whose lines messages name
    return EvidenceComponent(name=name, config=NoOptions, summary="for tests", build=made)


BROKEN = Broken(evidence)
breaks = BROKEN.breaks


class Sane(Measure):
    """How many tasks a set has: it keeps every promise."""

    def number(self, sample, candidate):
        return float(len(candidate.tasks))

    def measure(self, sample):
        return {
            one.set: Measurement(value=self.number(sample, one), n=len(sample), unit="tasks")
            for one in sample.candidates
        }


@breaks("overrides_what_it_means", r"^measure \(.*:\d+\) takes \(self\); let it take \(self, sample\)$")
class TakesNoSample(Sane):
    def measure(self):
        return {}


@breaks("measures_a_small_stream", "derive its class from lw2g's Measure")
class NoMeasure:
    pass


@breaks("measures_a_small_stream", "needs has 'gradient'; choose among spaces, gradients")
class NeedsTheUnknown(Sane):
    needs = frozenset(("gradient",))


@breaks("measures_a_small_stream", "stores is 'sometimes'")
class StoresSometimes(Sane):
    stores = "sometimes"


@breaks("measures_a_small_stream", "has a method store and says stores = None")
class StoresInSilence(Sane):
    def store(self, sample):
        return {}


@breaks("measures_a_small_stream", "ContractError.*'moments'.*; it has to measure the sets of a small run ")
class ReadsWithoutAsking(Sane):
    def number(self, sample, candidate):
        return float(len(sample.moments([])))


@breaks("measures_a_small_stream", r"says nothing of any set of a small run \(never\)")
class SaysNothing(Sane):
    def measure(self, sample):
        return {one.set: Measurement(why="never") for one in sample.candidates}


@breaks("measures_a_small_stream", "n = 0 and the unit ''; give both")
class HasNoUnit(Sane):
    def measure(self, sample):
        return {one.set: Measurement(value=1.0) for one in sample.candidates}


@breaks("evidence_changes_nothing", "let features, probe_loss, draw_head and measures only read")
class Writes(Sane):
    needs = frozenset(("gradients", "spaces"))

    def number(self, sample, candidate):
        site = next(iter(candidate.sites.values()))
        site.parameter.data += 1.0
        return 1.0


@breaks("resumes_with_what_it_stored", "draw from sample.generator")
class CountsItsCalls(Sane):
    calls = 0

    def number(self, sample, candidate):
        CountsItsCalls.calls += 1
        return float(CountsItsCalls.calls)


@breaks(
    "resumes_with_what_it_stored", "of a resumed run and of an uninterrupted one.*keep what is needed later"
)
class RemembersItself(Sane):
    def __init__(self):
        self.tasks = []

    def number(self, sample, candidate):
        self.tasks.append(sample.task.index)
        return float(len(self.tasks))


@breaks("other_candidates_do_not_matter", "let what it says of a set depend on that set")
class RanksThem(Sane):
    def number(self, sample, candidate):
        return float(len(sample.candidates))


@pytest.mark.parametrize("case", kept("evidence"), ids=str)
def test_registered_measures_keep_their_promises(case: ContractCase) -> None:
    """Every registered measure passes every check."""
    case.run()


test_broken_ones_fail, test_every_check_is_broken, test_sane_ones_pass = BROKEN.tests("evidence", Sane)
