"""Reference rows on one LoRA: trained on and on, with distillation, with a Fisher penalty, with old images.

All of them train the same set with the same head; they differ in what is done against forgetting. A loss
over a task's own classes is such a remedy, too: it never pushes the rows of old classes down.
``joint-lora`` is :class:`Sequential` on a stream of one task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, cast

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.heads import HeadedBaseline
from lw2g.blocks.lora import LowRankSet, LowRankSets, factor_sites, inject_factors
from lw2g.blocks.schedules import cosine
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import POOL
from lw2g.interfaces.site import Site
from lw2g.vit.lora import LowRankInjection
from lw2g_lora.options import EwcConfig, FinetuneConfig, LwfConfig, ReplayConfig, SequentialConfig

__all__ = ["DenseSet", "Ewc", "Finetune", "Lwf", "Replay", "Sequential", "from_bytes", "to_bytes"]


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
        return factor_sites(parameters, self.updates.blocks, self.updates.targets, "project")

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
        return factor_sites(parameters, self.updates.blocks, self.updates.targets, "project")

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
        return factor_sites(parameters, self.updates.blocks, self.updates.targets, "project")

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
        now = self.head(output.features)[:, :old]
        return attrs.evolve(output, loss=output.loss + self.config.distillation * self.divergence(now, known))

    def divergence(self, logits: Tensor, known: Tensor) -> Tensor:
        """Return the mean divergence of ``softmax(logits / T)`` from ``softmax(known / T)``, both ``[B, C]``.

        Up to a constant the paper's equation 2.
        """
        # without the factor T^2 of Hinton et al., as in the paper
        now = functional.log_softmax(logits.float() / self.config.temperature, 1)
        then = functional.log_softmax(known.float() / self.config.temperature, 1)
        return functional.kl_div(now, then, reduction="batchmean", log_target=True)


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
        like = cast(DenseSet, self.new_set(None))
        down_sum = None
        up_sum = None
        if config.boundary == "release":
            down_sum = torch.zeros_like(like.down.detach())
            up_sum = torch.zeros_like(like.up.detach())
        self.register_buffer("importance", torch.zeros_like(like.dense))
        self.register_buffer("down_sum", down_sum)
        self.register_buffer("up_sum", up_sum)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a LoRA on top of no sum."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the task's LoRA and the sum of the earlier ones."""
        own = cast(DenseSet, routing.sets[0])
        factors = ((own.down, own.up),)
        return inject_factors(self.updates.blocks, self.updates.targets, factors, dense=own.dense)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy over the classes that the option names."""
        if self.config.loss == "task":
            return super().class_loss(features, batch, task)
        return seen_loss(self.head(features), batch, task)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the boundary after an earlier task, the training, and the measurement of importance."""
        own = cast(DenseSet, context.parameters)
        boundary = ComputePhase(name="boundary", run=lambda progress: self.fold(own))
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
        own = cast(DenseSet, context.parameters)
        total = context.task.num_images
        # one dense leaf for sum and update: the gradient wanted is that of B A, not of its factors
        now = (own.dense + own.increments()).detach().requires_grad_()
        added = torch.zeros_like(self.importance)
        done = 0
        for batch in context.training_images(self.config.batch_size, "fisher", shuffled=True):
            with torch.enable_grad():
                injection = inject_factors(self.updates.blocks, self.updates.targets, (), dense=now)
                features = self.context.backbone.features(batch.images, (injection,))
                loss = self.class_loss(features, batch, context.task)
            (gradient,) = torch.autograd.grad(loss, now)
            # by their share of images: the last batch may be a small one
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


