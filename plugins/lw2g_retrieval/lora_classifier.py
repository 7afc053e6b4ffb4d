"""Task-identity inference under a low-rank update that all tasks share (HiDe-LoRA's first stage).

Wang et al., "HiDe-PET: Continual Learning via Hierarchical Decomposition of Parameter-Efficient Tuning",
TPAMI 2025. The shared update is learned at full rate in the first task and slowly afterwards, so that the
statistics of old classes, which were taken under earlier states of it, go stale slowly.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from lw2g.plugin import (
    Batch,
    BuildContext,
    ComputePhase,
    LowRankSet,
    ParameterGroup,
    TaskContext,
    inject_factors,
    linear_head,
    replay_phase,
)
from lw2g_retrieval.classifier import ClassPredictor
from lw2g_retrieval.options import LoraClassifierConfig

__all__ = ["LoraClassifier"]

_TARGETS: tuple[Literal["k", "v"], ...] = ("k", "v")
_SLOW = 0.1
"""Learning rate of the shared update after the first task, as a multiple of the head's."""


class LoraClassifier(ClassPredictor):
    """A linear head on features under a low-rank update of keys and values that all tasks train.

    Its query changes with every task, so that all test images pass through the backbone once more at every
    evaluation. Nothing is folded into the weights.
    """

    learned_query: ClassVar[bool] = True

    def __init__(self, config: LoraClassifierConfig, context: BuildContext) -> None:
        backbone = context.backbone
        super().__init__(linear_head(backbone.dim, context.num_classes), config, context)
        self.config = config
        blocks = config.blocks or tuple(range(backbone.depth))
        self.blocks = backbone.check_blocks(blocks, "retrieval.blocks", "low-rank updates")
        self.update = LowRankSet(
            num_blocks=len(self.blocks),
            num_targets=len(_TARGETS),
            rank=config.rank,
            dim=backbone.dim,
            # as released: torch takes the rank of the transposed factor for the fan-in
            bound=config.rank**-0.5,
        ).to(context.device)

    def query(self, batch: Batch) -> Tensor:
        """Return features under the shared update, ``[B, dim]``; in training with gradient."""
        factors = (self.update.down, self.update.up)
        injection = inject_factors(self.blocks, _TARGETS, [factors], scale=1 / self.config.rank)
        return self.context.backbone.features(batch.images, (injection,))

    def groups(self, context: TaskContext, lr: float) -> tuple[ParameterGroup, ...]:
        """Train update and head alike in the first task, the update slowly afterwards."""
        # statistics of old classes were taken under earlier updates, and go stale as it moves
        slowness = _SLOW if context.task.index else 1.0
        return (
            ParameterGroup(parameters=tuple(self.update.parameters()), lr=lr * slowness),
            ParameterGroup(parameters=tuple(self.network.parameters()), lr=lr),
        )

    def replay(self, context: TaskContext) -> ComputePhase:
        """Return the phase that retrains the head on samples of all seen classes; its rate is not scaled."""
        config = self.config
        return replay_phase(
            "retrieval-replay",
            context,
            self.network,
            self.statistics,
            lr=config.replay_lr,
            epochs=config.replay_epochs,
            per_centroid=config.replay_batch,
        )
