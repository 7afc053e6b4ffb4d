"""Notes: where lw2g does something else than one may think, it says so in a line.

They go to the logger ``lw2g.progress``. Commands show that; whoever imports lw2g decides.
"""

from __future__ import annotations

import logging
from functools import cache

from lw2g.errors import printable
from lw2g.ground.asked import as_asked

__all__ = ["tell_note", "tell_note_once", "tell_warning"]

_LOGGER = logging.getLogger("lw2g.progress")


def tell_note(text: str) -> None:
    """Log what a user should know, as a warning: Python shows these where a program has set up no logging."""
    _LOGGER.warning("note: %s", printable(as_asked(text)))


def tell_warning(text: str) -> None:
    """Log what has gone wrong beside a run that goes on, in the same manner."""
    _LOGGER.warning("warning: %s", printable(text))


@cache
def tell_note_once(text: str) -> None:
    """Log a note that a command comes by several times, as where it opens one file again."""
    tell_note(text)
