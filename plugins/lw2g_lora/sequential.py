"""Reference rows on one LoRA: trained on and on, and with distillation.

These and ``ewc`` and ``replay`` train the same set with the same head; they differ in what is done against
forgetting. A loss over a task's own classes is such a remedy, too: it never pushes the rows of old classes
down. What is the same in all of them stands in each, so that a method is read in one class.
``joint-lora`` is :class:`Sequential` on a stream of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import attrs
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
    ParameterGroup,
    Phase,
    Routing,
    Site,
    StepOutput,
    TaskContext,
    TaskInfo,
    TrainingPhase,
    cosine,
)
from lw2g_lora.options import FinetuneConfig, LwfConfig, SequentialConfig

__all__ = ["Finetune", "Lwf", "Sequential", "seen_loss", "trained_together", "training"]


def trained_together(
    updates: LowRankSets, head: nn.Module, config: SequentialConfig, context: TaskContext
) -> tuple[ParameterGroup, ...]:
    """Return the groups of the LoRA and of the head, with the weight decay of the options."""
    own = cast(LowRankSet, context.parameters)
    groups = updates.groups((own.down, own.up), head, config.lr)
    return tuple(attrs.evolve(group, weight_decay=config.weight_decay) for group in groups)


def training(
    groups: Sequence[ParameterGroup], config: SequentialConfig, step: Callable[[Batch], StepOutput]
) -> TrainingPhase:
    """Return the phase in which all of these methods train LoRA and head."""
    return TrainingPhase(
        name="lora",
        groups=tuple(groups),
        step=step,
        epochs=config.epochs,
        batch_size=config.batch_size,
        schedule=cosine(),
        host=True,
    )


def seen_loss(logits: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
    """Return the cross-entropy over all classes seen, given logits of all classes of the stream."""
    return functional.cross_entropy(logits[:, : task.seen], batch.labels)


class Sequential(HeadedBaseline):
    """One LoRA that every task trains on, by cross-entropy over the task's own classes.

    Rows of the head for old classes get no gradient; the features below them drift.
    """

    scope = POOL

    def __init__(self, config: SequentialConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return the LoRA, which changes nothing yet."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the LoRA's updates."""
        return self.updates.summed(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them."""
        return self.updates.sites(parameters, "project")

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the training of LoRA and head."""
        groups = trained_together(self.updates, self.head, self.config, context)
        train = training(groups, self.config, lambda batch: self.step(batch, context))
        return self.with_head(context, train)


class Finetune(HeadedBaseline):
    """One LoRA that every task trains on, by cross-entropy over the task's own classes or all seen ones."""

    scope = POOL

    def __init__(self, config: FinetuneConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return the LoRA, which changes nothing yet."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the LoRA's updates."""
        return self.updates.summed(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them."""
        return self.updates.sites(parameters, "project")

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy over the classes that the option names."""
        if self.config.loss == "task":
            return super().class_loss(features, batch, task)
        return seen_loss(self.head(features), batch, task)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the training of LoRA and head."""
        groups = trained_together(self.updates, self.head, self.config, context)
        train = training(groups, self.config, lambda batch: self.step(batch, context))
        return self.with_head(context, train)


class Lwf(HeadedBaseline):
    """Distils the old classes' logits on new images from the model that the task began with.

    Li & Hoiem, "Learning without Forgetting", ECCV 2016. One softmax over all old classes, where the paper
    has a head, and a softmax, for each old task.

    Attributes:
        teacher: The LoRA that the task began with.
        old_head: The head that it began with.
    """

    scope = POOL
    learning_only = ("teacher", "old_head")

    def __init__(self, config: LwfConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context)
        self.teacher = self.new_set(None)
        self.old_head = self.new_head().to(context.device)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return the LoRA, which changes nothing yet."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the LoRA's updates."""
        return self.updates.summed(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them."""
        return self.updates.sites(parameters, "project")

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy over the classes that the option names."""
        if self.config.loss == "task":
            return super().class_loss(features, batch, task)
        return seen_loss(self.head(features), batch, task)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the copy of LoRA and head, the warm-up of a later task's head, and the training."""
        config = self.config

        def copy(progress: object) -> None:
            self.teacher.copy_from(context.parameters)
            self.old_head.load_state_dict(self.head.state_dict())

        teacher = ComputePhase(name="teacher", run=copy)
        groups = trained_together(self.updates, self.head, config, context)
        train = training(groups, config, lambda batch: self.step(batch, context))
        # the first task has nothing that a fresh head could spoil
        if not config.warmup_epochs or context.grew:
            return self.with_head(context, teacher, train)
        warmup = TrainingPhase(
            name="warm-up",
            groups=groups[1:],  # the head alone
            step=lambda batch: super(Lwf, self).step(batch, context),
            epochs=config.warmup_epochs,
            batch_size=config.batch_size,
        )
        return self.with_head(context, teacher, warmup, train)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the loss of the task's classes, and the distillation of old ones."""
        output = super().step(batch, context)
        old = context.task.classes[0]  # positions, so this is the number of old classes
        if not self.config.distillation or not old:
            return output
        # with gradients on, so that teacher and student round alike: merged weights round otherwise
        known = self.old_head(self.features(batch, Routing(sets=(self.teacher,))))[:, :old].detach()
        assert output.features is not None
        old_logits = self.head(output.features)[:, :old]
        return attrs.evolve(
            output, loss=output.loss + self.config.distillation * self.divergence(old_logits, known)
        )

    def divergence(self, logits: Tensor, known: Tensor) -> Tensor:
        """Return the mean divergence of ``softmax(logits / T)`` from ``softmax(known / T)``, both ``[B, C]``.

        Up to a constant the paper's equation 2.
        """
        # without the factor T^2 of Hinton et al., as in the paper
        log_student = functional.log_softmax(logits.float() / self.config.temperature, 1)
        log_teacher = functional.log_softmax(known.float() / self.config.temperature, 1)
        return functional.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)
