"""Trackers receive the typed events of a run."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import attrs

__all__ = [
    "EpochEnded",
    "Event",
    "PhaseStarted",
    "RunEnded",
    "RunStarted",
    "Stepped",
    "TaskDecided",
    "TaskEvaluated",
    "Tracker",
    "Warned",
]


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened in a run."""


@attrs.frozen(kw_only=True)
class RunStarted(Event):
    """A run has started or was resumed; ``notes`` tell what was settled when it was opened, a line each."""

    name: str
    config: dict[str, Any]
    resumed: bool
    notes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TaskDecided(Event):
    """A task has got its set; ``decision`` is the record's entry."""

    task: int
    decision: dict[str, Any]


@attrs.frozen(kw_only=True)
class PhaseStarted(Event):
    """Work of a kind begins: evidence, a phase of the baseline, spaces, evaluation."""

    task: int
    tasks: int
    phase: str


@attrs.frozen(kw_only=True)
class Stepped(Event):
    """Work has moved on; sent a few times a second at most.

    Attributes:
        task: The task, from 0.
        tasks: Tasks of the stream.
        phase: As in :class:`PhaseStarted`.
        done: Steps done (of the epoch).
        total: Steps in all (of the epoch).
        epoch: The epoch, from 0.
        epochs: Epochs of the phase.
        loss: Mean loss of the epoch so far; None outside training.
        images_per_second: Speed of the epoch; None outside training.
        elapsed: Seconds since the run began, those before a resume included.
        remaining: Seconds that the rest of the run is expected to take; None where nothing is known yet.
    """

    task: int
    tasks: int
    phase: str
    done: int
    total: int
    epoch: int = 0
    epochs: int = 1
    loss: float | None = None
    images_per_second: float | None = None
    elapsed: float = 0.0
    remaining: float | None = None


@attrs.frozen(kw_only=True)
class EpochEnded(Event):
    """An epoch of a training phase has ended."""

    task: int
    phase: str
    epoch: int
    epochs: int
    loss: float
    lr: float
    images_per_second: float


@attrs.frozen(kw_only=True)
class TaskEvaluated(Event):
    """All seen classes have been evaluated; accuracies and retrieval in percent, by task."""

    task: int
    accuracy: tuple[float, ...]
    retrieval: tuple[float, ...] | None
    metrics: dict[str, Any]


@attrs.frozen(kw_only=True)
class Warned(Event):
    """Something a user should know."""

    message: str


@attrs.frozen(kw_only=True)
class RunEnded(Event):
    """A run has ended; ``metrics`` as in the record."""

    metrics: dict[str, Any]
    seconds: float


@runtime_checkable
class Tracker(Protocol):
    """Receives events in order; must not change anything.

    What it raises is told as a warning and stops nothing; after three failures in a row it gets no more.
    """

    def on_event(self, event: Event) -> None:
        """Take note of an event."""

    def close(self) -> None:
        """The run has ended or was interrupted."""
