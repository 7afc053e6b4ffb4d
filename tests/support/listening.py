"""Listeners that act at an event, as a power cut or a user would."""

from __future__ import annotations

from collections.abc import Callable

from lw2g.interfaces.tracker import Event

__all__ = ["At", "power_cut"]


class At:
    """Does something at every event of which a condition holds."""

    def __init__(self, when: Callable[[Event], bool], act: Callable[[], object]) -> None:
        self.when, self.act = when, act

    def on_event(self, event: Event) -> None:
        if self.when(event):
            self.act()

    def close(self) -> None:
        """Nothing to close."""


def power_cut(error: type[BaseException] = RuntimeError) -> None:
    """End a run where nothing is written after it."""
    raise error("power cut")
