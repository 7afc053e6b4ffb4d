"""joint: one prefix set and a head, trained on the classes of all tasks at once."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from torch import Tensor, nn

from lw2g.plugin import (
    POOL,
    Batch,
    BuildContext,
    HeadedBaseline,
    ParameterGroup,
    Phase,
    Pool,
    PrefixSet,
    PrefixSets,
    Routing,
    Site,
    TaskContext,
)
from lw2g_single_set.options import JointConfig

__all__ = ["Joint"]


class Joint(HeadedBaseline):
    """One prefix set and a head, trained on all classes at once: what a prompt can give without forgetting.

    Its component asks for a stream of one task, so the task's classes are all classes and nothing is masked.
    """

    scope = POOL

    def __init__(self, config: JointConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.prefixes = PrefixSets(config, context)

    @property
    def takes_copies(self) -> bool:
        """Whether each sample gets its own prefix."""
        return self.prefixes.takes_copies

    def new_set(self, source: nn.Module | None) -> PrefixSet:
        """Return a prefix set from U(-1, 1)."""
        return self.prefixes.new_set(source)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if the options start new sets from it."""
        return self.prefixes.source_of(pool)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features under the one set, whatever was chosen, ``[B, dim]``."""
        # nothing is retrieved: there is but one set to choose
        prefix = self.prefixes.chosen(attrs.evolve(routing, chosen=0), len(batch))
        return self.context.backbone.features(batch.images, (prefix,))

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the phase that trains prefix and head together."""
        trained = (*context.parameters.parameters(), *self.head.parameters())
        group = ParameterGroup(parameters=trained, lr=self.config.effective_lr)
        phase = self.prefixes.phase(context, lambda batch: self.step(batch, context), (group,))
        return self.with_head(context, phase)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's prefix."""
        return self.prefixes.sites(parameters)
