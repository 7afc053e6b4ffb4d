"""SSIAT: one adapter that goes on learning, and a cosine classifier aligned on Gaussians that follow it.

Tan et al., "Semantically-Shifted Incremental Adapter-Tuning is A Continual ViTransformer", CVPR 2024. Nothing
holds the adapter in place. The means of old classes follow by the drift of nearby images
(``baseline.head_carry=shift``), and every task's alignment starts from the classifier that the last one left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    AdapterInjection,
    AdapterSet,
    Batch,
    BuildContext,
    ClassStatistics,
    HeadedBaseline,
    ParameterGroup,
    Phase,
    Routing,
    Site,
    StepOutput,
    TaskContext,
    TaskInfo,
    TrainingPhase,
    bottlenecks,
    cosine,
    replay_phase,
)
from lw2g_single_set.options import SsiatConfig

__all__ = ["Ssiat"]

_ALIGN_LR = 0.01
_ALIGN_SAMPLES = 256
_YOUNGEST = 0.9
"""Factor on the means of the oldest classes in alignment; those of the newest keep theirs."""


class Ssiat(HeadedBaseline):
    """Its one set is trained in every task, by a cosine loss over the task's classes alone.

    Attributes:
        head: The classifier of all classes, without bias, which predicts by ``scale`` times the cosine.
        statistics: Gaussians of each class's features; None where a head in closed form predicts.
    """

    learning_only = ("statistics",)
    replays = True

    statistics: ClassStatistics | None

    def __init__(self, config: SsiatConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        context.backbone.require("adapters")
        gaussians = None
        if self.closed_form is None:
            gaussians = ClassStatistics(context.num_classes, context.backbone.dim, "covariance")
        self.register_module("statistics", gaussians)
        self.to(context.device)

    def new_head(self) -> nn.Linear:
        """Return the classifier: truncated normal weights (std 0.02)."""
        head = nn.Linear(self.context.backbone.dim, self.context.num_classes, bias=False)
        nn.init.trunc_normal_(head.weight, std=0.02)
        return head

    def new_set(self, source: nn.Module | None) -> AdapterSet:
        """Return adapters at all blocks that change nothing yet."""
        backbone = self.context.backbone
        return AdapterSet(backbone.depth, backbone.dim, self.config.bottleneck).to(self.context.device)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the adapted network, ``[B, dim]``."""
        return self._adapted(batch, routing, 0.0)

    def logits(self, features: Tensor) -> Tensor:
        """Return ``scale`` times cosines, or the scores of the head in closed form, ``[B, num_classes]``."""
        if self.closed_form is None:
            return self.cosines(features)
        return super().logits(features)

    def cosines(self, features: Tensor) -> Tensor:
        """Return ``scale * cos(features, weight)``, ``[B, num_classes]``."""
        directions = functional.normalize(self.head.weight, dim=-1)
        return self.config.scale * functional.normalize(features, dim=-1) @ directions.T

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return CosFace's loss: cross-entropy over the task's classes, less a margin for the true one."""
        labels = batch.labels - task.classes[0]
        logits = self.cosines(features)[:, task.classes[0] : task.classes[-1] + 1]
        # scale * (cos - m): logits are scaled already, so the margin is, too
        margin = self.config.scale * self.config.margin
        true = torch.zeros_like(logits).scatter_(1, labels[:, None], margin)
        return functional.cross_entropy(logits - true, labels)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return every block's down-projection."""
        return cast(AdapterSet, parameters).down_sites()

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return training, and statistics and alignment where the trained classifier predicts."""
        config = self.config
        epochs = config.epochs
        if context.grew:
            epochs = config.first_epochs
        trained = (*context.parameters.parameters(), *self.head.parameters())
        train = TrainingPhase(
            name="adapters",
            groups=(ParameterGroup(parameters=trained, lr=config.lr, weight_decay=config.weight_decay),),
            step=lambda batch: self.step(batch, context),
            epochs=epochs,
            batch_size=config.batch_size,
            optimizer="sgd",
            momentum=0.9,
            schedule=cosine(),
            host=True,
        )
        replay: Sequence[Phase] = ()
        if self.statistics is not None:
            replay = self._alignment(context, self.statistics)
        return self.with_head(context, train, replay=replay, gaussians=self.statistics)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the loss over the task's classes, with dropout in the adapters."""
        features = self._adapted(batch, context.pool.force(context.set_id), AdapterSet.DROPOUT)
        return StepOutput(loss=self.class_loss(features, batch, context.task), features=features)

    def _alignment(self, context: TaskContext, gaussians: ClassStatistics) -> Sequence[Phase]:
        """Return the phases that fit the classes' Gaussians and train the head on draws from all of them."""
        routing = context.pool.force(context.set_id)
        ages = context.task_of_class()
        newest = context.task.index

        def shrink(features: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
            """Return samples ``[n, dim]`` about means scaled by the age of their class; nothing is drawn."""
            # the mean is scaled, and the noise about it stays: factor * m + noise
            factor = _YOUNGEST + (1 - _YOUNGEST) * (ages[labels] + 1) / (newest + 1)
            return features - (1 - factor)[:, None] * gaussians.mean[labels, 0]

        # of the head itself: unlike SLCA's, every task goes on from what the last alignment left
        align = replay_phase(
            "alignment",
            context,
            self.head,
            gaussians,
            lr=_ALIGN_LR,
            epochs=self.config.align_epochs,
            per_centroid=_ALIGN_SAMPLES,
            logits=self.cosines,
            steps_for="seen",
            weight_decay=self.config.weight_decay,
            change=shrink,
        )
        fit = gaussians.phase("statistics", context, lambda batch: self.features(batch, routing))
        return (fit, align)

    def _adapted(self, batch: Batch, routing: Routing, dropout: float) -> Tensor:
        backbone = self.context.backbone
        of_first_set = Routing(sets=routing.sets[:1], chosen=0)
        branches = bottlenecks(of_first_set, backbone.depth, dropout=dropout)
        return backbone.features(batch.images, (AdapterInjection(dict(enumerate(branches))),))
