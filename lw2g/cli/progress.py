"""The progress of a run: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lw2g.cli.output import number
from lw2g.interfaces.tracker import (
    EpochEnded,
    Event,
    PhaseStarted,
    RunStarted,
    Stepped,
    TaskDecided,
    TaskEvaluated,
    Tracker,
    Warned,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["LineProgress", "TerminalProgress", "progress_tracker"]

_SECONDS_BETWEEN_LINES = 10.0


def progress_tracker(console: Console) -> Tracker:
    """Return the tracker that suits a console."""
    return TerminalProgress(console) if console.is_terminal else LineProgress(console)


def milestone(event: Event, tasks: int) -> str | None:
    """Return the line that an event leaves behind, None for events that only move a bar."""
    match event:
        case RunStarted():
            config = event.config
            parts = " x ".join([config["baseline"]["name"], config["policy"]["name"], *config["constraints"]])
            return f"{'resuming' if event.resumed else 'running'} {event.name}: {parts}"
        case TaskDecided():
            return f"task {_of(event.task, tasks)}: {_decision(event.decision)}"
        case TaskEvaluated():
            average = sum(event.accuracy) / len(event.accuracy)
            pra = event.metrics.get("pra")
            retrieval = "" if pra is None else f", retrieval {number(pra)}"
            return f"task {_of(event.task, tasks)}: accuracy {number(average)} over all seen tasks{retrieval}"
        case Warned():
            return f"warning: {event.message}"
        case _:
            return None


def _decision(decision: dict[str, Any]) -> str:
    chosen = decision["set"]
    text = f"new set #{chosen}" if decision["decision"] == "grow" else f"reuses set #{chosen}"
    measured = [
        f"#{candidate['set']} {number(candidate['z'])} ± {number(candidate.get('z_error'))}"
        for candidate in decision.get("candidates", ())
        if candidate.get("z") is not None
    ]
    return f"{text} (Z: {', '.join(measured)})" if measured else text


def _of(task: int, tasks: int) -> str:
    return f"{task + 1}/{tasks}" if tasks else str(task + 1)


class LineProgress:
    """Writes plain lines: what was decided and reached, and now and then where an epoch stands.

    Args:
        console: Where lines go.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._tasks = console, 0
        self._last = float("-inf")

    def on_event(self, event: Event) -> None:
        """Write a line if the event deserves one."""
        if isinstance(event, PhaseStarted | Stepped):
            self._tasks = event.tasks
        line = milestone(event, self._tasks)
        if isinstance(event, EpochEnded) and (self._is_due() or event.epoch + 1 == event.epochs):
            line = (
                f"task {_of(event.task, self._tasks)}: {event.phase} epoch {event.epoch + 1}/{event.epochs}, "
                f"loss {number(event.loss, 4)}, {number(event.images_per_second, 0)} images/s"
            )
        if line is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing to give back."""

    def _is_due(self) -> bool:
        now = time.monotonic()
        due = now - self._last >= _SECONDS_BETWEEN_LINES
        if due:
            self._last = now
        return due


class TerminalProgress:
    """Draws one bar per phase, with epoch, loss, images per second and the time left; milestones stay.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[details]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left", markup=False),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._bar: TaskID | None = None
        self._tasks = 0

    def on_event(self, event: Event) -> None:
        """Move the bar, or leave a line behind."""
        match event:
            case RunStarted():
                self._progress.start()
            case PhaseStarted():
                self._begin(event)
            case Stepped():
                self._step(event)
        line = milestone(event, self._tasks)
        if line is not None:
            self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _begin(self, event: PhaseStarted | Stepped) -> TaskID:
        self._tasks = event.tasks
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        description = f"task {_of(event.task, event.tasks)} {event.phase}"
        self._bar = self._progress.add_task(description, total=None, details="")
        return self._bar

    def _step(self, event: Stepped) -> None:
        bar = self._begin(event) if self._bar is None else self._bar
        details = [f"epoch {event.epoch + 1}/{event.epochs}"] if event.epochs > 1 else []
        if event.loss is not None:
            details.append(f"loss {event.loss:.4f}")
        if event.images_per_second is not None:
            details.append(f"{event.images_per_second:.0f} images/s")
        self._progress.update(
            bar,
            completed=event.epoch * event.total + event.done,
            total=event.epochs * event.total,
            details="  ".join(details),
        )
