"""Growth policies: from the evidence for a task to ``Grow`` or ``Reuse``.

``min`` is the paper's rule (LW2G, dynamic growing approach): for each live set m the evidence is ``Z_m =
HFC_m - HFC_pre_m`` in degrees, and a set is added iff all Z are positive, that is if every old space
hinders the task more than the pre-trained space does. ``margin`` asks that Z clears zero by that many of
its standard errors; 0 is the paper's rule. All rules that read a measure compare by
:class:`~lw2g_growth.rules.Rule`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lw2g.plugin import Burden, ConfigError, Decision, Evidence, Grow, Reuse
from lw2g_growth.options import BudgetConfig, FixedConfig, MarginConfig, MinConfig, PlainConfig
from lw2g_growth.rules import Rule, Standing, beyond, probability_of_sharing

__all__ = [
    "AlgorithmPolicy",
    "AlwaysPolicy",
    "BudgetPolicy",
    "FixedPolicy",
    "MaxPolicy",
    "OnePolicy",
    "RandomPolicy",
    "ReleasePolicy",
    "RulePolicy",
    "VotePolicy",
    "min_policy",
]


class RulePolicy:
    """Grow where a rule lets no set be shared; else reuse the set of best standing (lowest id among equals).

    The default rule is the paper's: grow iff min Z > 0, else reuse the set of least Z.
    """

    def __init__(self, config: Any, **rule: Any) -> None:
        """Decide by the rule of the policy's options, and of attributes that no option sets.

        Args:
            config: As for :meth:`~lw2g_growth.rules.Rule.of`.
            **rule: As for :meth:`~lw2g_growth.rules.Rule.of`.
        """
        self.rule = Rule.of(config, **rule)
        # lw2g writes both beside each decision of a run
        self.margin: float = self.rule.margin
        self.burden: Burden | None = self.rule.burden

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; its confidence is that of the set nearest to sharing."""
        standings = self.rule.standings(evidence)
        if not standings:  # the first task, or nothing could be measured
            return Grow()
        shareable = self.rule.shareable(standings)
        if not shareable:
            nearest = max(standings, key=lambda standing: standing.value)
            probability = probability_of_sharing(nearest)
            if probability is None:
                return Grow()
            return Grow(confidence=1 - probability)
        # the confidence is that of sharing at all; which set is reused is another question
        nearest = max(shareable, key=lambda standing: standing.value)
        return Reuse(self.pick(shareable, rng).set, confidence=probability_of_sharing(nearest))

    def limits(self, evidence: Evidence) -> dict[str, dict[int, float]]:
        """Return the limit of each set's measure (:class:`lw2g.interfaces.growth.Limiting`)."""
        return {self.rule.measure: self.rule.limits(self.rule.standings(evidence))}

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return the set to reuse; candidates come in the order of their ids, at least one."""
        return max(shareable, key=lambda standing: standing.value)


def min_policy(config: MinConfig) -> RulePolicy | ReleasePolicy:
    """Return the paper's rule in one of its readings."""
    plain = MarginConfig(margin=config.margin)
    match config.reading:
        case "ours" | "text":
            return RulePolicy(plain)
        case "algorithm":
            return AlgorithmPolicy(plain)
        case "release":
            return ReleasePolicy(plain)


class AlgorithmPolicy(RulePolicy):
    """The rule as the paper's Algorithm 1 has it: grows like ``min``, but reuses the set of greatest Z."""

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return the set of greatest Z, which is that of least standing."""
        return min(shareable, key=lambda standing: standing.value)


class ReleasePolicy:
    """The rule of the released code: the set of least HFC is reused if that is below HFC_pre of the last set.

    The code's old spaces lie over images, its pre-trained space is a set of channels: their angles are those
    of random spaces of the same ranks (R2 0.9994 over the 147 angles in its logs). So the
    nulls of the measure are compared, which depend on ranks alone.
    """

    margin = 0.0
    burden: Burden | None = "grow"

    def __init__(self, config: MarginConfig) -> None:
        """Take no options: the released code has no margin."""

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return reuse of the set of least HFC if that is below the threshold, else growth."""
        angles: dict[int, tuple[float, float]] = {}  # HFC and HFC_pre of each set, in degrees
        for candidate in evidence.eligible:
            measured = candidate.measures.get("hindrance")
            if measured is None or measured.null is None:
                continue
            hfc = measured.parts.get("null_hfc")
            if hfc is not None:
                # the null is a difference like Z: what is taken off is that of the pre-trained space
                angles[candidate.set] = (hfc, hfc - measured.null)
        if not angles:
            return Grow()
        least = min(angles, key=lambda number: (angles[number][0], number))
        # one threshold for all sets, that of the last: the paper has one for each
        threshold = angles[max(angles)][1]
        # the code compares strictly: a tie grows
        if angles[least][0] < threshold:
            return Reuse(least)
        return Grow()


