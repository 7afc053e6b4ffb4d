"""Consistency with pre-trained knowledge: a soft rule against the pre-trained space (LW2G, section 4)."""

from __future__ import annotations

from lw2g.plugin import BuildContext, Constraint, Restriction, Site, TaskContext
from lw2g_constraints.options import CpkConfig

__all__ = ["PretrainedKnowledge"]


class PretrainedKnowledge(Constraint):
    """Soft rule of every task: ``g <- g - (1 - phi) Proj(g)`` with the pre-trained space of the new task.

    The paper's prose speaks of aligning with that space; its formula, followed here, removes the component
    inside it. On gradients, Adam's rescaling undoes part of the rule, and all of it where the space is
    spanned by coordinate axes.
    """

    hard = False
    needs_memory = False

    def __init__(self, config: CpkConfig, context: BuildContext) -> None:
        """Keep the share ``phi`` of the component inside the space: 1 keeps all of it, 0 none."""
        self.phi = config.phi
        self.on = config.on

    def restriction(self, site: Site, context: TaskContext) -> Restriction | None:
        """Return the pre-trained space of a site that takes soft rules."""
        # phi = 1 removes nothing: no pre-trained space has to be built for it
        if not site.soft or self.phi == 1:
            return None
        return Restriction(subspace=context.pretrained_space(site), strength=1 - self.phi)
