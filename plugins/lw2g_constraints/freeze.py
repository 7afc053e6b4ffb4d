"""A reused set stays as it is: only the heads and keys that read its features learn."""

from __future__ import annotations

from lw2g.plugin import BuildContext, Constraint, TaskContext
from lw2g_constraints.options import FreezeConfig

__all__ = ["Freeze"]


class Freeze(Constraint):
    """Freeze a reused set; keys, heads and shared parameters go on learning.

    Features of old tasks then do not drift, and statistics of their classes stay valid, but the set cannot
    adapt to the new task. The orthogonal condition lies between this and no rule: it freezes prefix keys
    inside the old space, and lets values move.
    """

    needs_memory = False

    def __init__(self, config: FreezeConfig, context: BuildContext) -> None:
        """Take no options."""

    def holds(self, context: TaskContext) -> bool:
        """Return whether the set is reused."""
        return not context.grew
