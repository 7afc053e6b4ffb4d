"""The progress of a run: a bar on a terminal and in a notebook, plain lines elsewhere.

Each shows task, phase, epoch, count, loss, images per second, and elapsed and expected remaining seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lw2g.errors import counted
from lw2g.ground.asked import as_asked
from lw2g.interfaces.tracker import (
    Event,
    PhaseStarted,
    RunStarted,
    Stepped,
    TaskDecided,
    TaskEvaluated,
    Tracker,
    Warned,
)
from lw2g.runtime.console import listed, method_name, number, printable
from lw2g.runtime.telling import WIDE, Telling, bars_on, duration, figures

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

__all__ = ["LineProgress", "NotebookProgress", "TerminalProgress", "progress_tracker"]

_SECONDS_BETWEEN_LINES = 10.0
_LINES_PER_DOUBLING = 20
"""About so many lines each time the run's duration doubles: a run of days fills no log."""
_BAR = 24
"""Width of a notebook's bar, in characters."""


def progress_tracker(console: Console) -> Tracker:
    """Return the tracker for a console."""
    if console.is_jupyter:
        return NotebookProgress()
    if console.is_terminal:
        return TerminalProgress(console)
    return LineProgress(console)


def milestone(event: Event, tasks: int) -> str | None:
    """Return the permanent line of an event; None for events that only move a bar."""
    match event:
        case RunStarted():
            notes = list(map(as_asked, event.notes))
            if event.done == event.goal:
                return "; ".join([f"{event.name}: {counted(event.done, 'task')} learned", *notes])
            verb = "going on with" if event.resumed else "running"
            after = f" after task {event.done}" if event.done else ""
            method = method_name(event.config, grows=event.grows)
            return "\n".join([f"{verb} {event.name}{after}: {method}", *notes])
        case TaskDecided():
            return f"task {_of(event.task, tasks)}: {_decision(event)}"
        case TaskEvaluated():
            known = [value for value in event.accuracy if value is not None]
            average = sum(known) / len(known)
            text = f"task {_of(event.task, tasks)}: accuracy {number(average, 1)} over all seen tasks"
            if event.metrics.get("pra") is not None:
                text += f", retrieval {number(event.metrics['pra'], 1)}"
            return text
        case Warned():
            return f"warning: {event.message}"
        case _:
            return None


_MOST = 3
"""Tasks that are named one by one."""
_CERTAIN = 0.995
"""How sure a decision is, rounded to 100 %, where that is not worth a word."""


def _decision(event: TaskDecided) -> str:
    """Return a decision in words, with what was measured of each candidate."""
    decision = event.decision
    name = f"set #{decision['set']}"
    if event.shares_with:
        name = f"the parameters of {_tasks(event.shares_with)}, {name}"
    if decision["decision"] == "grow":
        text = f"gets parameters of its own, {name}"
    elif decision["decision"] == "merge":
        text = f"merges into {name}"
    else:
        text = f"shares {name}"
    if decision.get("weight") is not None:
        text += f", by {number(decision['weight'])}"
    if decision.get("held"):
        text += ", as it is"
    details = list(_measured(decision))
    sure = decision.get("confidence")
    if sure is not None and sure < _CERTAIN:
        # of sharing or not: of which set it says nothing
        details.append(f"{sure:.0%} sure" + ("" if decision["decision"] == "grow" else " to share"))
    if details:
        text += f" ({'; '.join(details)})"
    return text


def _tasks(tasks: Sequence[int]) -> str:
    """Return tasks by their numbers from 1, of many the first and how many more there are."""
    named = [str(task + 1) for task in tasks]
    if len(named) > _MOST:
        named[1:] = [f"{len(named) - 1} more"]
    return f"task{'' if len(tasks) == 1 or len(tasks) > _MOST else 's'} {listed(named)}"


def _measured(decision: dict[str, Any]) -> Iterator[str]:
    """Yield what each measure says of the sets, and which sets are as near as the one that was taken."""
    by_measure: dict[str, list[str]] = {}
    units = {}
    for candidate in decision.get("candidates", ()):
        for name, measured in candidate["measures"].items():
            if measured["value"] is None:  # not defined for this set
                continue
            value = number(measured["value"])
            error = number(measured["error"])
            by_measure.setdefault(name, []).append(f"set #{candidate['set']} {value} ± {error}")
            units[name] = measured["unit"]
    for name, values in by_measure.items():
        yield f"{name}: {', '.join(values)} {units[name]}".rstrip()
        if near := _near(decision, name):
            yield f"{', '.join(near)} within an error of it"


def _near(decision: dict[str, Any], measure: str) -> list[str]:
    """Return the sets whose measure is no further from that of a reused one than its standard error."""
    found = {}
    for candidate in decision.get("candidates", ()):
        measured = candidate["measures"].get(measure, {})
        if measured.get("value") is not None:
            found[candidate["set"]] = measured
    own = found.pop(decision["set"], None)
    if own is None or own["error"] is None:
        return []
    return [f"#{name}" for name, one in found.items() if abs(one["value"] - own["value"]) <= own["error"]]


