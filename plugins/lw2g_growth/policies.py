"""Growth policies: from the evidence for a task to ``Grow`` or ``Reuse``.

``min`` is the paper's rule (LW2G, dynamic growing approach): for each live set m the evidence is ``Z_m =
HFC_m - HFC_pre_m`` in degrees, and a set is added iff all Z are positive, that is if every old space
hinders the task more than the pre-trained space does. ``margin`` asks that Z clears zero by that many of
its standard errors; 0 is the paper's rule. All rules that read a measure compare by
:class:`~lw2g_growth.rules.Rule`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from lw2g.errors import ConfigError
from lw2g.interfaces.growth import Burden, Decision, Evidence, Grow, Reuse
from lw2g_growth.rules import Rule, Standing, beyond, probability_of_sharing

__all__ = [
    "AlwaysPolicy",
    "BudgetPolicy",
    "FixedPolicy",
    "MaxPolicy",
    "MinPolicy",
    "OnePolicy",
    "RandomPolicy",
    "RulePolicy",
    "VotePolicy",
]


class _Judging(ABC):
    """Grows where a rule lets no set be shared; else reuses what :meth:`pick` says."""

    def __init__(self, rule: Rule) -> None:
        """Decide by a rule."""
        self.rule = rule
        self.margin: float = rule.margin
        self.burden: Burden | None = rule.burden

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision, and by the set nearest to sharing how sure it is."""
        standings = self.rule.standings(evidence)
        shareable = self.rule.shareable(standings)
        if not shareable:
            nearest = max(standings, key=lambda one: one.value, default=None)
            probability = None if nearest is None else probability_of_sharing(nearest)
            return Grow(confidence=None if probability is None else 1 - probability)
        nearest = max(shareable, key=lambda one: one.value)
        return Reuse(self.pick(shareable, rng).set, confidence=probability_of_sharing(nearest))

    def limits(self, evidence: Evidence) -> dict[str, dict[int, float]]:
        """Return what the measure of each set is held against (:class:`lw2g.interfaces.growth.Limiting`)."""
        return {self.rule.measure: self.rule.limits(self.rule.standings(evidence))}

    @abstractmethod
    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return the set to reuse; candidates come in the order of their ids, at least one."""


class RulePolicy(_Judging):
    """Reuse the set that stands best among those that may be shared (lowest id among equals), else grow."""

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return the set of best standing."""
        return max(shareable, key=lambda one: one.value)


class MinPolicy(RulePolicy):
    """The paper's rule: grow iff min Z > 0, else reuse the set of least Z."""

    def __init__(self, *, margin: float = 0.0) -> None:
        """Ask that Z clears zero by ``margin`` standard errors before a set is added."""
        super().__init__(Rule(margin=margin))


class MaxPolicy(_Judging):
    """The paper's ablation MAX: grows like ``min``, but reuses the set that hinders most."""

    def __init__(self, *, margin: float = 0.0) -> None:
        """Ask that Z clears zero by ``margin`` standard errors before a set is added."""
        super().__init__(Rule(margin=margin))

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return the set of greatest HFC; of one without HFC, of greatest Z."""

        def hindrance(one: Standing) -> float:
            found = one.evidence.measures["hindrance"].parts.get("hfc")
            return -one.value if found is None else found

        return max(shareable, key=hindrance)


class RandomPolicy(_Judging):
    """The paper's ablation RND: grows like ``min``, but reuses any candidate with equal probability."""

    def __init__(self, *, margin: float = 0.0) -> None:
        """Ask that Z clears zero by ``margin`` standard errors before a set is added."""
        super().__init__(Rule(margin=margin))

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return a set drawn uniformly; one draw per reuse, none per growth."""
        return shareable[int(rng.integers(len(shareable)))]


class VotePolicy:
    """Reuse the set for which most sites vote, if half of them do; else grow.

    TRGP decides layer by layer: a task is in the trust region of an old one if more than half of its
    gradient's length lies in the old space.
    """

    def __init__(self, rule: Rule) -> None:
        """Let every site vote by a rule, which may compare values, or values less their null."""
        self.margin = 0.0
        self.burden: Burden | None = rule.burden
        self.rule = rule

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision."""
        found = [(self._share(one), one.value, one) for one in self.rule.standings(evidence)]
        most = max(found, key=lambda one: one[:2], default=None)
        if most is None or most[0] < 0.5:
            return Grow()
        return Reuse(most[2].set)

    def _share(self, one: Standing) -> float:
        """Return the share of sites that vote for sharing."""
        measured = one.evidence.measures[self.rule.measure]
        votes = [beyond(self.rule, measured, site) for site in measured.sites.values()]
        known = [vote for vote in votes if vote is not None]
        return sum(known) / len(known) if known else float(one.value > 0)


class BudgetPolicy:
    """Add a set for each of the first tasks; once there are enough, reuse the one that stands best.

    Where no set can be reused it grows, whatever the budget.
    """

    burden: Burden | None = None

    def __init__(self, sets: int, rule: Rule) -> None:
        """Add at most so many sets."""
        self.margin = 0.0
        self.sets, self.rule = sets, rule

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; sets of which nothing is known come last, by their ids."""
        if len(evidence.candidates) < self.sets:
            return Grow()
        standings = self.rule.standings(evidence)
        if standings:
            return Reuse(max(standings, key=lambda one: one.value).set)
        return Reuse(min(one.set for one in evidence.eligible)) if evidence.eligible else Grow()


class OnePolicy:
    """The paper's ablation ONE: all tasks train the first set, whatever the evidence says.

    Closed sets are no exception: with a full space the orthogonal condition leaves nothing to train in.
    """

    burden: Burden | None = None

    def __init__(self) -> None:
        self.margin = 0.0

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Grow for the first task, then reuse the set of lowest id."""
        if not evidence.candidates:
            return Grow()
        return Reuse(min(candidate.set for candidate in evidence.candidates))


class AlwaysPolicy:
    """Every task gets a set of its own: the published baselines."""

    burden: Burden | None = None

    def __init__(self) -> None:
        self.margin = 0.0

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Grow."""
        return Grow()


class FixedPolicy:
    """A given map task -> set: what another decision would have brought.

    A task grows where the map names the set that would come next, and reuses the named set otherwise.
    """

    burden: Burden | None = None

    def __init__(self, task_to_set: Sequence[int]) -> None:
        """Follow ``task_to_set``, the set of each task by its id."""
        self.margin = 0.0
        self.task_to_set = tuple(task_to_set)

    def require_tasks(self, tasks: int) -> None:
        """Refuse more tasks than the map has.

        Raises:
            ConfigError: It has fewer.
        """
        if tasks > len(self.task_to_set):
            raise ConfigError(
                f"policy.map: expected the sets of {tasks} tasks but got {len(self.task_to_set)} "
                f"({list(self.task_to_set)}); name one for every task, from the first on"
            )

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return what the map says.

        Raises:
            ConfigError: It ends before this task, or names a set that does not exist.
        """
        self.require_tasks(evidence.task + 1)
        named, live = self.task_to_set[evidence.task], [candidate.set for candidate in evidence.candidates]
        if named in live:
            return Reuse(named)
        if named == len(live):
            return Grow()
        raise ConfigError(
            f"policy.map: task {evidence.task + 1} gets set {named}, and the run has the sets {live} then; "
            f"name one of them, or {len(live)} for a new one"
        )
