"""What takes long says how far it has come: how much of all is done, how fast, and how long the rest takes.

All of lw2g says it in these words. A run has its own display (:mod:`lw2g.runtime.progress_display`), which
shares them and the bar. Other work logs a line now and then to the logger ``lw2g.progress``, which commands
print and whoever imports lw2g may set up; on a terminal a command shows a bar in place of the lines. What
functions show that take minutes: :func:`shown_to_programs`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

import click

from lw2g.runtime.console import console, in_units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["WIDE", "CommandLog", "Telling", "bars_on", "duration", "figures", "shown_to_programs"]

_LOGGER = logging.getLogger("lw2g.progress")
_SECONDS = 5.0
"""Between two lines; what is done sooner says nothing."""
_SECONDS_TO_A_BAR = 0.5
"""What is done sooner shows no bar."""
_SECONDS_BETWEEN_MOVES = 0.1


WIDE = 110
"""Columns of a terminal from which a bar has room for whole words."""


def figures(
    done: int, total: int | None, unit: str, per_second: float | None = None, *, short: bool = False
) -> str:
    """Return how much is done of all, and how fast.

    Args:
        done: What is done.
        total: All; None where nobody knows.
        unit: What they count, such as ``images``, whose first word the speed has; ``bytes`` are told in a
            suitable unit, and without one the numbers stand alone.
        per_second: What is done in a second; None where nothing is said of it.
        short: Whether the speed leaves out the unit.

    >>> figures(320, 640, "images", 99.6), figures(320, 640, "images", 99.6, short=True)
    ('320 of 640 images, 100 images/s', '320/640 images, 100/s')
    >>> figures(3, 9, ""), figures(32, 64, "images anew", 99.6)
    ('3 of 9', '32 of 64 images anew, 100 images/s')
    """
    if unit == "bytes":
        text = in_units(done) if total is None else f"{in_units(done)} of {in_units(total)}"
        return text if per_second is None else f"{text}, {in_units(per_second)}/s"
    text = f"{done}"
    if total is not None:
        text += f"/{total}" if short else f" of {total}"
    if unit:
        text += f" {unit}"
    if per_second is not None:
        digits = 0 if per_second >= 10 else 1  # what is slower than an image a second is not 0
        text += f", {per_second:.{digits}f}" + ("/s" if short else f" {unit.partition(' ')[0]}/s")
    return text


def duration(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds.

    >>> duration(65.2)
    '0:01:05'
    """
    return str(timedelta(seconds=round(seconds)))


def bars_on(terminal: Console) -> Progress:
    """Return a display of bars, each with a title, ``details`` and a ``clock``; it goes when it stops."""
    # slow to import, and most commands show no bar
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[details]}", markup=False),
        TextColumn("{task.fields[clock]}", markup=False),
        console=terminal,
        transient=True,  # what a command prints at its end says what was done
    )


class CommandLog(logging.Handler):
    """Prints what is logged on stderr, so that results on stdout stay alone; above a bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        line = self.format(record)
        shown = Telling.shown
        if shown is None:
            click.echo(line, err=True)
        else:
            shown.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown_to_programs() -> Iterator[None]:
    """Show within the block what a command would, unless the program has set up logging of its own."""
    if _LOGGER.hasHandlers() or _LOGGER.level != logging.NOTSET:
        yield
        return
    handler = CommandLog()
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(logging.NOTSET)


class Telling:
    """Counts what is done towards a total, and says so: a bar in a command on a terminal, else lines.

    It is a context manager, which takes the bar away at its end, however the block ends.

    Args:
        what: What is done.
        total: How much there is; None where nobody knows.
        unit: As for :func:`figures`.

    Attributes:
        shown: The bar that is on the terminal; within a block that shows one another one shows nothing.
    """

    shown: ClassVar[Progress | None] = None

    def __init__(self, what: str, total: int | None, unit: str = "images") -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0
        self._began = self._last = time.monotonic()
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> Telling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            Telling.shown = None

    def __call__(self, count: int = 1) -> None:
        """Note that some more are done."""
        self.reach(self._done + count)

    def reach(self, done: int, total: int | None = None) -> None:
        """Note how many are done in all, and of how many, if that is known only now."""
        self._done = done
        self._total = total or self._total
        now = time.monotonic()
        if self._bar is None and now - self._began >= _SECONDS_TO_A_BAR and _is_terminal():
            self._open()
        if self._bar is not None:
            if now - self._last >= _SECONDS_BETWEEN_MOVES or done == self._total:
                self._last = now
                left = self._left(now)
                details = self._figures(now) + ("," if left else "")
                self._bar.update(self._task, completed=done, total=self._total, details=details, clock=left)
            return
        # no line for the last one: what follows shows that the work is done
        if Telling.shown is None and now - self._last >= _SECONDS and done != self._total:
            self._last = now
            parts = [self._figures(now), self._left(now)]
            _LOGGER.info("%s: %s", self._what, ", ".join(filter(None, parts)))

    def _open(self) -> None:
        """Show a bar, unless there is one."""
        if Telling.shown is not None:
            return
        self._bar = Telling.shown = bars_on(console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total, details="", clock="")

    def _figures(self, now: float) -> str:
        return figures(self._done, self._total, self._unit, self._done / max(now - self._began, 1e-9))

    def _left(self, now: float) -> str:
        """Return how long the rest takes at the pace so far; nothing where nobody knows."""
        if self._total is None or not self._done:
            return ""
        left = (now - self._began) / self._done * (self._total - self._done)
        return f"about {duration(max(left, 0))} left"


def _is_terminal() -> bool:
    """Whether a command prints what is logged, on a terminal."""
    return sys.stderr.isatty() and any(isinstance(handler, CommandLog) for handler in _LOGGER.handlers)
