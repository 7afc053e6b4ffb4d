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
    """An event of a run."""


@attrs.frozen(kw_only=True)
class RunStarted(Event):
    """A run has started or been resumed.

    Attributes:
        name: The name of its directory.
        config: Its configuration, as nested plain values.
        resumed: Whether it has been resumed.
        notes: What a user should know of how it runs, one line each.
        details: What few users ask for, one line each: it is written down, and no display shows it.
        grows: Whether a policy decides on sets; no :class:`TaskDecided` follows if not.
        done: Number of tasks that are learned already.
        goal: Number of tasks after which it stops; None where nobody says.
    """

    name: str
    config: dict[str, Any]
    resumed: bool
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    grows: bool = True
    done: int = 0
    goal: int | None = None


@attrs.frozen(kw_only=True)
class TaskDecided(Event):
    """The set of a task has been chosen.

    Attributes:
        task: The task, from 0.
        decision: The entry in the record.
        shares_with: The earlier tasks, from 0, that have the same set.
    """

    task: int
    decision: dict[str, Any]
    shares_with: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class PhaseStarted(Event):
    """A phase of the work has started: evidence, a phase of the baseline, spaces, evaluation."""

    task: int
    tasks: int
    phase: str


@attrs.frozen(kw_only=True)
class Stepped(Event):
    """A phase has made progress; sent a few times a second at most.

    Attributes:
        task: The task, from 0.
        tasks: Number of tasks of the stream.
        phase: As in :class:`PhaseStarted`.
        done: What is done (in the epoch).
        total: All of it (in the epoch).
        epoch: The epoch, from 0.
        epochs: Epochs of the phase.
        loss: Mean loss of the epoch so far; None outside training.
        images_per_second: Speed of the epoch or phase; None where no images are counted.
        unit: What ``done`` and ``total`` count: ``images``, each once for every set that it passes through;
            ``images anew`` where features of others are kept; or what the phase says; empty where nobody
            says.
        elapsed: Seconds since the run started, those before a resume included.
        remaining: Expected seconds until the run ends; None while unknown.
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
    unit: str = ""
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
    """All seen classes have been evaluated; accuracies and retrieval in percent, by task.

    A task without test images of its own has None.
    """

    task: int
    accuracy: tuple[float | None, ...]
    retrieval: tuple[float | None, ...] | None
    metrics: dict[str, Any]


@attrs.frozen(kw_only=True)
class Warned(Event):
    """A warning for the user."""

    message: str


@attrs.frozen(kw_only=True)
class RunEnded(Event):
    """A run has ended; ``metrics`` are those of the record."""

    metrics: dict[str, Any]
    seconds: float


@runtime_checkable
class Tracker(Protocol):
    """A tracker receives the events of a run in order; it must not change anything.

    The framework reports its errors as warnings; after three failures in a row it sends no more events.
    """

    def on_event(self, event: Event) -> None:
        """Receive an event."""

    def close(self) -> None:
        """Release resources; the run has ended or was interrupted."""
