"""Growth: the evidence for a decision, the two decisions, and the contract of a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import attrs
import numpy as np

__all__ = [
    "Burden",
    "CandidateEvidence",
    "Decision",
    "Evidence",
    "Grow",
    "GrowthPolicy",
    "Limiting",
    "Measured",
    "Planned",
    "Reuse",
    "error_of_difference",
]


def _is_finite(_instance: object, field: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"'{field.name}' must be finite, or None where it is undefined: {value!r}")


def _number() -> Any:
    return attrs.field(default=None, validator=_is_finite)


@attrs.frozen(kw_only=True)
class Measured:
    """What one measure says of one candidate. What is undefined is None, never NaN.

    Attributes:
        value: The measure, in its unit.
        error: Its standard error over the draw of images (and of what else the measure draws).
        null: What chance gives: a random space of equal rank, random order.
        own: What the set's own tasks give, on images that it has not seen.
        shuffled: What the same images give with their labels permuted.
        n: Images it was computed from.
        unit: What it is counted in.
        alike: 1 where a large value means that the task is like the set's tasks, -1 where it means unlike.
        parts: Further numbers by name, such as the two angles behind Z.
        sites: The same by site, ``value`` among them.
        why: Why the value is undefined.
        replicates: Deviations from the value under resampling, whose mean square is the square of the error;
            of the candidates of one decision in the same order (:func:`error_of_difference`).

    Raises:
        ValueError: A number is not finite, or the error is negative.
    """

    value: float | None = _number()
    error: float | None = _number()
    null: float | None = _number()
    own: float | None = _number()
    shuffled: float | None = _number()
    n: int = 0
    unit: str = ""
    alike: Literal[1, -1] = attrs.field(default=1, validator=attrs.validators.in_((1, -1)))
    parts: Mapping[str, float | None] = attrs.field(factory=dict)
    sites: Mapping[str, Mapping[str, float | None]] = attrs.field(factory=dict)
    why: str | None = None
    replicates: tuple[float, ...] = attrs.field(default=(), repr=False)

    def __attrs_post_init__(self) -> None:
        if self.error is not None and self.error < 0:
            raise ValueError(f"'error' must be at least 0: {self.error!r}")
        for where, numbers in (("parts", self.parts), *self.sites.items()):
            for name, value in numbers.items():
                if value is not None and not math.isfinite(value):
                    raise ValueError(f"{where}: {name!r} must be finite, or None: {value!r}")

    def as_mapping(self) -> dict[str, Any]:
        """Return what a record holds."""
        return attrs.asdict(self) | {"replicates": [float(f"{one:.4g}") for one in self.replicates]}


def error_of_difference(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the standard error of the difference of one measure of two candidates for the same task.

    Both were measured on the same images with the same heads, so most of their errors is common to them.

    Args:
        one: The replicates of the one (:class:`Measured`).
        other: Those of the other.

    Returns:
        None where there are no replicates that could be paired.

    >>> error_of_difference((0.5, -0.75), (0.25, -0.5))
    0.25
    """
    if not one or len(one) != len(other):
        return None
    return math.dist(one, other) / math.sqrt(len(one))


@attrs.frozen(kw_only=True)
class CandidateEvidence:
    """What was measured for one live set.

    Attributes:
        set: The set's id.
        measures: What each measure says, by its name; nothing of those that say nothing of this set.
        rank: Rank of the old space over all sites.
        captured: Share of the energy of the new task's activations in the old space, averaged over sites,
            from 0 to 1; what many sets are screened by. None where nobody asked.
        excluded: Why the set is no candidate; None if it is one.
    """

    set: int
    measures: Mapping[str, Measured] = attrs.field(factory=dict)
    rank: int = 0
    captured: float | None = None
    excluded: str | None = None

    def as_mapping(self) -> dict[str, Any]:
        """Return what a record holds."""
        measures = {name: one.as_mapping() for name, one in self.measures.items()}
        return attrs.asdict(attrs.evolve(self, measures={})) | {"measures": measures}


@attrs.frozen(kw_only=True)
class Evidence:
    """All that a policy is told.

    Attributes:
        task: The task that has arrived, from 0.
        candidates: One entry per live set, ascending; unmeasured where the policy reads no measure.
    """

    task: int
    candidates: tuple[CandidateEvidence, ...] = ()

    @property
    def eligible(self) -> tuple[CandidateEvidence, ...]:
        """The sets that can be reused."""
        return tuple(candidate for candidate in self.candidates if candidate.excluded is None)


_CONFIDENCE = attrs.validators.optional([attrs.validators.ge(0.0), attrs.validators.le(1.0)])


@attrs.frozen
class Grow:
    """Add a set for the task.

    Attributes:
        confidence: How probable it is, by the errors of what was measured, that growing or not would be
            decided alike without them; None where nothing is known of that. Decisions are equal without it.
    """

    confidence: float | None = attrs.field(default=None, eq=False, kw_only=True, validator=_CONFIDENCE)


@attrs.frozen
class Reuse:
    """Train an existing set on with the task.

    Attributes:
        set: The set's id.
        confidence: As of :class:`Grow`.
    """

    set: int
    confidence: float | None = attrs.field(default=None, eq=False, kw_only=True, validator=_CONFIDENCE)


Decision = Grow | Reuse

Burden = Literal["grow", "reuse"]
"""Which of the two has to be proved: evidence that is too noisy to say decides for the other."""


@runtime_checkable
class GrowthPolicy(Protocol):
    """Decides whether a set is added. A policy is total: it decides on any evidence."""

    margin: float
    """Standard errors that a measure must clear before what has to be proved is done; 0 in the paper."""

    @property
    def burden(self) -> Burden | None:
        """What has to be proved; None of a rule that reads no measure."""

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; the same evidence and generator state give the same decision."""


@runtime_checkable
class Limiting(Protocol):
    """What a policy has beside :class:`GrowthPolicy` if it holds a measure of each set against a limit."""

    def limits(self, evidence: Evidence) -> Mapping[str, Mapping[int, float]]:
        """Return, by measure and set, the value at which the set begins to be shared, in the measure's unit.

        It contains the margin; for noisy evidence it therefore differs from set to set.
        """


@runtime_checkable
class Planned(Protocol):
    """What a policy has beside :class:`GrowthPolicy` if it cannot decide for any number of tasks."""

    def require_tasks(self, tasks: int) -> None:
        """Refuse, before anything is learned, a run of that many tasks.

        Raises:
            ConfigError: It cannot decide for them all.
        """
