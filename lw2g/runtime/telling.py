"""What takes long says how far it has come, where no progress display is open.

It says so to the logger ``lw2g.progress``. Commands show that; whoever imports lw2g decides.
"""

from __future__ import annotations

import logging
import time

__all__ = ["Telling"]

_LOGGER = logging.getLogger("lw2g.progress")
_SECONDS = 5.0
"""Between two lines; what is done sooner says nothing."""


class Telling:
    """Counts images, and logs now and then how many of them are done.

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
        # no line for the last one: what follows shows that the work is done
        if now - self._last >= _SECONDS and self._done < self._total:
            self._last = now
            _LOGGER.info("%s: %d of %d images", self._what, self._done, self._total)