def to_bytes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return images ``[B, C, H, W]`` as bytes, and least value and step of each channel, ``[B, C, 2]``.

    The 256 levels lie between the least and the greatest value of an image's channel, so that whatever the
    normalisation, an image comes back to within half a grey level of the file's.
    """
    least = images.amin(dim=(-2, -1))
    most = images.amax(dim=(-2, -1))
    # a channel of one value has no step
    step = ((most - least) / 255).clamp(min=torch.finfo(torch.float32).tiny)
    levels = (images - least[..., None, None]) / step[..., None, None]
    return levels.round().to(torch.uint8), torch.stack([least, step], dim=-1)


def from_bytes(pixels: Tensor, scales: Tensor) -> Tensor:
    """Return the images of which :func:`to_bytes` made these values."""
    least, step = scales[..., None, None].unbind(dim=2)
    return least + step * pixels


class Replay(HeadedBaseline):
    """Experience replay: each step sees as many kept images of old classes as new ones. Not exemplar-free.

    Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019. The loss is over all classes
    seen. A class with fewer images than are to be kept has some of them several times.

    Attributes:
        pixels: Images kept, ``[classes * exemplars, 3, S, S]`` uint8, under the test transform.
        scales: Least value and step of each channel, ``[classes * exemplars, 3, 2]``.
        owners: Their classes, ``[classes * exemplars]`` int64.
    """

    scope = POOL
    learning_only = ("pixels", "scales", "owners")

    pixels: Tensor
    scales: Tensor
    owners: Tensor

    def __init__(self, config: ReplayConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context)
        for name, value in self.room(0).items():
            self.register_buffer(name, value)

    def room(self, count: int) -> dict[str, Tensor]:
        """Return empty room for so many images."""
        size = self.context.backbone.fingerprint.image_size
        device = self.context.device
        return {
            "pixels": torch.zeros(count, 3, size, size, dtype=torch.uint8, device=device),
            "scales": torch.zeros(count, 3, 2, device=device),
            "owners": torch.zeros(count, dtype=torch.int64, device=device),
        }

    def begin_task(self, task: TaskInfo) -> None:
        """Make room for the task's images."""
        for name, value in self.room(self.config.exemplars * len(task.classes)).items():
            setattr(self, name, torch.cat([getattr(self, name), value]))

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
        return factor_sites(parameters, self.updates.blocks, self.updates.targets, "project")

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the training of LoRA and head, and the phase that keeps images."""
        groups = trained_together(self.updates, self.head, self.config, context)
        train = training(groups, self.config, lambda batch: self.step(batch, context))
        keep = ComputePhase(name="exemplars", run=lambda progress: self.keep(context))
        return self.with_head(context, train, keep)

    def old(self, task: TaskInfo) -> int:
        """Return how many of the images are of tasks before the newest one."""
        return len(self.owners) - self.config.exemplars * len(task.classes)

    @torch.no_grad()
    def keep(self, context: TaskContext) -> None:
        """Draw images of each of the task's classes and keep them."""
        config = self.config
        task = context.task
        generator = context.generator("exemplars")
        # two passes, so that no more images are held than are kept: the first one reads labels alone
        labels = torch.cat([batch.labels for batch in context.statistics(config.batch_size)]).cpu()
        drawn: list[int] = []
        for label in task.classes:
            own = (labels == label).nonzero().flatten()
            order = torch.randperm(len(own), generator=generator)
            drawn += own[order[: config.exemplars]].tolist()
        # the room is for equally many of every class: where one has fewer, drawn images are kept again
        room = config.exemplars * len(task.classes)
        chosen = torch.tensor(list(islice(cycle(drawn), room)))
        first = 0
        for batch in context.statistics(config.batch_size):
            here = (first <= chosen) & (chosen < first + len(batch))
            if here.any():
                places = self.old(task) + here.nonzero().flatten()
                rows = chosen[here] - first
                self.pixels[places], self.scales[places] = to_bytes(batch.images[rows].float())
                self.owners[places] = batch.labels[rows]
            first += len(batch)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the loss over all classes seen, of new images and as many old ones."""
        old = self.old(context.task)
        if not old:
            return super().step(batch, context)
        drawn = torch.randint(old, (len(batch),), device=self.owners.device)
        images = torch.cat([batch.images, from_bytes(self.pixels[drawn], self.scales[drawn])])
        routing = context.pool.force(context.set_id)
        features = self.context.backbone.features(images, (self.injection(routing),))
        logits = self.head(features)[:, : context.task.seen]
        loss = functional.cross_entropy(logits, torch.cat([batch.labels, self.owners[drawn]]))
        return StepOutput(loss=loss, features=features[: len(batch)])

    def findings(self) -> Mapping[str, Any]:
        """Return the number of images kept, and the bytes of their pixels."""
        return {
            **super().findings(),
            "exemplars": len(self.owners),
            "exemplar_bytes": self.pixels.numel(),
        }
