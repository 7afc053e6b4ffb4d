"""EWC on one LoRA: a Fisher penalty keeps weights that old tasks need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

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
    StepOutput,
    TaskContext,
    TaskInfo,
    inject_factors,
    mask_logits,
)
from lw2g_lora.options import EwcConfig
from lw2g_lora.sequential import seen_loss, trained_together, training

__all__ = ["DenseSet", "Ewc"]


class DenseSet(LowRankSet):
    """The LoRA of one task on top of the sum of all earlier ones.

    Attributes:
        dense: That sum as increments of the weights, ``[num_blocks, num_targets, dim, dim]``.
    """

    def __init__(self, **shape: Any) -> None:
        super().__init__(**shape)
        blocks, targets, dim, _ = self.up.shape
        self.dense = nn.Parameter(torch.zeros(blocks, targets, dim, dim), requires_grad=False)

    def merge(self, start: Mapping[str, Tensor], weight: float) -> float:
        """Scale the task's own update: the sum below it is what the copy started from."""
        self.up.mul_(weight)
        return 0.0


class Ewc(HeadedBaseline):
    """EWC-LoRA: each task's new LoRA is kept off weight entries to which old tasks' losses are sensitive.

    Zheng et al., "Revisiting Weight Regularization for Low-Rank Continual Learning", ICLR 2026. Every task
    trains a fresh LoRA on top of the weights that the last one ended with; the loss has
    ``lambda / 2 sum Omega (B A)^2`` beside it. Omega adds up over tasks the squared gradients of batch means
    with respect to ``B A``: the diagonal of a Fisher matrix of batches, smaller than that of images by about
    the batch size.

    Attributes:
        importance: Omega, ``[num_blocks, num_targets, dim, dim]``.
        down_sum: The sum of all earlier down factors; None unless the boundary is the released one.
        up_sum: That of all earlier up factors.
    """

    scope = POOL
    learning_only = ("importance", "down_sum", "up_sum")

    importance: Tensor
    down_sum: Tensor | None
    up_sum: Tensor | None

    def __init__(self, config: EwcConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context, set_class=DenseSet)
        empty_set = cast(DenseSet, self.new_set(None))
        # "dense" keeps the product of a task's factors; the release adds up the factors themselves
        down_sum = None
        up_sum = None
        if config.boundary == "release":
            down_sum = torch.zeros_like(empty_set.down.detach())
            up_sum = torch.zeros_like(empty_set.up.detach())
        self.register_buffer("importance", torch.zeros_like(empty_set.dense))
        self.register_buffer("down_sum", down_sum)
        self.register_buffer("up_sum", up_sum)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a LoRA on top of no sum."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the task's LoRA and the sum of the earlier ones."""
        increments = cast(DenseSet, routing.sets[0])
        factors = ((increments.down, increments.up),)
        return inject_factors(self.updates.blocks, self.updates.targets, factors, dense=increments.dense)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy over the classes that the option names."""
        return self._cross_entropy(self.head(features), batch, task)

    def _cross_entropy(self, logits: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy over the task's classes, or over all seen so far."""
        if self.config.loss == "task":
            return functional.cross_entropy(mask_logits(logits, task.classes), batch.labels)
        return seen_loss(logits, batch, task)

    def importance_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss whose squared gradients are the importance.

        The gradient of a cross-entropy is ``p - y``, which is 0 where the right class is certain: what such
        images need is then not kept. Of reversed logits it is ``softmax(-z) - y``, and largest there.
        """
        logits = self.head(features)
        if self.config.fisher == "reversed":
            logits = -logits
        return self._cross_entropy(logits, batch, task)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the boundary after an earlier task, the training, and the measurement of importance."""
        increments = cast(DenseSet, context.parameters)
        boundary = ComputePhase(name="boundary", run=lambda progress: self.fold(increments))
        groups = trained_together(self.updates, self.head, self.config, context)
        train = training(groups, self.config, lambda batch: self.step(batch, context))
        fisher = ComputePhase(name="fisher", run=lambda progress: self.measure(context, progress))
        if context.grew:  # before the first task there is nothing to fold
            return self.with_head(context, train, fisher)
        return self.with_head(context, boundary, train, fisher)

    @torch.no_grad()
    def fold(self, own: DenseSet) -> None:
        """Add the trained LoRA to the weights, and draw a fresh one that changes nothing."""
        if self.down_sum is None or self.up_sum is None:
            own.dense.add_(own.increments())
        else:
            self.down_sum += own.down
            self.up_sum += own.up
            # the product of sums, as released: it holds B_i A_j of unlike tasks beside the B_i A_i
            own.dense.copy_(self.up_sum @ self.down_sum)
        own.down.uniform_(-self.updates.bound, self.updates.bound)
        own.up.zero_()

    def measure(self, context: TaskContext, progress: Callable[[int, int], None]) -> None:
        """Add the task's squared gradients to the importance of earlier tasks."""
        increments = cast(DenseSet, context.parameters)
        total = context.task.num_images
        # one dense leaf for sum and update: the gradient wanted is that of B A, not of its factors
        now = (increments.dense + increments.increments()).detach().requires_grad_()
        added = torch.zeros_like(self.importance)
        done = 0
        for batch in context.training_images(self.config.batch_size, "fisher", shuffled=True):
            with torch.enable_grad():
                injection = inject_factors(self.updates.blocks, self.updates.targets, (), dense=now)
                features = self.context.backbone.features(batch.images, (injection,))
                loss = self.importance_loss(features, batch, context.task)
            (gradient,) = torch.autograd.grad(loss, now)
            # batches count by their share of images: the last may be a small one
            added += gradient.square() * (len(batch) / total)
            done += len(batch)
            progress(done, total)
        self.importance.mul_(self.config.retain).add_(added)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the loss of the task's classes, and the penalty."""
        output = super().step(batch, context)
        if not self.config.penalty or context.grew:
            return output
        change = cast(DenseSet, context.parameters).increments()
        penalty = self.config.penalty / 2 * (self.importance * change.square()).sum()
        return attrs.evolve(output, loss=output.loss + penalty)
