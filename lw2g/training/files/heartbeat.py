"""A sign of life at regular times, from a thread that a process which forks never has beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

__all__ = ["heartbeat"]


class _Heart:
    """Calls something at regular times, until it is stopped; it can be started again.

    Args:
        every: Seconds between two calls.
        beat: What is called.
    """

    def __init__(self, every: float, beat: Callable[[], None]) -> None:
        self._every, self._beat = every, beat

    def start(self) -> None:
        """Begin to beat, first after a while."""
        self._over = Event()
        self._thread = Thread(target=self._go, args=(self._over,), name="lw2g-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until nothing beats any more."""
        self._over.set()
        self._thread.join()

    def _go(self, over: Event) -> None:
        while not over.wait(self._every):
            self._beat()


_beating: list[_Heart] = []


@contextmanager
def heartbeat(every: float, beat: Callable[[], None]) -> Iterator[None]:
    """Call something at regular times within the block.

    Args:
        every: Seconds between two calls, and before the first.
        beat: What is called, in a thread of its own; it must raise nothing.
    """
    heart = _Heart(every, beat)
    heart.start()
    _beating.append(heart)
    try:
        yield
    finally:
        if heart in _beating:  # not in a process that was forked within the block
            _beating.remove(heart)
            heart.stop()


def _pause() -> None:
    for heart in _beating:
        heart.stop()


def _go_on() -> None:
    for heart in _beating:
        heart.start()


# what a thread holds while its process forks, the new process waits for for ever
os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_beating.clear)
