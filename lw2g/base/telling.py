"""What takes long says how far it has come, where no progress display is open."""

from __future__ import annotations

import sys
import time

__all__ = ["Telling"]

_SECONDS = 5.0
"""Between two lines; what is done sooner says nothing."""


class Telling:
    """Counts images, and says on stderr now and then how many of them are done.

    Args:
        what: What is done with them.
        total: How many there are.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._last = time.monotonic()

    def __call__(self, count: int) -> None:
        """Note that some more are done."""
        self._done += count
        now = time.monotonic()
        # the end is told by what follows it
        if now - self._last >= _SECONDS and self._done < self._total:
            self._last = now
            print(f"{self._what}: {self._done} of {self._total} images", file=sys.stderr, flush=True)
