"""Progress of commands whose work has named steps, each with a count of its own."""

from __future__ import annotations

from lw2g.runtime.telling import Telling

__all__ = ["Bars"]


class Bars:
    """Tells the progress of one named step after the other, as :class:`~lw2g.runtime.telling.Telling` does.

    Args:
        counted: Whether steps count images, not bytes.
    """

    def __init__(self, *, counted: bool = False) -> None:
        self._unit = "images" if counted else "bytes"
        self._name = ""
        self._step: Telling | None = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def report(self, name: str, done: int, total: int | None) -> None:
        """Show the progress of a step."""
        if self._step is None or name != self._name:
            self._end()
            self._name = name
            self._step = Telling(name, total, self._unit)
        self._step.reach(done, total)

    def _end(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
