"""DualPrompt: a shared G-prompt in shallow blocks, one E-prompt per set in the next ones.

Wang et al., "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning", ECCV 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from lw2g.blocks.prefixes import PrefixBaseline, PrefixSet, check_blocks, inject_prefixes, prefix_sites
from lw2g.errors import ConfigError
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import SET_SHARED
from lw2g.interfaces.site import Site
from lw2g.vit.prefix import PrefixInjection
from lw2g_prompts.options import DualPromptConfig

__all__ = ["DualPrompt"]


class DualPrompt(PrefixBaseline):
    """A set is the E-prompt; the G-prompt and the head are shared and trained in every task."""

    scope = SET_SHARED

    def __init__(self, config: DualPromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.shared_blocks = check_blocks(
            config.shared_blocks, context.backbone.depth, "baseline.shared_blocks"
        )
        context.backbone.require("prefixes", self.shared_blocks)
        both = sorted(set(self.blocks) & set(self.shared_blocks))
        if both:
            raise ConfigError(
                f"baseline.shared_blocks: block {both[0]!r} is in baseline.blocks too",
                "give each block the E-prompt or the G-prompt",
            )
        self.shared_prompt = PrefixSet(
            len(self.shared_blocks), config.shared_length, context.backbone.dim
        ).to(context.device)

    def injections(self, routing: Routing, size: int) -> Sequence[PrefixInjection]:
        """Return the E-prompts of the chosen sets and the G-prompt."""
        shared = inject_prefixes(self.shared_blocks, self.shared_prompt.key, self.shared_prompt.value)
        return (*super().injections(routing, size), shared)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: E-prompt, G-prompt and head together."""
        return self.with_head(context, self.prompt_phase(context))

    def shared_prompts(self) -> Sequence[nn.Parameter]:
        """Return the G-prompt."""
        return tuple(self.shared_prompt.parameters())

    def shared_sites(self) -> Sequence[Site]:
        """Return the key half of the G-prompt."""
        return prefix_sites(
            self.shared_prompt, self.shared_blocks, "shared", tap=self.context.backbone.key_tap
        )
