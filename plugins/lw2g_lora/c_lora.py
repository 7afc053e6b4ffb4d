"""C-LoRA: low-rank updates that are summed, each kept off the weight entries that earlier ones have moved.

Smith et al., "Continual Diffusion: Continual Customization of Text-to-Image Diffusion with C-LoRA", TMLR
2024, as a baseline of classification (InfLoRA's and LW2G's tables). A penalty of 0 is plain sequential LoRA,
what released repositories of prompt methods call continual LoRA.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import attrs
import torch
from torch import Tensor, nn

from lw2g.plugin import (
    POOL,
    Batch,
    BuildContext,
    ComputePhase,
    HeadedBaseline,
    LowRankInjection,
    LowRankSet,
    LowRankSets,
    Phase,
    Routing,
    Site,
    StepOutput,
    TaskContext,
    TrainingPhase,
    coda_cosine,
    stepped,
)
from lw2g_lora.options import CLoraConfig

__all__ = ["CLora", "overlap"]


def overlap(past: Tensor, increment: Tensor) -> Tensor:
    """Return ``|| |P| * dW ||^2``, summed over entries, blocks and targets.

    Args:
        past: What earlier updates have moved each entry by, P.
        increment: What this one moves it by, dW, of the same shape.

    >>> overlap(torch.tensor([2.0, 0.0]), torch.tensor([3.0, 5.0]))
    tensor(36.)
    """
    # the sign of P is lost under the square
    return (past * increment).square().sum()


class CLora(HeadedBaseline):
    """Every forward sums the updates of all sets; there is no choice of a set, in training or at test time.

    A reused set is penalised by its increment over what it was when the task began, which counts as past.
    Since all sets are summed, protecting a set's own tasks alone (``growth.protect = "assigned"``, the
    paper's letter) lets a task disturb those of other sets.
    """

    scope = POOL

    start_down: Tensor
    start_up: Tensor

    def __init__(self, config: CLoraConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context)
        empty_set = self.new_set(None)
        # a reused set as its task found it: a run that is resumed within the task needs it
        self.register_buffer("start_down", torch.zeros_like(empty_set.down))
        self.register_buffer("start_up", torch.zeros_like(empty_set.up))

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the updates of all sets."""
        return self.updates.summed(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them."""
        return self.updates.sites(parameters, self.config.up_on_reuse)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return two phases: remember the set as it is, then train it together with the head."""
        config = self.config
        # once for the task and not in every step: nothing of it moves while the task is learned
        moved = cache(lambda: self.moved(context))

        def remember(progress: object) -> None:
            self.remember(context)
            moved.cache_clear()

        def step(batch: Batch) -> StepOutput:
            """Return the loss with the penalty on changing again what earlier tasks have changed."""
            output = self.step(batch, context)
            # before the first task nothing has moved any entry
            if not config.penalty or context.task.index == 0:
                return output
            past, start = moved()
            increment = cast(LowRankSet, context.parameters).increments() - start
            return attrs.evolve(output, loss=output.loss + config.penalty * overlap(past, increment))

        trained = self.updates.trained(context, config.up_on_reuse)
        phase = TrainingPhase(
            name="lora",
            groups=self.updates.groups(trained, self.head, config.lr),
            step=step,
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=stepped(coda_cosine, config.stepping),
            host=True,
        )
        return self.with_head(context, ComputePhase(name="lora-start", run=remember), phase)

    @torch.no_grad()
    def remember(self, context: TaskContext) -> None:
        """Keep the factors that the task's set begins with."""
        updates = cast(LowRankSet, context.parameters)
        self.start_down.copy_(updates.down)
        self.start_up.copy_(updates.up)

    @torch.no_grad()
    def moved(self, context: TaskContext) -> tuple[Tensor, Tensor]:
        """Return what all updates had moved when the task began, and the share of the task's own set.

        Both are ``[num_blocks, num_targets, dim, dim]``.
        """
        # in full precision: the increment less this start is the difference of two nearly equal products
        with torch.autocast(self.start_up.device.type, enabled=False):
            start = self.start_up @ self.start_down
        past = start.clone()
        for set_id in context.pool.ids:
            if set_id != context.set_id:
                past += cast(LowRankSet, context.pool[set_id]).increments()
        return past, start
