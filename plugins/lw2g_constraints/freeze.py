"""A reused set stays as it is: its tasks meet in its features, and only what reads them learns."""

from __future__ import annotations

from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import TaskContext

__all__ = ["Freeze"]


class Freeze(Constraint):
    """Hold the whole of a set that is reused; keys, heads and shared parameters go on learning.

    Features of old tasks then do not drift, and statistics of their classes stay true; what is given up is
    adaptation to the new task. The orthogonal condition lies between this and no rule: it holds what prefix
    keys have inside the old space, and lets values move.
    """

    needs_memory = False

    def holds(self, context: TaskContext) -> bool:
        """Return whether the set is reused."""
        return not context.grew
