"""How a command ends that is asked to end, or that a plugin ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click

from lw2g.errors import EndedBySignal, as_word
from lw2g.ground.interruption import interrupt, unhidden

__all__ = ["RUN_OF_COMMAND", "TRACEBACK", "saying_what_is_left", "telling_of_exits", "unwinding"]

RUN_OF_COMMAND = "lw2g.run"
"""Where the context of a command keeps the directory of the run that it does."""
TRACEBACK = "--traceback"
"""Where it keeps whether tracebacks are to be printed, which this word asks for anywhere on a line."""

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
_SOON = 0.01
"""Seconds after which a signal is sent again whose exception was swallowed."""


@contextmanager
def unwinding() -> Iterator[None]:
    """Let signals that end a process leave the block as an exception does, and then end it by that signal.

    So folders that are half made and uploads in the temporary folder are removed. Runs and sweeps answer
    these signals themselves while they last. Outside the main thread signals are left alone, and ignored
    ones (nohup) everywhere. An error that a library made of such a signal, or of Ctrl-C, is not told as one.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        # a process that was forked within the block has nothing of its own to clean up
        if os.getpid() != owner:
            _end_by(number)
        interrupt(EndedBySignal(number))

    def stop(number: int, frame: FrameType | None) -> None:
        interrupt(KeyboardInterrupt())

    before: dict[signal.Signals, Any] = {}
    # Python lets the main thread alone set handlers
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    if before and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    try:
        with _again_if_swallowed(), unhidden(click.exceptions.Exit):
            yield
    except EndedBySignal as ended:
        _end_by(ended.number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _again_if_swallowed() -> Iterator[None]:
    """Send a signal again whose exception came in a finalizer or a callback, where Python only prints it.

    This is repeated until the exception comes where it ends the block.
    """
    printing = sys.unraisablehook

    def answer(swallowed: Any) -> None:
        """Send the signal again, or print what is no signal's."""
        error = swallowed.exc_value
        if isinstance(error, EndedBySignal):
            number = error.number
        elif isinstance(error, KeyboardInterrupt):
            number = int(signal.SIGINT)
        else:
            printing(swallowed)
            return
        # by a thread and later: what is raised in here is swallowed, too
        main = threading.main_thread().ident
        threading.Timer(_SOON, signal.pthread_kill, (main, number)).start()

    sys.unraisablehook = answer
    try:
        yield
    finally:
        sys.unraisablehook = printing


@contextmanager
def saying_what_is_left(new: Path | None = None, old: Path | None = None) -> Iterator[None]:
    """Let a Ctrl-C within the block say what a command leaves that names what it writes when it is whole.

    Args:
        new: What the command writes; None for one that writes nothing.
        old: The model that it reads and leaves alone; None where there is none to worry about.
    """
    was_there = new is not None and new.exists()
    try:
        with unhidden():
            yield
    except KeyboardInterrupt as stop:
        if not was_there:  # else whoever named it was refused, or is just replacing it
            written = new is not None and new.exists()
            stop.add_note(f"{new} was written, whole" if written else "nothing was written")
        if old is not None:
            stop.add_note(f"{old} is as it was")
        raise


def _end_by(number: int) -> None:
    """End this process by a signal, as if nobody had caught it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextmanager
def telling_of_exits(resume_at: Path) -> Iterator[None]:
    """Let ``os._exit`` say within the block that a run is unfinished, and never end this process with 0.

    A plugin that calls it leaves no other moment to say so. What ends a process without Python (a library's
    ``_exit``, SIGKILL) cannot be seen from inside: ``lw2g runs`` and ``lw2g show`` tell of the run then.
    """
    leave = os._exit
    owner = os.getpid()

    def tell_and_leave(status: int) -> None:
        """Say that the run is unfinished, and end the process, not with 0; a forked one just ends."""
        if os.getpid() == owner:
            where = f"resume with: lw2g resume {as_word(resume_at)}"
            # to file 2 itself, past sys.stderr: os._exit flushes nothing
            os.write(2, f"error: a plugin ended this process within the run; {where}\n".encode())
            status = status or 1
        leave(status)

    os._exit = tell_and_leave  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave
