"""What a sweep says of its cells while they run: the columns of its table, and a line whenever one moves."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from lw2g.errors import counted
from lw2g.runtime.console import number, printable

if TYPE_CHECKING:
    from lw2g.sweeps.sweep_directory import Status

__all__ = ["COLUMNS", "StatusLines", "counts_of", "row_of"]

COLUMNS = ("cell", "state", "task", "left", "FAA", "images/s", "host")
_ON_A_LINE = {"task": "task {}", "FAA": "FAA {}", "left": "about {} left", "host": "on {}"}


class StatusLines:
    """Prints a line whenever a cell starts, finishes a task, or ends; then with how many cells have ended."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, int]] = {}

    def __call__(self, statuses: Sequence[Status]) -> None:
        """Print what has changed."""
        for status in statuses:
            done = 0
            if status.run is not None:
                done = status.run.done
            state_and_done = (status.state, done)
            before = self._before.get(status.cell.name)
            self._before[status.cell.name] = state_and_done
            # a cell that has never done anything is not worth a line
            is_new = before is None and status.state == "waiting"
            if state_and_done != before and not is_new:
                row = dict(zip(COLUMNS, row_of(status), strict=True))
                details = [words.format(row[name]) for name, words in _ON_A_LINE.items() if row[name] != "-"]
                line = ", ".join([f"{status.cell.label}: {status.state}", *details])
                if status.state in ("finished", "failed") and len(statuses) > 1:
                    line += f" ({counts_of(statuses)})"
                print(printable(line), file=sys.stderr, flush=True)


def row_of(status: Status) -> tuple[str, ...]:
    """Return the line of a cell in the table; "-" stands for what its run does not tell yet."""
    run = status.run
    host = "-"
    if status.writer is not None and status.writer.host:  # who has not signed yet has none
        host = status.writer.host
    if run is None:
        return (status.cell.label, status.state, "-", "-", "-", "-", host)
    left = "-"
    if run.remaining is not None:
        left = str(timedelta(seconds=round(run.remaining)))
    speed = number(run.progress.get("images_per_second"), 0)
    done = f"{run.done}/{run.tasks or '?'}"
    return (status.cell.label, status.state, done, left, number(run.metric("faa")), speed, host)


def counts_of(statuses: Sequence[Status]) -> str:
    """Return how many cells there are, and in which states."""
    counts = Counter(status.state for status in statuses)
    by_state = ", ".join(f"{count} {state}" for state, count in counts.items())
    return f"{counted(len(statuses), 'cell')}: {by_state}"
