"""Progress: plain lines where there is no terminal, bars where there is one."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from lw2g.ground.asked import typed_options
from lw2g.interfaces.tracker import (
    PhaseStarted,
    RunEnded,
    RunStarted,
    Stepped,
    TaskDecided,
    TaskEvaluated,
    Tracker,
    Warned,
)
from lw2g.runtime.progress_display import (
    LineProgress,
    NotebookProgress,
    TerminalProgress,
    milestone,
    progress_tracker,
)
from lw2g_testing.made_evidence import measured_set

CONFIG = {"baseline": {"name": "dual-prompt"}, "policy": {"name": "min"}, "constraints": {"cpk": {}}}
PROMPTS = {"task": 1, "phase": "prompts"}
GROW = {"decision": "grow", "set": 1, "candidates": [measured_set(0, 1.25, unit="degrees").as_mapping()]}


STEP = {"tasks": 3, "total": 10, "epochs": 2, "images_per_second": 99.6, "unit": "images", "elapsed": 65.0}


def events():
    """Return the events of a short run."""
    return [
        RunStarted(name="run-1", config=CONFIG, resumed=False),
        PhaseStarted(task=1, tasks=3, phase="evidence"),
        Stepped(task=1, tasks=3, phase="evidence", done=7, total=34, elapsed=60.0),
        TaskDecided(task=1, decision=GROW),
        PhaseStarted(task=1, tasks=3, phase="prompts"),
        Stepped(**PROMPTS, **STEP, done=8, epoch=0, loss=0.5, remaining=7200.0),
        Stepped(**PROMPTS, **STEP, done=10, epoch=1, loss=0.25, remaining=600.0),
        Warned(message="disk [almost] full"),
        TaskEvaluated(task=1, accuracy=(80.0, 90.0), retrieval=(70.0, 60.0), metrics={"pra": 65.0}),
        RunEnded(metrics={}, seconds=1.0),
    ]


def plain(text):
    """Return what a terminal would show of a text, without colours and moves."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


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
        "running run-1: baseline dual-prompt, policy min, constraints cpk",
        "task 2/3: evidence 7 of 34; 0:01:00 elapsed",
        "task 2/3: gets parameters of its own, set #1 (hindrance: set #0 1.25 ± - degrees)",
        "task 2/3: prompts epoch 2/2, 10 of 10 images, 100 images/s, loss 0.2500; 0:01:05 elapsed, "
        "about 0:10:00 left",
        "warning: disk [almost] full",
        "task 2/3: accuracy 85.0 over all seen tasks, retrieval 65.0",
    ]


def test_the_longer_a_run_takes_the_fewer_lines_it_writes(monkeypatch):
    """In the first minutes a line comes every ten seconds, after ten hours every half an hour."""
    console = Console(file=io.StringIO(), width=100)
    tracker = LineProgress(console)
    lines = []
    for start in (0, 36_000):
        for second in range(start, start + 3600):
            monkeypatch.setattr(
                "lw2g.runtime.progress_display.time.monotonic", lambda second=second: float(second)
            )
            tracker.on_event(Stepped(task=0, tasks=1, phase="p", done=1, total=9, elapsed=float(second)))
        lines.append(len(console.file.getvalue().splitlines()))
    assert lines == [76, 78]


@pytest.mark.parametrize("face", ["terminal", "notebook"])
def test_a_bar_shows_where_the_run_stands_and_milestones_stay(face, monkeypatch, capsys):
    """Phase, epoch, count, loss, speed, seconds elapsed and left; decisions stay to be read."""
    shown = []
    handle = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    fake = SimpleNamespace(display=lambda data, raw, display_id: shown.append(data["text/plain"]) or handle)
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    where = {"force_terminal": True} if face == "terminal" else {"force_jupyter": True}
    tracker, text = played(Console(file=io.StringIO(), width=160, **where))
    assert isinstance(tracker, TerminalProgress if face == "terminal" else NotebookProgress)
    text += "\n".join(shown) + capsys.readouterr().out
    for part in (
        "task 2/3: prompts",
        "epoch 2/2, 10 of 10 images, 100 images/s, loss 0.2500",
        "parameters of its own, set #1",
        "[almost]",
    ):
        assert part in text
    assert "0:01:05 elapsed, about 0:10:00 left" in text


def test_a_narrow_terminal_shows_the_whole_line():
    """At 80 columns nothing is cut: count, speed, loss and the time left, with a bar beside them."""
    _, text = played(Console(file=io.StringIO(), width=80, force_terminal=True))
    (shown,) = set(re.findall(r"task 2/3: prompts [^\r\n]*epoch 2/2[^\r\n]*", plain(text)))
    assert len(shown) <= 80
    assert "…" not in shown
    assert shown.split("━")[-1].strip() == "epoch 2/2, 10/10 images, 100/s, loss 0.25 0:10:00 left"


@pytest.mark.parametrize("terminal", [False, True])
def test_a_reused_set_and_a_resumed_run_are_named(terminal):
    """Both kinds of progress say with whom a task shares, how sure that is, and which set was as near."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    tracker = progress_tracker(console)
    tracker.on_event(RunStarted(name="run-1", config=CONFIG, resumed=True, done=2, goal=4))
    tracker.on_event(TaskDecided(task=2, decision={"decision": "reuse", "set": 0, "candidates": []}))
    values = ((0, -3.54), (1, -3.49), (2, 1.0))
    tied = [measured_set(own, value, 0.4, unit="degrees").as_mapping() for own, value in values]
    decided = {"decision": "reuse", "set": 0, "confidence": 0.8, "candidates": tied}
    tracker.on_event(TaskDecided(task=3, decision=decided, shares_with=(0, 2)))
    certain = {"decision": "reuse", "set": 1, "confidence": 0.999, "candidates": tied[:1]}
    tracker.on_event(TaskDecided(task=9, decision=certain, shares_with=(1, 3, 4, 7)))
    tracker.close()
    text = " ".join(console.file.getvalue().split())
    assert (
        "task 4: shares the parameters of tasks 1 and 3, set #0 (hindrance: set #0 -3.54 ± 0.40, "
        "set #1 -3.49 ± 0.40, set #2 1.00 ± 0.40 degrees; #1 within an error of it; 80% sure to share)"
    ) in text
    assert (
        "task 10: shares the parameters of task 2 and 3 more, set #1 (hindrance: set #0 -3.54 ± 0.40 degrees)"
    ) in text
    assert "going on with run-1 after task 2: " in console.file.getvalue()
    assert "task 3: shares set #0" in console.file.getvalue()
    note = "new classes: lw2g continue run-1 --benchmark NAME"
    ended = RunStarted(name="run-1", config=CONFIG, resumed=True, done=4, goal=4, notes=(note,))
    call = "new classes: lw2g.continue_run('run-1', benchmark=NAME)"
    assert milestone(ended, 4) == f"run-1: 4 tasks learned; {call}"
    with typed_options():
        assert milestone(ended, 4) == f"run-1: 4 tasks learned; {note}"
