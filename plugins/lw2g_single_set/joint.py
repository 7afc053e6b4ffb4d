"""joint: one prefix set and a head, trained on the classes of all tasks at once."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lw2g.blocks.prefixes import PrefixBaseline
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import POOL
from lw2g.vit.prefix import PrefixInjection

__all__ = ["Joint"]


class Joint(PrefixBaseline):
    """One prefix set and a head, trained on all classes at once: what a prompt can give without forgetting.

    Its component asks for a stream of one task, so the task's classes are all classes and nothing is masked.
    """

    scope = POOL

    def injections(self, routing: Routing, size: int) -> Sequence[PrefixInjection]:
        """Return the prefixes of the one set."""
        return super().injections(attrs.evolve(routing, chosen=0), size)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: prefix and head together."""
        return self.with_head(context, self.prompt_phase(context))
