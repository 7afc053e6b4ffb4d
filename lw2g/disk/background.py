"""Work in the background: one piece at a time, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

__all__ = ["Background"]


class Background:
    """Does one piece of work at a time; the next wait raises its error.

    The work must touch nothing that is still changed. Its thread lasts as long as the piece: a fork between
    pieces leaves no thread behind, and Python does not exit before the work is done.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Start a piece of work as soon as the previous one is done."""
        self.wait()
        self._thread = Thread(target=self._do, args=(work,), name="lw2g-background")
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is under way.

        Raises:
            BaseException: Whatever the work has raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error = self._error
            self._error = None  # raised once
            raise error

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # the next wait raises it, whatever it is
            self._error = error