class MaxPolicy(RulePolicy):
    """The paper's ablation MAX: grows like ``min``, but reuses the set that hinders most."""

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return the set of greatest HFC; of one without HFC, of greatest Z."""

        def hindrance(standing: Standing) -> float:
            hfc = standing.evidence.measures["hindrance"].parts.get("hfc")
            if hfc is None:
                return -standing.value  # a standing is the better the less Z is
            return hfc

        return max(shareable, key=hindrance)


class RandomPolicy(RulePolicy):
    """The paper's ablation RND: grows like ``min``, but reuses any candidate with equal probability."""

    def pick(self, shareable: list[Standing], rng: np.random.Generator) -> Standing:
        """Return a set drawn uniformly; one draw per reuse, none per growth."""
        return shareable[int(rng.integers(len(shareable)))]


class VotePolicy:
    """Reuse the set for which most sites vote, if half of them do; else grow.

    TRGP decides layer by layer: a task is in the trust region of an old one if more than half of its
    gradient's length lies in the old space.
    """

    margin = 0.0

    def __init__(self, config: Any, **rule: Any) -> None:
        """Let every site vote by a rule, which may compare values, or values less their null."""
        self.rule = Rule.of(config, **rule)
        self.burden: Burden | None = self.rule.burden

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return reuse of the set with most votes if half of its sites vote for it, else growth."""
        standings = self.rule.standings(evidence)
        if not standings:
            return Grow()
        # among equals the set of better standing
        best = max(standings, key=lambda standing: (self._share(standing), standing.value))
        if self._share(best) < 0.5:
            return Grow()
        return Reuse(best.set)

    def _share(self, standing: Standing) -> float:
        """Return the share of sites that vote for sharing."""
        measured = standing.evidence.measures[self.rule.measure]
        known = []
        for site in measured.sites.values():
            vote = beyond(self.rule, measured, site)
            if vote is not None:
                known.append(vote)
        if not known:  # a measure without sites has one vote
            return float(standing.value > 0)
        return sum(known) / len(known)


class BudgetPolicy:
    """Add a set for each of the first tasks; once there are enough, reuse the set of best standing.

    Where no set can be reused it grows, whatever the budget.
    """

    margin = 0.0
    burden: Burden | None = None

    def __init__(self, config: BudgetConfig) -> None:
        """Keep the budget and the rule."""
        self.sets = config.sets
        self.rule = Rule.of(config)

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; unmeasured sets come last, by their ids."""
        if len(evidence.candidates) < self.sets:
            return Grow()
        standings = self.rule.standings(evidence)
        if standings:
            best = max(standings, key=lambda standing: standing.value)
            return Reuse(best.set)
        if not evidence.eligible:
            return Grow()
        return Reuse(min(candidate.set for candidate in evidence.eligible))


class OnePolicy:
    """The paper's ablation ONE: all tasks train the first set, whatever the evidence says.

    Closed sets are no exception: with a full space the orthogonal condition leaves nothing to train in.
    """

    margin = 0.0
    burden: Burden | None = None

    def __init__(self, config: PlainConfig) -> None:
        """Take no options."""

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Grow for the first task, then reuse the set of lowest id."""
        if not evidence.candidates:
            return Grow()
        return Reuse(min(candidate.set for candidate in evidence.candidates))


class AlwaysPolicy:
    """Every task gets a set of its own: the published baselines."""

    margin = 0.0
    burden: Burden | None = None

    def __init__(self, config: PlainConfig) -> None:
        """Take no options."""

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Grow."""
        return Grow()


class FixedPolicy:
    """A given map task -> set, to try other decisions.

    A task grows where the map names the set that would come next, and reuses the named set otherwise.
    """

    margin = 0.0
    burden: Burden | None = None

    def __init__(self, config: FixedConfig) -> None:
        """Follow the map.

        Raises:
            ConfigError: It is empty.
        """
        if not config.map:
            raise ConfigError(
                "policy 'fixed' needs 'map'", "say the set of each task: --set policy.map=[0,0,1]"
            )
        self.task_to_set = config.map

    def require_tasks(self, tasks: int) -> None:
        """Refuse more tasks than the map has.

        Raises:
            ConfigError: It has fewer.
        """
        if tasks > len(self.task_to_set):
            raise ConfigError(
                f"policy.map: expected the sets of {tasks} tasks but got {len(self.task_to_set)} "
                f"({list(self.task_to_set)})",
                "name one for every task, from the first on",
            )

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return what the map says.

        Raises:
            ConfigError: It ends before this task, or names a set that does not exist.
        """
        self.require_tasks(evidence.task + 1)
        named = self.task_to_set[evidence.task]
        live = [candidate.set for candidate in evidence.candidates]
        if named in live:
            return Reuse(named)
        if named == len(live):  # sets are numbered in the order in which they are added
            return Grow()
        raise ConfigError(
            f"policy.map: task {evidence.task + 1} gets set {named}, and the run has the sets {live} then",
            f"name one of them, or {len(live)} for a new one",
        )
