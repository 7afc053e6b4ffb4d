"""Growth: the evidence for a decision, the three decisions, and the contract of a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import attrs
import numpy as np

from lw2g.errors import ContractError, nearest, shown

__all__ = [
    "Burden",
    "CandidateEvidence",
    "Decision",
    "Evidence",
    "Grow",
    "GrowthPolicy",
    "Limiting",
    "Measurement",
    "Measures",
    "Merge",
    "Planned",
    "Reuse",
    "counts_directions",
    "error_of_difference",
]


def _is_finite(_instance: object, field: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"'{field.name}' must be finite, or None where it is undefined: {value!r}")


def _number() -> Any:
    return attrs.field(default=None, validator=_is_finite)


@attrs.frozen(kw_only=True)
class Measurement:
    """The result of one measure for one candidate. An undefined number is None, never NaN.

    Attributes:
        value: The measure, in its unit.
        error: Its standard error over the draw of images (and over the measure's own random draws).
        null: The value by chance: for a random space of equal rank, or a random order.
        own: The value for the set's own tasks, on images that it was not trained on.
        shuffled: The value for the same images with permuted labels.
        n: Number of images.
        unit: The unit of the value.
        alike: 1 if a large value means that the task resembles the set's tasks, -1 if it means the reverse.
        parts: Further numbers by name, such as the two angles behind Z.
        sites: Such numbers by site, ``value`` among them.
        why: Why the value is undefined.
        replicates: Deviations from the value under resampling; their mean square is the square of the error.
            All candidates of one decision have them in the same order (:func:`error_of_difference`).

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
        """Return the mapping for the run's record."""
        return attrs.asdict(self) | {"replicates": [float(f"{value:.4g}") for value in self.replicates]}


def error_of_difference(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the standard error of the difference between two candidates in one measure for one task.

    Both are measured on the same images with the same heads, so they share most of their errors.

    Args:
        first: The replicates of one candidate (:class:`Measurement`).
        second: The replicates of the other.

    Returns:
        None if the replicates cannot be paired.

    >>> error_of_difference((0.5, -0.75), (0.25, -0.5))
    0.25
    """
    if not first or len(first) != len(second):
        return None
    # replicate by replicate: what both candidates owe to the same images cancels
    return math.dist(first, second) / math.sqrt(len(first))


class Measures(dict[str, Measurement]):
    """What each measure says of a set; one that is measured of no set cannot be asked for.

    Such is misspelt or not declared, and a policy that took it for missing here would miss it always.

    Args:
        said: By name what each says of this set.
        measured: The names of all that are measured.
    """

    def __init__(self, said: Mapping[str, Measurement], measured: Sequence[str]) -> None:
        super().__init__(said)
        self._measured = tuple(measured)

    def __missing__(self, name: str) -> Measurement:
        self._require_measured(name)
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return what a measure says; the default where it says nothing of this set.

        Raises:
            ContractError: It is measured of no set.
        """
        self._require_measured(name)
        return super().get(name, default)

    def _require_measured(self, name: str) -> None:
        if name not in self._measured:
            raise ContractError(
                f"decide asks for the measure {name!r}, which is not measured{nearest(name, self._measured)}",
                f"ask for one of {', '.join(self._measured)}, or name it in measures of the policy",
            )


@attrs.frozen(kw_only=True)
class CandidateEvidence:
    """What was measured for one live set.

    Attributes:
        set: The set's id.
        measures: What each measure says, by its name; nothing of those that say nothing of this set. What
            nobody measures cannot be asked for (:class:`Measures`).
        rank: Rank of the old space over all sites.
        captured: Share of the energy of the new task's activations in the old space, averaged over sites,
            from 0 to 1; what many sets are screened by. None where nobody asked.
        excluded: Why the set is no candidate; None if it is one.
    """

    set: int
    measures: Mapping[str, Measurement] = attrs.field(factory=dict)
    rank: int = 0
    captured: float | None = None
    excluded: str | None = None

    def as_mapping(self) -> dict[str, Any]:
        """Return what a record holds."""
        measures = {name: one.as_mapping() for name, one in self.measures.items()}
        return attrs.asdict(attrs.evolve(self, measures={})) | {"measures": measures}


@attrs.frozen(kw_only=True)
class Evidence:
    """All that a policy decides by.

    Attributes:
        task: The task that has arrived, from 0.
        candidates: One entry per live set, ascending; unmeasured where the policy reads no measure.
        task_to_set: The set of each task learned so far, as in :class:`lw2g.interfaces.evidence.Sample`.
    """

    task: int
    candidates: tuple[CandidateEvidence, ...] = ()
    task_to_set: tuple[int, ...] = ()

    def tasks_of(self, set_id: int) -> tuple[int, ...]:
        """Return the tasks that a set holds, from 0, ascending.

        >>> Evidence(task=3, task_to_set=(0, 1, 0)).tasks_of(0)
        (0, 2)
        """
        return tuple(task for task, owner in enumerate(self.task_to_set) if owner == set_id)

    @property
    def eligible(self) -> tuple[CandidateEvidence, ...]:
        """The sets that can be reused."""
        return tuple(candidate for candidate in self.candidates if candidate.excluded is None)


def _is_set(_instance: object, _field: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is no set's id, such as the candidate itself, in the line of the policy that gives it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return
    given = "the candidate itself" if isinstance(value, CandidateEvidence) else shown(value)
    raise ContractError(
        f"Reuse and Merge take a set's id, an int, but got {given}", "give the attribute set of a candidate"
    )


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
    """Train an existing set further on the task, or give it the task as it is.

    Attributes:
        set: The set's id.
        held: Whether the set stays as it is: the task learns what else there is to learn, such as a head.
        confidence: As for :class:`Grow`.

    Raises:
        ContractError: The set is no int.
    """

    set: int = attrs.field(validator=_is_set)
    held: bool = attrs.field(default=False, kw_only=True)
    confidence: float | None = attrs.field(default=None, eq=False, kw_only=True, validator=_CONFIDENCE)


@attrs.frozen
class Merge:
    """Train a copy of a set on the task, and move the set towards it: ``(1 - weight) set + weight copy``.

    Weight 1 is :class:`Reuse`, 0 leaves the set as it is, and 1 / (number of its tasks, this one included)
    is the running average of its copies. Heads must follow: a head in closed form is fitted to the merged
    set, a trained one would fit the copy.

    Attributes:
        set: The set's id.
        weight: From 0 to 1.
        confidence: As for :class:`Grow`.

    Raises:
        ContractError: The set is no int.
    """

    set: int = attrs.field(validator=_is_set)
    weight: float = attrs.field(validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)])
    confidence: float | None = attrs.field(default=None, eq=False, kw_only=True, validator=_CONFIDENCE)


Decision = Grow | Reuse | Merge
"""What a policy returns."""

_SMALL = 1 / 3
"""A part of a distance that counts as small."""


def counts_directions(decision: Mapping[str, Any]) -> bool:
    """Return whether a decision by angles follows from the ranks of the spaces, whatever tasks they are of.

    That is where random spaces of the same ranks would have decided as clearly: the angle that decided
    differs from theirs (``null``) by no more than a third of its distance from the limit.

    Args:
        decision: An entry of a record's decisions.
    """
    for measure, limits in decision.get("limits", {}).items():
        nearest: tuple[float, float] | None = None
        for candidate in decision["candidates"]:
            measured = candidate.get("measures", {}).get(measure, {})
            value, null = measured.get("value"), measured.get("null")
            # where the entry was read from a record: JSON has no numbers as keys
            limit = limits.get(candidate["set"], limits.get(str(candidate["set"])))
            # measures by angles, and no others, have this part: their null is of random spaces of equal rank
            if None in (value, null, limit) or "null_hfc" not in measured["parts"]:
                continue
            distance = abs(value - limit)
            if decision["decision"] != "grow" and candidate["set"] != decision["set"]:
                continue  # a set was shared for its own angle
            # a set was added for want of any to share: what decided is the one that came nearest to it
            if nearest is None or distance < nearest[0]:
                nearest = distance, abs(value - null)
        if nearest is not None and nearest[1] <= _SMALL * nearest[0]:
            return True
    return False


Burden = Literal["grow", "reuse"]
"""Which decision the evidence must prove; if it is too noisy, the policy takes the other one."""


@runtime_checkable
class GrowthPolicy(Protocol):
    """A growth policy: it decides whether a task gets a new set, reuses one or merges into one."""

    margin: float
    """Standard errors by which a measure must prove the decision of :attr:`burden`; 0 in the LW2G paper."""

    @property
    def burden(self) -> Burden | None:
        """Which decision must be proved; None for a rule that reads no measure."""

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        """Return the decision; the same evidence and generator state give the same decision."""


@runtime_checkable
class Limiting(Protocol):
    """A growth policy that compares a measure of each set with a limit."""

    def limits(self, evidence: Evidence) -> Mapping[str, Mapping[int, float]]:
        """Return, by measure and set, the value from which on the task shares the set, in the measure's unit.

        It includes the margin, so with noisy evidence it differs from set to set.
        """


@runtime_checkable
class Planned(Protocol):
    """A growth policy that cannot decide for every number of tasks."""

    def require_tasks(self, tasks: int) -> None:
        """Refuse a run of ``tasks`` tasks before it starts.

        Raises:
            ConfigError: The policy cannot decide for all of them.
        """
