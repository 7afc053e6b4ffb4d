"""What takes long says how far it has come, and what does something else than one may think says so.

It says so to the logger ``lw2g.progress``. Commands show that; whoever imports lw2g decides.
"""

from __future__ import annotations

import logging
import time

from lw2g.errors import printable

__all__ = ["Telling", "tell_note"]

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


def tell_note(text: str) -> None:
    """Log what a user should know, as a warning: Python shows these where a program has set up no logging."""
    _LOGGER.warning("note: %s", printable(text))
