"""no-prompt: a linear head on frozen features, what a prompt method is without its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    BACKBONE,
    Baseline,
    Batch,
    BuildContext,
    ParameterGroup,
    Phase,
    Routing,
    StepOutput,
    TaskContext,
    TrainingPhase,
    linear_head,
    mask_logits,
)
from lw2g_single_set.options import NoPromptConfig

__all__ = ["NoPrompt"]


class NoPrompt(Baseline):
    """A linear head on frozen features, by masked cross-entropy: a prompt method less the prompts."""

    scope = BACKBONE
    several_classes = True

    def __init__(self, config: NoPromptConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.head = linear_head(context.backbone.width, context.num_classes).to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a module without parameters."""
        return nn.Module()

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return un-prompted features ``[B, width]``, which are computed once a run."""
        return batch.query

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase; it needs features only."""
        config = self.config

        def step(batch: Batch) -> StepOutput:
            logits = mask_logits(self.logits(batch.query), context.task.classes)
            return StepOutput(loss=functional.cross_entropy(logits, batch.labels))

        # rates are for 256 images a step, as in the prompt methods that it is compared with
        lr = config.lr * config.batch_size / 256
        group = ParameterGroup(parameters=tuple(self.head.parameters()), lr=lr)
        phase = TrainingPhase(
            name="head",
            groups=(group,),
            step=step,
            epochs=config.epochs,
            batch_size=config.batch_size,
            clip_norm=config.clip_norm,
            host=True,
        )
        return (phase,)
