"""HiDe-LoRA: low-rank sets, one chosen per sample, with a contrastive term and a classifier kept by replay.

Wang et al., "HiDe-PET: Continual Learning via Hierarchical Decomposition of Parameter-Efficient Tuning",
TPAMI 2025. The task is inferred from features under one more, slowly trained update that all tasks share: the
retrieval strategy ``lora-classifier``. LW2G's release reads the plain backbone: ``--retrieval classifier``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import attrs
import torch
from torch import Tensor, nn

from lw2g.plugin import (
    Batch,
    BuildContext,
    ClassStatistics,
    ComputePhase,
    HeadedBaseline,
    LowRankInjection,
    LowRankSet,
    LowRankSets,
    Phase,
    Pool,
    Routing,
    Site,
    StepOutput,
    TaskContext,
    TrainingPhase,
    chosen_schedule,
    head_replay,
    self_identification_loss,
)
from lw2g_lora.options import HideLoraConfig

__all__ = ["HideLora"]


class HideLora(HeadedBaseline):
    """A set is trained on its task, averaged with the others if new, and the head is corrected by replay.

    The averaging is of factors, not of their products, so it makes sense only along a chain of copies.
    """

    learning_only = ("statistics",)
    replays = True
    takes_copies = True

    def __init__(self, config: HideLoraConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        # alpha is 1; the bound is as released: torch takes the rank of its transposed factor for the fan-in
        self.updates = LowRankSets(config, context, scale=1 / config.rank, bound=float(config.rank**-0.5))
        self.statistics = ClassStatistics.of(config, context)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the updates of each sample's set."""
        return self.updates.chosen(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if new sets start from it, None if they start at random."""
        if self.config.init_from == "previous":
            return pool.newest
        return None

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them."""
        return self.updates.sites(parameters, self.config.up_on_reuse)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return training, averaging, statistics and replay."""
        config = self.config
        trained = self.updates.trained(context, config.up_on_reuse)
        lr = config.effective_lr
        train = TrainingPhase(
            name="lora",
            groups=self.updates.groups(trained, self.head, lr),
            step=lambda batch: self.contrastive_step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=chosen_schedule(config, context.task.index),
            clip_norm=config.clip_norm,
            host=True,
        )
        average = ComputePhase(name="lora-ensemble", run=lambda progress: self.average(context))
        replay = head_replay(self, self.statistics, self.config, context)
        return self.with_head(context, train, average, replay=replay, gaussians=self.statistics)

    def contrastive_step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return cross-entropy over the task's classes and the contrastive term."""
        output = self.step(batch, context)
        if not self.config.contrastive:
            return output
        # un-normalised, as released: centroids are means of features under the sets of old tasks
        old = self.statistics.centroids(range(context.task.classes[0]))
        features = cast(Tensor, output.features)
        contrast = self_identification_loss(features, old)
        return attrs.evolve(output, loss=output.loss + self.config.contrastive * contrast)

    @torch.no_grad()
    def average(self, context: TaskContext) -> None:
        """Mix a new set, factor by factor, with the mean of the other live ones; leave a reused one alone.

        Mixing would carry a reused set into the directions that constraints protect. Sets that started at
        random have no common basis in which their factors could be averaged.
        """
        if not context.grew or self.config.init_from != "previous":
            return
        downs: list[Tensor] = []
        ups: list[Tensor] = []
        for set_id in context.pool.ids:
            if set_id != context.set_id:
                other = cast(LowRankSet, context.pool[set_id])
                downs.append(other.down)
                ups.append(other.up)
        if not downs:  # the first task
            return
        updates = cast(LowRankSet, context.parameters)
        updates.down.lerp_(torch.stack(downs).mean(0), self.config.ensemble)
        updates.up.lerp_(torch.stack(ups).mean(0), self.config.ensemble)
        # features under the set are others now: what was computed with it is stale
        context.pool.touch(context.set_id)