def _of(task: int, tasks: int) -> str:
    # 0 until a phase has begun: an event of its own says the number of tasks
    if not tasks:
        return str(task + 1)
    return f"{task + 1}/{tasks}"


def _title(event: PhaseStarted | Stepped) -> str:
    return f"task {_of(event.task, event.tasks)}: {event.phase}"


def _details(event: Stepped, *, short: bool = False) -> str:
    """Return a phase's progress, loss and speed; in a short form for a narrow terminal."""
    parts = []
    if event.epochs > 1:
        parts.append(f"epoch {event.epoch + 1}/{event.epochs}")
    parts.append(figures(event.done, event.total, event.unit, event.images_per_second, short=short))
    if event.loss is not None:
        parts.append(f"loss {event.loss:.{2 if short else 4}f}")
    return ", ".join(parts)


def _share(event: Stepped) -> float:
    return (event.epoch * event.total + event.done) / (event.epochs * event.total)


class _Clock:
    """The elapsed and remaining seconds of the run, counted on between two steps.

    Args:
        short: Whether one of them is enough: the remaining ones, once they are known.
    """

    def __init__(self, *, short: bool = False) -> None:
        self._short = short
        self._elapsed = 0.0
        self._at = time.monotonic()  # when the elapsed time was told
        self._remaining: float | None = None

    def set(self, event: Stepped) -> None:
        """Take over the times of a step."""
        self._elapsed = event.elapsed
        self._remaining = event.remaining
        self._at = time.monotonic()

    def __str__(self) -> str:
        since = time.monotonic() - self._at
        elapsed = f"{duration(self._elapsed + since)} elapsed"
        if self._remaining is None:
            return elapsed
        left = f"{duration(max(self._remaining - since, 0))} left"
        return left if self._short else f"{elapsed}, about {left}"


class LineProgress:
    """Writes plain lines: decisions, accuracies, and now and then the progress of a phase.

    Args:
        console: The console to write to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks = 0
        self._clock = _Clock()
        self._last = float("-inf")  # when a line was last written: the first is due at once

    def on_event(self, event: Event) -> None:
        """Write a line if the event deserves one."""
        if isinstance(event, PhaseStarted | Stepped):
            self._tasks = event.tasks
        line = milestone(event, self._tasks)
        if isinstance(event, Stepped):
            self._clock.set(event)
            # the end of a training always gets its line: it has the last loss
            trained = event.loss is not None and _share(event) == 1
            if trained or self._is_due(event.elapsed):
                line = f"{_title(event)} {_details(event)}; {self._clock}"
        if line is not None:
            self._console.print(printable(line, lines=True), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing."""

    def _is_due(self, elapsed: float) -> bool:
        """Whether it is time for a line; the interval grows with the run's duration."""
        now = time.monotonic()
        due = now - self._last >= max(_SECONDS_BETWEEN_LINES, elapsed / _LINES_PER_DOUBLING)
        if due:
            self._last = now
        return due


class NotebookProgress:
    """Updates one line of a notebook's output, with a bar; milestones are printed below it."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._tasks = 0
        self._line: Callable[[str], None] | None = None

    def on_event(self, event: Event) -> None:
        """Update the line or print a milestone."""
        match event:
            case PhaseStarted():
                self._tasks = event.tasks
                self._show(f"{_title(event)}  {self._clock}")
            case Stepped():
                self._clock.set(event)
                bar = ("#" * round(_BAR * _share(event))).ljust(_BAR, ".")
                self._show(f"{_title(event)} [{bar}] {_details(event)}  {self._clock}")
        line = milestone(event, self._tasks)
        if line is not None:
            print(printable(line, lines=True))

    def close(self) -> None:
        """Keep the line: it shows how long the run took."""

    def _show(self, text: str) -> None:
        """Show a text in the output of the cell, in place of the one before."""
        if self._line is None:
            from IPython.display import display

            handle = display({"text/plain": text}, raw=True, display_id=True)
            self._line = lambda text: handle.update({"text/plain": text}, raw=True)
        else:
            self._line(text)


class TerminalProgress:
    """Draws one bar per phase with the details of its last step; milestones stay.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        self._progress = bars_on(console)
        self._bar: TaskID | None = None
        self._short = console.width < WIDE
        self._clock = _Clock(short=self._short)
        self._tasks = 0

    def on_event(self, event: Event) -> None:
        """Move the bar or print a milestone."""
        match event:
            case RunStarted():
                self._progress.start()
                Telling.shown = self._progress  # what counts images within the run shows no bar of its own
            case PhaseStarted():
                self._begin(event)
            case Stepped():
                self._clock.set(event)
                bar = self._begin(event) if self._bar is None else self._bar
                details = _details(event, short=self._short)
                self._progress.update(bar, completed=_share(event), total=1, details=details)
        line = milestone(event, self._tasks)
        if line is not None:
            self._progress.console.print(printable(line, lines=True), markup=False, highlight=False)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()
        if Telling.shown is self._progress:
            Telling.shown = None

    def _begin(self, event: PhaseStarted | Stepped) -> TaskID:
        self._tasks = event.tasks
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        self._bar = self._progress.add_task(_title(event), total=None, details="", clock=self._clock)
        return self._bar
