"""DualPrompt: a shared G-prompt in shallow blocks, one E-prompt per set in the next ones.

Wang et al., "DualPrompt: Complementary Prompting for Rehearsal-free Continual Learning", ECCV 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lw2g.plugin import (
    SET_SHARED,
    Batch,
    BuildContext,
    ConfigError,
    HeadedBaseline,
    Injection,
    ParameterGroup,
    Phase,
    Pool,
    PrefixSet,
    PrefixSets,
    Routing,
    Site,
    TaskContext,
    inject_prefixes,
)
from lw2g_prompts.options import DualPromptConfig

__all__ = ["DualPrompt"]


class DualPrompt(HeadedBaseline):
    """A set is the E-prompt; the G-prompt and the head are shared and trained in every task."""

    scope = SET_SHARED

    def __init__(self, config: DualPromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.prefixes = PrefixSets(config, context)
        self.shared_blocks = context.backbone.check_blocks(config.shared_blocks, "baseline.shared_blocks")
        context.backbone.require("prefixes", self.shared_blocks)
        both = sorted(set(self.prefixes.blocks) & set(self.shared_blocks))
        if both:
            raise ConfigError(
                f"baseline.shared_blocks: block {both[0]!r} is in baseline.blocks too",
                "give each block the E-prompt or the G-prompt",
            )
        self.shared_prompt = PrefixSet(
            len(self.shared_blocks), config.shared_length, context.backbone.dim
        ).to(context.device)

    @property
    def takes_copies(self) -> bool:
        """Whether each sample gets its own E-prompt."""
        return self.prefixes.takes_copies

    def new_set(self, source: nn.Module | None) -> PrefixSet:
        """Return a new E-prompt: a copy of ``source``, or U(-1, 1)."""
        return self.prefixes.new_set(source)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained E-prompt if the options start new ones from it."""
        return self.prefixes.source_of(pool)

    def injections(self, routing: Routing, size: int) -> Sequence[Injection]:
        """Return the E-prompts of the chosen sets, for a batch of ``size`` samples, and the G-prompt."""
        # whichever set was chosen: an image retrieved wrongly still meets the right G-prompt
        shared = inject_prefixes(self.shared_blocks, self.shared_prompt.key, self.shared_prompt.value)
        return (self.prefixes.chosen(routing, size), shared)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features under both prompts, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, self.injections(routing, len(batch)))

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the phase that trains E-prompt, G-prompt and head together.

        :meth:`with_head` adds what the chosen head needs: a fit of a closed-form head after it, and before it
        a pass that stores features if a carry moves statistics.
        """
        own = context.parameters
        shared = self.shared_prompt
        # the G-prompt goes on learning in every task, at the rate of the E-prompt
        trained = (*own.parameters(), *shared.parameters(), *self.head.parameters())
        group = ParameterGroup(parameters=trained, lr=self.config.effective_lr)
        phase = self.prefixes.phase(context, lambda batch: self.step(batch, context), (group,))
        return self.with_head(context, phase)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of the E-prompt at every block."""
        return self.prefixes.sites(parameters)

    def shared_sites(self) -> Sequence[Site]:
        """Return the key half of the G-prompt."""
        return self.shared_prompt.sites(self.shared_blocks, "shared", tap=self.context.backbone.key_tap)
