"""Growth: the evidence for a decision, the two decisions, and the contract of a policy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs
import numpy as np

__all__ = [
    "CandidateEvidence",
    "Decision",
    "Evidence",
    "Grow",
    "GrowthPolicy",
    "Planned",
    "Reuse",
    "SiteEvidence",
]


@attrs.frozen(kw_only=True)
class SiteEvidence:
    """Hindrance at one site.

    Attributes:
        site: The site's name.
        hfc: Angle against the old space in degrees; None where the gradient is zero.
        hfc_pre: Angle against the pre-trained space in degrees.
        rank: Rank of the old space.
        dim: Width of the site.
    """

    site: str
    hfc: float | None
    hfc_pre: float | None
    rank: int
    dim: int


@attrs.frozen(kw_only=True)
class CandidateEvidence:
    """What was measured for one live set.

    Attributes:
        set: The set's id.
        hfc: Hinder forward capability in degrees (paper section 4): 0 when the gradient is orthogonal to
            the old space, 90 when it lies in it.
        hfc_pre: The same against the pre-trained space.
        z: ``hfc - hfc_pre``.
        z_error: Standard error of ``z``: which images of the task were looked at, through gradient and
            pre-trained space together, and how the new classes' head was drawn.
        rank: Rank of the old space over all sites.
        null_hfc: What a random subspace of equal rank would give.
        energy_null_hfc: What a random combination of the new task's activations would give.
        captured: Share of the energy of the new task's activations in the old space, averaged over sites,
            from 0 to 1; what many sets are screened by.
        sites: Hindrance per site.
        excluded: Why the set is no candidate; None if it is one.
    """

    set: int
    hfc: float | None = None
    hfc_pre: float | None = None
    z: float | None = None
    z_error: float | None = None
    rank: int = 0
    null_hfc: float | None = None
    energy_null_hfc: float | None = None
    captured: float | None = None
    sites: tuple[SiteEvidence, ...] = ()
    excluded: str | None = None


@attrs.frozen(kw_only=True)
class Evidence:
    """All that a policy is told.

    Attributes:
        task: The task that has arrived, from 0.
        candidates: One entry per live set, ascending; unmeasured where the policy needs no evidence.
    """

    task: int
    candidates: tuple[CandidateEvidence, ...] = ()

    @property
    def eligible(self) -> tuple[CandidateEvidence, ...]:
        """The sets that can be reused."""
        return tuple(candidate for candidate in self.candidates if candidate.excluded is None)


@attrs.frozen
class Grow:
    """Add a set for the task."""


@attrs.frozen
class Reuse:
    """Train an existing set on with the task.

    Attributes:
        set: The set's id.
    """

    set: int


Decision = Grow | Reuse


@runtime_checkable
class GrowthPolicy(Protocol):
    """Decides whether a set is added. A policy is total: it decides on any evidence."""

    margin: float
    """Standard errors that Z must clear before a set is added; 0 is the paper's rule."""

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; the same evidence and generator state give the same decision."""


@runtime_checkable
class Planned(Protocol):
    """What a policy has beside :class:`GrowthPolicy` if it cannot decide for any number of tasks."""

    def require_tasks(self, tasks: int) -> None:
        """Refuse, before anything is learned, a run of that many tasks.

        Raises:
            ConfigError: It cannot decide for them all.
        """
