"""Checks of a tracker: it accepts all events of a run, and changes nothing.

Trackers write into a temporary folder, without network and without services that the environment names, so
that checks leave no traces among a user's runs.
"""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from lw2g.errors import closest
from lw2g.ground.network import without_network
from lw2g.interfaces.defaults import DEFAULT_CONSTRAINTS, DEFAULT_POLICY
from lw2g.interfaces.tracker import (
    EpochEnded,
    Event,
    PhaseStarted,
    RunEnded,
    RunStarted,
    Stepped,
    TaskDecided,
    TaskEvaluated,
    Tracker,
    Warned,
)
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, check, methods_of
from lw2g_testing.guards import available, bearing, seeded
from lw2g_testing.made_evidence import measured_set

_INTERRUPTED_AFTER = 6
_SERVICES = ("_URI", "_URL", "_HOST", "_KEY", "_TOKEN")
"""Endings of environment variables that name a service or hold its key."""


@check("tracker")
def check_takes_a_run_and_changes_nothing(subject: Subject) -> None:
    """It takes every event of a run, changes no event, draws nothing, and can be closed twice."""
    with _tracker(subject) as (tracker, _), seeded(1) as generators:
        for event in _events():
            given = copy.deepcopy(event)
            _send(tracker, [given])
            if given != event:
                raise ContractViolation(
                    f"on_event changes the {type(event).__name__} it is given; other trackers and the record "
                    "get the same object: copy what is to be changed"
                )
        for _ in range(2):
            _close(tracker)
        generators.refuse_draws(
            "it", ", and the run draws otherwise than without it; use a generator of its own"
        )


@check("tracker")
def check_takes_an_interrupted_run(subject: Subject) -> None:
    """It takes a run that stops without RunEnded and goes on later in the same directory."""
    with _tracker(subject) as (tracker, directory):
        _send(tracker, _events()[:_INTERRUPTED_AFTER])
        _close(tracker)
        again: Tracker = available(lambda: subject.component.build(subject.config, directory))
        _send(again, _events(resumed=True))
        _close(again)


@check("tracker")
def check_says_what_is_missing(subject: Subject) -> None:
    """If a package or a server is missing, it says so in one line with the remedy."""
    try:
        with _tracker(subject) as (tracker, _):
            _close(tracker)
    except NotApplicable as skipped:
        message = str(skipped.__cause__)
        if "\n" in message or ";" not in message:
            raise ContractViolation(
                f"built without what it needs it says {message!r}; say in one line what is missing, and "
                "after a semicolon what to install or set"
            ) from skipped


@contextlib.contextmanager
def _tracker(subject: Subject) -> Iterator[tuple[Tracker, Path]]:
    """Build a tracker for a run in a temporary directory, which is also the working directory."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        stack.enter_context(contextlib.chdir(home))  # so that files outside the run directory go, too
        stack.enter_context(without_network())
        private = {name: value for name, value in os.environ.items() if not name.endswith(_SERVICES)}
        stack.enter_context(mock.patch.dict(os.environ, private, clear=True))
        directory = home / "run"
        directory.mkdir()

        def build() -> Any:
            return subject.component.build(subject.config, directory)

        tracker = available(build)
        if not isinstance(tracker, Tracker):
            lacking = [name for name in ("on_event", "close") if not hasattr(tracker, name)]
            near = [closest(name, dir(tracker)) for name in lacking]
            own = methods_of(tracker, *filter(None, near))
            raise ContractViolation(
                f"build returns {type(tracker).__name__!r}; return an object with on_event(event) and close()"
                f"{f'; it has {own}' if own else ''}"
            )
        yield tracker, directory


def _send(tracker: Tracker, events: list[Event]) -> None:
    for event in events:
        with bearing(f"on_event, on {event!r},", "take every event; pass over those it has no use for"):
            tracker.on_event(event)


def _close(tracker: Tracker) -> None:
    with bearing("close", "it is called at the end of every run, finished or not, and perhaps again"):
        tracker.close()


def _events(*, resumed: bool = False) -> list[Event]:
    """Return the events of a run of two tasks, as the runner sends them."""
    config = {
        "baseline": {"name": "a", "epochs": 2, "blocks": [0, 1], "rate": None},
        "policy": {"name": DEFAULT_POLICY},
        "constraints": {DEFAULT_CONSTRAINTS[0]: {"on": "update"}},
        "run": {"seed": 1, "name": "long " * 200},
    }
    # the first task grows a set and retrieves nothing; the second has evidence, and reuses the set
    measured = measured_set(0, -2.5, parts={"hfc": 41.0, "hfc_pre": 43.5}).as_mapping()
    closed = measured_set(1, None, excluded="space is full").as_mapping()
    decisions = [
        {"task": 0, "candidates": [], "decision": "grow"},
        {"task": 1, "candidates": [measured, closed], "decision": "reuse"},
    ]
    evaluations = [
        TaskEvaluated(
            task=0,
            accuracy=(90.0,),
            retrieval=None,
            metrics={"faa": 90.0, "bwt": None, "pra": None, "ssp": 1},
        ),
        TaskEvaluated(
            task=1,
            accuracy=(89.0, 89.0),
            retrieval=(89.0, 89.0),
            metrics={"faa": 90.0, "bwt": None, "pra": 80.0, "ssp": 1},
        ),
    ]
    shared = {"set": 0, "margin": 0.0, "burden": "grow", "confidence": None, "ranks_after": {}}
    events: list[Event] = [RunStarted(name="checked", config=config, resumed=resumed)]
    for task in range(2):
        events += [
            PhaseStarted(task=task, tasks=2, phase="evidence"),
            TaskDecided(task=task, decision={**decisions[task], **shared}),
            PhaseStarted(task=task, tasks=2, phase="train"),
            Stepped(task=task, tasks=2, phase="train", done=1, total=2, loss=0.5, images_per_second=10.0),
            EpochEnded(
                task=task, phase="train", epoch=0, epochs=1, loss=0.25, lr=0.01, images_per_second=10.0
            ),
            Warned(message="set 0 goes on although excluded"),
            Stepped(task=task, tasks=2, phase="evaluation", done=2, total=2),
            evaluations[task],
        ]
    return [*events, RunEnded(metrics={"faa": 90.0, "bwt": None}, seconds=1.5)]
