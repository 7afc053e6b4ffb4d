"""HiDe-Prompt: prompt sets with an ensemble and a contrastive term, a classifier corrected by replay.

Wang et al., "Hierarchical Decomposition of Prompt-Based Continual Learning: Rethinking Obscured
Sub-optimality", NeurIPS 2023. Its task-identity inference is the retrieval strategy ``classifier``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from lw2g.plugin import (
    Batch,
    BuildContext,
    ClassStatistics,
    ComputePhase,
    HeadedBaseline,
    ParameterGroup,
    Phase,
    Pool,
    PrefixSet,
    PrefixSets,
    Routing,
    Site,
    StepOutput,
    TaskContext,
    head_replay,
    self_identification_loss,
)
from lw2g_prompts.options import HidePromptConfig

__all__ = ["HidePrompt"]


class HidePrompt(HeadedBaseline):
    """A set is a prefix; per task it is trained, merged with the others if new, and the head is corrected.

    Statistics of old classes are those of their set at the time they were learned: no old image exists to
    refresh them when a shared set moves.
    """

    learning_only = ("statistics",)
    replays = True

    def __init__(self, config: HidePromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.prefixes = PrefixSets(config, context)
        self.statistics = ClassStatistics.of(config, context)

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

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's prefix."""
        return self.prefixes.sites(parameters)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return training, merge, statistics and replay (the paper's WTP, then TAP)."""
        # the set is trained at the full learning rate, the head at a fraction of it
        lr = self.config.effective_lr
        groups = (
            ParameterGroup(parameters=tuple(context.parameters.parameters()), lr=lr),
            ParameterGroup(parameters=tuple(self.head.parameters()), lr=lr * self.config.head_factor),
        )
        train = self.prefixes.phase(context, lambda batch: self.step(batch, context), groups)
        merge = ComputePhase(name="prompt-ensemble", run=lambda progress: self.merge(context))
        replay = head_replay(self, self.statistics, self.config, context)
        return self.with_head(context, train, merge, replay=replay, gaussians=self.statistics)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return cross-entropy over the task's classes and the contrastive term, with the ensemble active."""
        key, value = self.ensemble(context)
        injection = self.prefixes.inject(key, value, len(batch))
        features = self.context.backbone.features(batch.images, (injection,))
        loss = self.class_loss(features, batch, context.task)
        if self.config.contrastive:
            # un-normalised, as released
            old = self.statistics.centroids(range(context.task.classes[0]))
            loss = loss + self.config.contrastive * self_identification_loss(features, old)
        return StepOutput(loss=loss, features=features)

    def ensemble(self, context: TaskContext) -> tuple[Tensor, Tensor]:
        """Return the prefix keys and values in effect while the task's set is trained.

        A new set is mixed with the mean of the other live sets, which get no gradient; a reused one, whose
        old directions are protected, is not mixed.
        """
        prefixes = cast(PrefixSet, context.parameters)
        weight = self.config.ensemble
        keys = []
        values = []
        for set_id in context.pool.ids:
            if set_id != context.set_id:
                other = cast(PrefixSet, context.pool[set_id])
                keys.append(other.key.detach())
                values.append(other.value.detach())
        # the first set has no others beside it, and the mean of nothing is NaN
        if not (context.grew and keys and weight):
            return prefixes.key, prefixes.value
        key = (1 - weight) * prefixes.key + weight * torch.stack(keys).mean(0)
        value = (1 - weight) * prefixes.value + weight * torch.stack(values).mean(0)
        return key, value

    @torch.no_grad()
    def merge(self, context: TaskContext) -> None:
        """Store the ensemble in a new set, so that the stored prefixes are those it was trained with."""
        if not context.grew:
            return
        key, value = self.ensemble(context)
        prefixes = cast(PrefixSet, context.parameters)
        prefixes.key.copy_(key)
        prefixes.value.copy_(value)
        # features under the set are others now: what was computed with it is stale
        context.pool.touch(context.set_id)
