"""Progress: plain lines where there is no terminal, bars where there is one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lw2g.cli.progress import LineProgress, TerminalProgress, progress_tracker
from lw2g.interfaces.tracker import (
    EpochEnded,
    PhaseStarted,
    RunEnded,
    RunStarted,
    Stepped,
    TaskDecided,
    TaskEvaluated,
    Tracker,
    Warned,
)

CONFIG = {"baseline": {"name": "dual-prompt"}, "policy": {"name": "min"}, "constraints": {"cpk": {}}}
PROMPTS = {"task": 1, "phase": "prompts"}
GROW = {"decision": "grow", "set": 1, "candidates": [{"set": 0, "z": 1.25, "z_error": None}]}


def events():
    """Return the events of a short run."""
    return [
        RunStarted(name="run-1", config=CONFIG, resumed=False),
        PhaseStarted(task=1, tasks=3, phase="evidence"),
        TaskDecided(task=1, decision=GROW),
        PhaseStarted(task=1, tasks=3, phase="prompts"),
        Stepped(**PROMPTS, tasks=3, done=8, total=10, epoch=1, epochs=2, loss=0.5, images_per_second=99.6),
        EpochEnded(**PROMPTS, epoch=0, epochs=2, loss=0.5, lr=0.1, images_per_second=99.6),
        EpochEnded(**PROMPTS, epoch=1, epochs=2, loss=0.25, lr=0.1, images_per_second=100.4),
        Warned(message="disk [almost] full"),
        TaskEvaluated(task=1, accuracy=(80.0, 90.0), retrieval=(70.0, 60.0), metrics={"pra": 65.0}),
        RunEnded(metrics={}, seconds=1.0),
    ]


def played(console):
    """Send all events to the tracker of a console and return what it has printed."""
    tracker = progress_tracker(console)
    assert isinstance(tracker, Tracker)
    for event in events():
        tracker.on_event(event)
    tracker.close()
    return tracker, console.file.getvalue()


def test_plain_lines_tell_what_was_decided_and_reached():
    """Where output is no terminal every line stands for itself; tasks count from 1."""
    tracker, text = played(Console(file=io.StringIO(), width=40))
    assert isinstance(tracker, LineProgress)
    assert text.splitlines() == [
        "running run-1: dual-prompt x min x cpk",
        "task 2/3: new set #1 (Z: #0 1.25 ± -)",
        "task 2/3: prompts epoch 1/2, loss 0.5000, 100 images/s",
        "task 2/3: prompts epoch 2/2, loss 0.2500, 100 images/s",
        "warning: disk [almost] full",
        "task 2/3: accuracy 85.00 over all seen tasks, retrieval 65.00",
    ]


def test_many_epochs_do_not_make_many_lines():
    """Between the first and the last epoch, lines come at most every few seconds."""
    console = Console(file=io.StringIO(), width=100)
    tracker = LineProgress(console)
    for epoch in range(200):
        tracker.on_event(
            EpochEnded(task=0, phase="p", epoch=epoch, epochs=200, loss=1.0, lr=0.1, images_per_second=1.0)
        )
    assert len(console.file.getvalue().splitlines()) <= 3


def test_a_terminal_gets_a_bar_and_keeps_the_milestones():
    """The bar shows phase, epoch, loss and speed; decisions stay on the screen."""
    tracker, text = played(Console(file=io.StringIO(), force_terminal=True, width=120))
    assert isinstance(tracker, TerminalProgress)
    for part in ("task 2/3 prompts", "epoch 2/2", "loss 0.5000", "100 images/s", "new set #1", "[almost]"):
        assert part in text


@pytest.mark.parametrize("terminal", [False, True])
def test_a_reused_set_and_a_resumed_run_are_named(terminal):
    """Both kinds of progress say what was decided."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    tracker = progress_tracker(console)
    tracker.on_event(RunStarted(name="run-1", config=CONFIG, resumed=True))
    tracker.on_event(TaskDecided(task=2, decision={"decision": "reuse", "set": 0, "candidates": []}))
    tracker.close()
    assert "resuming run-1" in console.file.getvalue()
    assert "task 3: reuses set #0" in console.file.getvalue()
