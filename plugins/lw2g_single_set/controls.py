"""Control rows: frozen features without training, a trained head on them, and training on all tasks at once.

``simple-cil``: Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models", IJCV 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import attrs
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.heads import closed_form, linear_head
from lw2g.blocks.prefixes import PrefixBaseline
from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ParameterGroup, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import BACKBONE, POOL
from lw2g.vit.prefix import PrefixInjection
from lw2g_single_set.options import NoPromptConfig, SimpleCILConfig
from lw2g_single_set.solved import SolvedBaseline

__all__ = ["FrozenFeatures", "Joint", "NoPrompt", "SimpleCIL"]


class FrozenFeatures(Baseline):
    """A baseline on the un-prompted features alone; its set is empty."""

    scope = BACKBONE

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a module without parameters."""
        return nn.Module()

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return un-prompted features ``[B, dim]``, which are computed once a run."""
        return batch.query


class SimpleCIL(FrozenFeatures, SolvedBaseline):
    """The nearest class mean by cosine similarity, or another head in closed form; nothing is trained.

    But for what ``ridge`` and ``klda`` choose by a task, the final result depends neither on the order of
    classes nor on how they are grouped into tasks.
    """

    def __init__(self, config: SimpleCILConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.closed_form = closed_form(config.head, config.head_features, context).to(context.device)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: the head sees the task's classes."""
        return (self.fitting("class-means", context),)


class NoPrompt(FrozenFeatures):
    """A linear head on frozen features, by masked cross-entropy: a prompt method less the prompts."""

    def __init__(self, config: NoPromptConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.head = linear_head(context.backbone.dim, context.num_classes).to(context.device)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase; it needs features only."""
        config = self.config

        def step(batch: Batch) -> StepOutput:
            logits = mask_logits(self.logits(batch.query), context.task.classes)
            return StepOutput(loss=functional.cross_entropy(logits, batch.labels))

        group = ParameterGroup(
            parameters=tuple(self.head.parameters()), lr=config.lr * config.batch_size / 256
        )
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
