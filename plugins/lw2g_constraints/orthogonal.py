"""The orthogonal condition: a reused set moves only outside the space of its old tasks (LW2G, section 4)."""

from __future__ import annotations

from lw2g.plugin import BuildContext, Constraint, Restriction, Site, TaskContext
from lw2g_constraints.options import OrthogonalConfig

__all__ = ["Orthogonal"]


class Orthogonal(Constraint):
    """Hard rule with the memory's spaces: at a set's sites when it is reused, at shared sites from task 2 on.

    With per-head query spaces, what it keeps is the logits of old queries (those inside the space) against
    the prefix keys. Values, prompt keys and features of later blocks may still drift.
    """

    hard = True
    needs_memory = True

    def __init__(self, config: OrthogonalConfig, context: BuildContext) -> None:
        """Act on updates (exact under any optimizer) or on gradients (the paper's literal form)."""
        self.on = config.on

    def restriction(self, site: Site, context: TaskContext) -> Restriction | None:
        """Return the space of the set's old tasks, or the run-wide one of a shared site."""
        # a new set has no old tasks; what all sets share has some even then
        if site.owner == "set" and context.grew:
            return None
        space = context.memory.space(context.set_id, site)
        if space is None:  # the first task
            return None
        return Restriction(subspace=space)
