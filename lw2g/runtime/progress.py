"""Events for listeners, clocks, and stops at a safe point on request."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import attrs

from lw2g.errors import Interrupted
from lw2g.ground.interruption import interrupt, unhidden
from lw2g.ground.notes import tell_note
from lw2g.interfaces.tracker import Event, PhaseStarted, Stepped, Tracker, Warned
from lw2g.runtime.pace import Pace
from lw2g.runtime.shield import Shield

__all__ = ["STOPS", "Interrupted", "Reporter", "Steps", "StopRequest", "stop_on_interrupt"]

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
"""Signals that stop a run where it can be resumed.

SIGHUP comes when a terminal is closed; schedulers send SIGUSR1 some time before the end (``--signal`` of
Slurm) and SIGXCPU when the processor time is used up.
"""

_INTERVAL = 0.2
"""The least seconds between two reports of progress."""


class StopRequest:
    """A request to stop a run, and whether it has to wait for a safe point.

    Attributes:
        wanted: Set by the first signal within :meth:`after_batch`.
        listens: Whether signals reach it.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.listens = False
        self._owner = os.getpid()
        self._waits = False

    @contextmanager
    def after_batch(self) -> Iterator[None]:
        """Let a request wait within the block, so that the run saves its state first."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: note the request and print a line, or interrupt the process."""
        if os.getpid() != self._owner:
            return  # a process that decodes images ends with the process that it works for
        if not self._waits or self.wanted:
            interrupt(KeyboardInterrupt())
        self.wanted = True
        # written, not printed: the signal may have come within a print, whose lock is not reentrant
        os.write(2, b"\nstopping after this batch ... (once more: at once)\n")


@contextmanager
def stop_on_interrupt() -> Iterator[StopRequest]:
    """Let the signals of :data:`STOPS` stop the block: at once, or within a batch after the state is saved.

    A run continues after an interruption as after a crash. Outside the main thread signals are left alone,
    and ignored ones (nohup) everywhere.
    """
    request = StopRequest()
    previous: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in STOPS:
            if signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, request.handle)
    try:
        with unhidden():
            yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Steps:
    """Counts images towards a known total.

    Args:
        total: Number of images.
        progress: Called with the number of those that are done, and the total.
    """

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def __call__(self, count: int) -> None:
        """Count some more."""
        self._done += count
        self._progress(self._done, self._total)


def _copied(event: Event) -> Event:
    """Return a copy of an event; tuples of numbers, as long as the stream, cannot be changed and stay."""
    # deepcopy takes what its memo holds for a copy that was made already
    memo: dict[int, object] = {}
    for value in attrs.asdict(event, recurse=False).values():
        if isinstance(value, tuple) and all(isinstance(entry, int | float | None) for entry in value):
            memo[id(value)] = value
    return copy.deepcopy(event, memo)


class Reporter:
    """Sends events to listeners and keeps the run's clocks.

    Args:
        listeners: Receive every event, in order.
        sizes: Training images of each task of the stream.
        trained: How many tasks, from the first on, train; None: all.
    """

    def __init__(
        self, listeners: Sequence[Tracker], sizes: Sequence[int], trained: int | None = None
    ) -> None:
        self._listeners = list(listeners)
        self._shields = [listener for listener in self._listeners if isinstance(listener, Shield)]
        self._tasks = len(sizes)
        self._told: set[str] = set()
        self._pace = Pace(sizes, trained)
        self.seconds: dict[str, float] = defaultdict(float)
        # the run: when this process began it, and its seconds before a resume
        self._began = time.perf_counter()
        self._before = 0.0
        # the phase: when it began, the share of it that was done before a resume, the last report
        self._task = -1
        self._phase = ""
        self._since = 0.0
        self._from = 0.0
        self._last = 0.0
        # when the present count of images began, and the last number: a phase may count several times
        self._counted_from = 0.0
        self._counted = 0

    @property
    def elapsed(self) -> float:
        """Seconds of the run, including those before a resume."""
        return self._before + time.perf_counter() - self._began

    def resume(self, seconds: Mapping[str, float]) -> None:
        """Set the clocks to earlier values."""
        self.seconds.update(seconds)
        self._before = self.seconds["total"]

    def send(self, event: Event) -> None:
        """Pass a copy of an event to each listener, so that no listener can change the run's own data."""
        for listener in self._listeners:
            listener.on_event(_copied(event))
        self._tell_complaints()

    def close(self) -> None:
        """Close all listeners: the trackers, which may fail, before those that report failures."""
        for shield in self._shields:
            shield.close()
        self._tell_complaints()
        for listener in self._listeners:
            if not isinstance(listener, Shield):
                listener.close()

    def _tell_complaints(self) -> None:
        for shield in self._shields:
            for line in shield.complaints():
                self.warn(line)

    def warn(self, message: str) -> None:
        """Pass a warning on to all listeners."""
        self.send(Warned(message=message))

    def note_once(self, text: str) -> None:
        """Tell the user a note, unless this run has told it already."""
        if text not in self._told:
            self._told.add(text)
            tell_note(text)

    def plan(self, epochs: Mapping[str, int]) -> None:
        """Announce the task's phases and their numbers of epochs (0: none)."""
        self._pace.plan(epochs)

    def begin(self, task: int, phase: str, share: float = 0.0) -> None:
        """Announce that a kind of work begins, of which a share (0 to 1) was done before a resume."""
        now = time.perf_counter()
        if self._phase and self._from < 1:
            self._pace.finish(self._task, self._phase, (now - self._since) / (1 - self._from))
        self._pace.begin(phase, first=task != self._task)
        self._task = task
        self._phase = phase
        self._since = now
        self._from = share
        self._counted_from = now
        self._counted = 0
        self.send(PhaseStarted(task=task, tasks=self._tasks, phase=phase))

    def advance(
        self,
        done: int,
        total: int,
        *,
        epoch: int = 0,
        epochs: int = 1,
        loss: Callable[[], float] | None = None,
        images_per_second: float | None = None,
        unit: str = "images",
    ) -> None:
        """Report progress; listeners get it a few times a second at most.

        Args:
            done: What is done (of the epoch).
            total: All of it (of the epoch).
            epoch: The epoch, from 0.
            epochs: Epochs in all.
            loss: Returns the mean loss of the epoch; called only for reports that listeners get, because
                reading it waits for all earlier work of the device.
            images_per_second: The speed of the epoch; None for that of the phase.
            unit: What is counted, as in :class:`~lw2g.interfaces.tracker.Stepped`.
        """
        now = time.perf_counter()
        if done <= self._counted:
            self._counted_from = self._last
        self._counted = done
        if now - self._last < _INTERVAL and done != total:
            return
        self._last = now
        of_phase = (epoch * total + done) / (epochs * total)  # the share of all epochs
        if images_per_second is None and unit.startswith("images"):
            images_per_second = done / max(now - self._counted_from, 1e-9)
        event = Stepped(
            task=self._task,
            tasks=self._tasks,
            phase=self._phase,
            done=done,
            total=total,
            epoch=epoch,
            epochs=epochs,
            loss=None if loss is None else loss(),
            images_per_second=images_per_second,
            unit=unit,
            elapsed=self.elapsed,
            remaining=self._remaining(of_phase, now),
        )
        self.send(event)

    def _remaining(self, share: float, now: float) -> float | None:
        if not self._phase or share <= self._from:
            return None
        whole = (now - self._since) / (share - self._from)
        return self._pace.remaining(self._task, self._phase, whole, share)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Add the seconds of the block to one of the run's clocks."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - began
