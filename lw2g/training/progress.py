"""Telling listeners what happens, counting seconds, and stopping at a safe point when asked to."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from lw2g.interfaces.tracker import Event, PhaseStarted, Stepped, Tracker, Warned

__all__ = ["Interrupted", "Reporter", "StopRequest", "stop_on_interrupt"]

_INTERVAL = 0.2


class Interrupted(Exception):
    """A run was stopped on request and can be resumed.

    Attributes:
        directory: The run's directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(f"interrupted; resume with: lw2g resume {directory}")
        self.directory = directory


class StopRequest:
    """Set by the first Ctrl-C (or SIGTERM); read at safe points."""

    def __init__(self) -> None:
        self.wanted = False


@contextmanager
def stop_on_interrupt() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; the second SIGINT interrupts at once.

    Outside the main thread signals are left alone.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.wanted:
            raise KeyboardInterrupt
        request.wanted = True

    previous: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Reporter:
    """Sends events to listeners and keeps the run's clocks.

    Args:
        listeners: Receive every event, in order.
        tasks: Number of tasks of the stream.
        seconds: Clocks to go on from (resume).
    """

    def __init__(self, listeners: Sequence[Tracker], tasks: int, seconds: dict[str, float]) -> None:
        self._listeners = list(listeners)
        self._tasks, self._last = tasks, 0.0
        self.seconds: dict[str, float] = defaultdict(float, seconds)
        self._task, self._phase = 0, ""

    def send(self, event: Event) -> None:
        """Pass an event on to all listeners."""
        for listener in self._listeners:
            listener.on_event(event)

    def warn(self, message: str) -> None:
        """Pass a warning on to all listeners."""
        self.send(Warned(message=message))

    def begin(self, task: int, phase: str) -> None:
        """Say that work of a kind begins."""
        self._task, self._phase = task, phase
        self.send(PhaseStarted(task=task, tasks=self._tasks, phase=phase))

    def advance(self, done: int, total: int, **details: Any) -> None:
        """Say that work has moved on; passed on a few times a second at most."""
        now = time.monotonic()
        if now - self._last < _INTERVAL and done != total:
            return
        self._last = now
        event = Stepped(
            task=self._task, tasks=self._tasks, phase=self._phase, done=done, total=total, **details
        )
        self.send(event)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Add the seconds of the block to one of the run's clocks."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - began
