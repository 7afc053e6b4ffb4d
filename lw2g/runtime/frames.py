"""Where an error arose, in a form that processes can exchange."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType, TracebackType

import attrs

from lw2g.errors import Lw2gError, error_text

__all__ = ["Frame", "Handed", "WorkerError", "frames_of", "frames_to"]

_HANDED = "_lw2g_frames"
"""The attribute in which an error of another process brings its calls along; strangers' errors have none."""


@attrs.frozen
class Frame:
    """One call on the way to an error.

    Attributes:
        module: The module whose code ran.
        function: The function's name.
        owners: The class of its ``self`` and that one's bases, as ``"module.name"``; empty for a function.
        place: The file and the line, as ``"policy.py:12"``.
    """

    module: str
    function: str
    owners: frozenset[str]
    place: str = ""


def frames_of(where: TracebackType | None) -> tuple[Frame, ...]:
    """Return the calls of a traceback, outermost first."""
    frames = []
    while where is not None:
        frame = where.tb_frame
        module = str(frame.f_globals.get("__name__"))
        place = f"{Path(frame.f_code.co_filename).name}:{where.tb_lineno}"
        frames.append(Frame(module, frame.f_code.co_name, _owners(frame), place))
        where = where.tb_next
    return tuple(frames)


def frames_to(error: BaseException) -> tuple[Frame, ...]:
    """Return the calls on the way to an error, outermost first; of the process in which it arose."""
    if isinstance(error, WorkerError):
        return error.frames
    handed: tuple[Frame, ...] | None = vars(error).get(_HANDED)
    # its traceback begins where it was raised again, in this process
    return frames_of(error.__traceback__) if handed is None else handed


def _owners(frame: FrameType) -> frozenset[str]:
    own = frame.f_locals.get("self")
    if own is None:
        return frozenset()
    return frozenset(f"{base.__module__}.{base.__qualname__}" for base in type(own).__mro__)


class WorkerError(Exception):
    """An error of another process.

    Attributes:
        kind: The name of its class.
        frames: The calls on the way to it.
    """

    def __init__(self, kind: str, message: str, frames: tuple[Frame, ...]) -> None:
        super().__init__(message)
        self.kind = kind
        self.frames = frames


@attrs.frozen
class Handed:
    """An error in a form that another process can raise.

    Attributes:
        error: The error itself, if it is of a kind that passes unchanged.
        kind: The name of its class.
        message: What it says.
        frames: The calls on the way to it.
        text: Its traceback.
    """

    error: BaseException | None
    kind: str
    message: str
    frames: tuple[Frame, ...]
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Handed:
        """Return an error in this form."""
        # a stranger's error may not survive pickling: the receiver gets its text
        passes = isinstance(error, Lw2gError | OSError | MemoryError)
        return cls(
            error=error if passes else None,
            kind=type(error).__name__,
            message=error_text(error).partition(": ")[2],  # after the name of its class
            frames=frames_of(error.__traceback__),
            text="".join(traceback.format_exception(error)),
        )

    def raised(self) -> BaseException:
        """Return the error for the receiving process to raise."""
        if self.error is not None:
            vars(self.error)[_HANDED] = self.frames  # a traceback does not travel; `frames_to` reads these
            return self.error
        error = WorkerError(self.kind, self.message, self.frames)
        error.add_note(f"in a process that decodes images:\n{self.text}")
        return error
