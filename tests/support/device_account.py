"""What a run on the simulated device has waited for, step by step and line by line."""

from __future__ import annotations

import itertools
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

import attrs
import torch

__all__ = ["Account", "Wait", "WaitKind"]

WaitKind = Literal["read", "upload", "send"]

_FOREIGN = (str(Path(torch.__file__).parent), str(Path(attrs.__file__).parent), "<")
_OWN = frozenset({__file__, str(Path(__file__).with_name("simulated_device.py"))})


@attrs.frozen(kw_only=True)
class Wait:
    """The host waited for the device.

    Attributes:
        kind: ``"read"``: it wanted a value or a shape; ``"upload"``: it handed something over and waited
            (no ``non_blocking``); ``"send"``: it handed something over and did not wait.
        what: The operation.
        line: The line of ours or of a plugin that asked for it, ``"<file>:<line>"``.
        step: Optimizer steps taken before it.
        optimizer: The optimizer that took the last of them, a number; -1 before the first.
    """

    kind: WaitKind
    what: str
    line: str
    step: int
    optimizer: int


@attrs.define
class Account:
    """What a run under simulation has waited for.

    Attributes:
        waits: In order.
        steps: The optimizer of each step, a number, in order.
        refuses: Whether waiting is an error, as ``torch.cuda.set_sync_debug_mode`` has it.
    """

    waits: list[Wait] = attrs.field(factory=list)
    steps: list[int] = attrs.field(factory=list)
    refuses: bool = False

    def set_mode(self, mode: int | str) -> None:
        """Take the place of ``torch.cuda.set_sync_debug_mode``."""
        self.refuses = mode == "error"

    def between_steps(self, kind: WaitKind = "read") -> dict[int, list[list[Wait]]]:
        """Return the waits between every two successive steps of an optimizer, by optimizer."""
        found: dict[int, list[list[Wait]]] = {number: [] for number in self.steps}
        by_step: dict[int, list[Wait]] = {}
        for wait in self.waits:
            if wait.kind == kind:
                by_step.setdefault(wait.step, []).append(wait)
        for step, (one, other) in enumerate(itertools.pairwise(self.steps), start=1):
            if one == other:
                found[one].append(by_step.get(step, []))
        return found

    def every_step(self, kind: WaitKind = "read") -> list[Wait]:
        """Return waits of an ordinary step: those of the median interval of each optimizer.

        What is read at the end of an epoch, or every so many steps, is not among them.
        """
        found: list[Wait] = []
        for intervals in self.between_steps(kind).values():
            if intervals:
                found += sorted(intervals, key=len)[(len(intervals) - 1) // 2]
        return found

    def mean(self, kind: WaitKind = "read") -> float:
        """Return the mean number of waits between two steps of one optimizer."""
        counts = [len(one) for intervals in self.between_steps(kind).values() for one in intervals]
        return statistics.fmean(counts) if counts else 0.0

    def table(self) -> str:
        """Return the waits by line, the most frequent first."""
        counts = Counter((wait.kind, wait.what, wait.line) for wait in self.waits)
        return "\n".join(
            f"{count:6d} {kind} {what} {line}" for (kind, what, line), count in counts.most_common()
        )

    def note(self, kind: WaitKind, what: str) -> None:
        """Write a wait down."""
        if self.refuses and kind != "send":
            raise RuntimeError("called a synchronizing CUDA operation (simulated device)")
        last = self.steps[-1] if self.steps else -1
        self.waits.append(Wait(kind=kind, what=what, line=_line(), step=len(self.steps), optimizer=last))


def _line() -> str:
    """Return the innermost line that is neither torch's nor the simulation's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if name not in _OWN and not name.startswith(_FOREIGN):
            break
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{frame.f_lineno}"
