"""Work that need not be waited for: one piece at a time, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

__all__ = ["Background"]


class Background:
    """Does one piece of work at a time; what goes wrong in it is raised by whoever waits for it next.

    The work must touch nothing that is still changed. Its thread lasts as long as it does, so that between
    pieces the process has none (one that forks would leave it behind), and Python does not end before it.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Begin with a piece of work, as soon as the one before is done."""
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
            error, self._error = self._error, None
            raise error

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # whoever waits has to learn of it, whatever it is
            self._error = error
