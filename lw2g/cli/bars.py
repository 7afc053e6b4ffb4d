"""Progress of commands that are no run: a bar per step on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any

import click

from lw2g.runtime.console import console

__all__ = ["Bars"]

_SECONDS = 2.0
"""Between two plain lines."""


class Bars:
    """A progress bar per step on a terminal; plain lines elsewhere.

    Args:
        counted: Whether steps count images, not bytes.
    """

    def __init__(self, *, counted: bool = False) -> None:
        # slow to import, and most commands show no bar
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()]
        if counted:
            columns = [MofNCompleteColumn()]
        self._bars = Progress(
            "{task.description}",
            BarColumn(),
            *columns,
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,  # what a command prints at its end says what was done
            disable=not console(stderr=True).is_terminal,
        )
        self._tasks: dict[str, Any] = {}
        self._last = time.monotonic()

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def report(self, name: str, done: int, total: int | None) -> None:
        """Show the progress of a step."""
        if not self._bars.console.is_terminal:
            # a log gets a line now and then, and always the last one
            if time.monotonic() - self._last > _SECONDS or done == total:
                self._last = time.monotonic()
                of_total = "" if total is None else f" of {total}"
                click.echo(f"{name}: {done}{of_total}", err=True)
            return
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._tasks[name], completed=done, total=total)
