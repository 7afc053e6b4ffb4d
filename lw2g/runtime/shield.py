"""Trackers whose failures cannot stop a run: they become warnings."""

from __future__ import annotations

from collections.abc import Callable

from lw2g.errors import Lw2gError, PluginError, error_text
from lw2g.interfaces.tracker import Event, Tracker

__all__ = ["PATIENCE", "Shield"]

PATIENCE = 3
"""Failures in a row after which a tracker gets no more events."""

_NOT_THEIRS = (KeyboardInterrupt, MemoryError)


class Shield:
    """Passes events to a tracker and keeps its errors.

    A service that fails for a moment misses some events; one that always fails gets no more.

    Args:
        who: The tracker, with the plugin it comes from.
        build: Makes it.
        required: Whether the run must not begin without it; a resumed run can.

    Raises:
        Lw2gError: It lacks something that it needs, or it is required and fails; raised before training.
    """

    def __init__(self, who: str, build: Callable[[], Tracker], *, required: bool = False) -> None:
        self._who = who
        self._failures = 0
        self._complaints: list[str] = []
        self._told: set[str] = set()
        self._tracker: Tracker | None = None
        try:
            self._tracker = build()
        except (*_NOT_THEIRS, Lw2gError):
            raise
        except BaseException as error:  # a stranger's code: SystemExit too
            if required:
                what = f"{who} cannot start: {error_text(error)}"
                raise PluginError(what, "mend it, or leave it out") from error
            self._complain("build", error)

    def complaints(self) -> list[str]:
        """Return the errors since the last call."""
        complaints = self._complaints
        self._complaints = []
        return complaints

    def on_event(self, event: Event) -> None:
        """Pass an event on."""
        if self._tracker is not None and self._failures < PATIENCE:
            tracker = self._tracker
            self._attempt(f"on_event ({type(event).__name__})", lambda: tracker.on_event(event))

    def close(self) -> None:
        """Close the tracker, even after it has failed too often; it then gets no more events."""
        if self._tracker is not None:
            self._attempt("close", self._tracker.close)
            self._tracker = None

    def _attempt(self, what: str, act: Callable[[], None]) -> None:
        """Call a tracker: its errors are told, and after many in a row it gets no more events."""
        try:
            act()
        except _NOT_THEIRS:
            raise
        except BaseException as error:
            self._failures += 1
            if self._failures == 1 or what == "close":
                self._complain(what, error)
            elif self._failures == PATIENCE:
                self._tell(f"{self._who} failed {PATIENCE} times in a row and gets no more events")
        else:
            self._failures = 0

    def _complain(self, what: str, error: BaseException) -> None:
        self._tell(f"{self._who}, {what}: {error_text(error)}; the run goes on without")

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._complaints.append(line)
