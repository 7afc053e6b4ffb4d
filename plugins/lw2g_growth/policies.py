"""Growth policies: from the evidence for a task to ``Grow`` or ``Reuse`` (LW2G, dynamic growing approach).

For each live set m the evidence is ``Z_m = HFC_m - HFC_pre_m`` in degrees. The paper grows iff all Z are
positive: then every old space hinders the task more than the pre-trained space does. ``margin`` asks that Z
clears zero by that many of its standard errors; 0 is the paper's rule.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs
import numpy as np

from lw2g.errors import ConfigError, ContractError
from lw2g.interfaces.growth import CandidateEvidence, Decision, Evidence, Grow, Reuse

__all__ = [
    "AffinityPolicy",
    "AlwaysPolicy",
    "FixedPolicy",
    "MaxPolicy",
    "MinPolicy",
    "OnePolicy",
    "RandomPolicy",
]


@attrs.frozen(kw_only=True)
class _Measured:
    """A set that can be reused and whose Z is defined.

    Attributes:
        set: The set's id.
        z: Z in degrees.
        clearance: ``z - margin * z_error``: what is left of Z when its error is held against it.
        evidence: All that was measured.
    """

    set: int
    z: float
    clearance: float
    evidence: CandidateEvidence


def _finite(value: float, name: str, candidate: CandidateEvidence) -> float:
    if not math.isfinite(value):
        raise ContractError(
            f"evidence for set {candidate.set} has {name} {value!r}, which is not finite; "
            "whoever collects evidence must leave undefined values None and exclude the set"
        )
    return value


def _measured(evidence: Evidence, margin: float) -> list[_Measured]:
    """Return the candidates in the order of their ids; an unknown error clears no margin."""
    found = []
    for candidate in sorted(evidence.eligible, key=lambda item: item.set):
        if candidate.z is None:
            continue
        z = _finite(candidate.z, "z", candidate)
        held = 0.0
        if margin > 0:
            unknown = candidate.z_error is None
            held = math.inf if unknown else margin * _finite(candidate.z_error or 0.0, "z_error", candidate)
        found.append(_Measured(set=candidate.set, z=z, clearance=z - held, evidence=candidate))
    return found


class _HindrancePolicy(ABC):
    """Grow iff the smallest clearance over the candidates is positive; else reuse what :meth:`pick` says."""

    def __init__(self, *, margin: float = 0.0) -> None:
        """Ask that Z clears zero by ``margin`` standard errors before a set is added."""
        self.margin = margin

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision.

        Raises:
            ContractError: A value that the decision needs is not finite.
        """
        measured = _measured(evidence, self.margin)
        if all(item.clearance > 0 for item in measured):  # also without any candidate
            return Grow()
        return Reuse(self.pick(measured, rng).set)

    @abstractmethod
    def pick(self, measured: list[_Measured], rng: np.random.Generator) -> _Measured:
        """Return the candidate to reuse; candidates come in the order of their ids, at least one."""


class MinPolicy(_HindrancePolicy):
    """The paper's rule: grow iff min Z > 0, else reuse the set of least Z (lowest id among equals)."""

    def pick(self, measured: list[_Measured], rng: np.random.Generator) -> _Measured:
        """Return the candidate of least Z."""
        return min(measured, key=lambda item: item.z)


class MaxPolicy(_HindrancePolicy):
    """The paper's ablation MAX: grows like ``min``, but reuses the set that hinders most."""

    def pick(self, measured: list[_Measured], rng: np.random.Generator) -> _Measured:
        """Return the candidate of greatest HFC.

        Raises:
            ContractError: A candidate has Z but no finite HFC.
        """
        return max(measured, key=lambda item: _hindrance(item.evidence))


def _hindrance(candidate: CandidateEvidence) -> float:
    return _finite(math.nan if candidate.hfc is None else candidate.hfc, "hfc", candidate)


class RandomPolicy(_HindrancePolicy):
    """The paper's ablation RND: grows like ``min``, but reuses any candidate with equal probability."""

    def pick(self, measured: list[_Measured], rng: np.random.Generator) -> _Measured:
        """Return a candidate drawn uniformly; one draw per reuse, none per growth."""
        return measured[int(rng.integers(len(measured)))]


class OnePolicy:
    """The paper's ablation ONE: all tasks train the first set, whatever the evidence says.

    Closed sets are no exception: with a full space the orthogonal condition leaves nothing to train in.
    """

    def __init__(self) -> None:
        self.margin = 0.0

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Grow for the first task, then reuse the set of lowest id."""
        if not evidence.candidates:
            return Grow()
        return Reuse(min(candidate.set for candidate in evidence.candidates))


class AlwaysPolicy:
    """Every task gets a set of its own: the published baselines."""

    def __init__(self) -> None:
        self.margin = 0.0

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Grow."""
        return Grow()


class AffinityPolicy:
    """Like tasks share a set: reuse the set of greatest Z that clears the threshold, else grow.

    The sign of the paper's rule turned round. A gradient inside the old space (large HFC) marks a task whose
    activations resemble the old ones.
    """

    def __init__(self, *, margin: float = 0.0, threshold: float = 0.0) -> None:
        """Ask that Z clears ``threshold`` degrees by ``margin`` standard errors before a set is shared."""
        self.margin = margin
        self.threshold = threshold

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision.

        Raises:
            ContractError: A value that the decision needs is not finite.
        """
        alike = [item for item in _measured(evidence, self.margin) if item.clearance > self.threshold]
        if not alike:
            return Grow()
        return Reuse(max(alike, key=lambda item: item.z).set)


class FixedPolicy:
    """A given map task -> set: what another decision would have brought.

    A task grows where the map names the set that would come next, and reuses the named set otherwise.
    """

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
