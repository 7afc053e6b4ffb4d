"""Interruptions that a library turned into an error of its own.

A handler of a signal raises wherever the program is. A library in another language may turn that into its own
error, which tells of a damaged file, say. So a handler notes what it raises, and the boundaries where errors
become messages raise it again in place of such an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from lw2g.errors import EndedBySignal, Interrupted, Lw2gError

__all__ = ["answered", "interrupt", "unhidden"]

_noted: KeyboardInterrupt | EndedBySignal | None = None
"""The last interruption that a handler raised and nobody has answered."""


def interrupt(stop: KeyboardInterrupt | EndedBySignal) -> NoReturn:
    """Raise an interruption from a handler, and note that it came."""
    global _noted
    _noted = stop
    raise stop


def answered() -> None:
    """Forget the interruption: somebody caught it, and errors from now on are errors."""
    global _noted
    _noted = None


@contextmanager
def unhidden(*answers: type[Exception]) -> Iterator[None]:
    """Raise an interruption that came within the block, in place of the error that a library made of it.

    An error of lw2g that was raised where a Ctrl-C had been caught is an answer to it, and passes; so do
    errors of the classes ``answers``. A signal that ends the process is raised even if the block ends well.
    """
    before = _noted
    try:
        yield
    except answers:
        raise
    except Exception as error:
        stop = _noted
        if stop is None or stop is before or _answers(error, stop):
            raise
        raise _again(stop) from error
    stop = _noted
    if isinstance(stop, EndedBySignal) and stop is not before:
        raise _again(stop)


def _again(stop: KeyboardInterrupt | EndedBySignal) -> KeyboardInterrupt | EndedBySignal:
    """Return an interruption like another, which may be part of the chain of the error that hid it."""
    return type(stop)(*stop.args)


def _answers(error: Exception, stop: KeyboardInterrupt | EndedBySignal) -> bool:
    """Return whether an error goes back to one of lw2g that was raised where a Ctrl-C had been caught.

    An error of a library may have the Ctrl-C as its cause, too, but tells of something else.
    """
    if isinstance(stop, EndedBySignal):  # nobody catches these to go on
        return False
    seen: set[int] = set()
    later: BaseException | None = error
    while later is not None and id(later) not in seen:
        earlier = later.__cause__ or later.__context__
        if earlier is stop:
            return isinstance(later, Lw2gError | Interrupted)
        seen.add(id(later))
        later = earlier
    return False
