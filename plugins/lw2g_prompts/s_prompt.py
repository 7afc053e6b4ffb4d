"""S-Prompt++: one independent prefix per set in the first five blocks, nothing shared but the head.

Wang et al., "S-Prompts Learning with Pre-trained Transformers", NeurIPS 2022, in the class-incremental form
that HiDe-Prompt (NeurIPS 2023) compares with. It is DualPrompt without the G-prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lw2g.plugin import (
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
from lw2g_prompts.options import SPromptPlusPlusConfig

__all__ = ["SPromptPlusPlus"]


class SPromptPlusPlus(HeadedBaseline):
    """A set is the prefix of all its blocks; the retrieval strategy does the rest."""

    def __init__(self, config: SPromptPlusPlusConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.prefixes = PrefixSets(config, context)

    @property
    def takes_copies(self) -> bool:
        """Whether each sample gets its own prefix."""
        return self.prefixes.takes_copies

    def new_set(self, source: nn.Module | None) -> PrefixSet:
        """Return a new prefix set: a copy of ``source``, or U(-1, 1)."""
        return self.prefixes.new_set(source)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if the options start new sets from it."""
        return self.prefixes.source_of(pool)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features under the prefix of the chosen set, ``[B, dim]``."""
        prefix = self.prefixes.chosen(routing, len(batch))
        return self.context.backbone.features(batch.images, (prefix,))

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the phase that trains prefix and head together."""
        # the head is shared by all sets; masked logits leave the rows of other tasks without gradient
        trained = (*context.parameters.parameters(), *self.head.parameters())
        group = ParameterGroup(parameters=trained, lr=self.config.effective_lr)
        phase = self.prefixes.phase(context, lambda batch: self.step(batch, context), (group,))
        return self.with_head(context, phase)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's prefix."""
        return self.prefixes.sites(parameters)
