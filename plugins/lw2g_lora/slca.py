"""SLCA++: one slowly trained low-rank update that all tasks share, and a classifier aligned after each.

Zhang et al., "SLCA++: Unleash the Power of Sequential Fine-tuning for Continual Learning with Pre-training",
2024. Beside the updates it trains norms, biases and the class token (Hybrid-SL). Features of old classes move
with every task, so the Gaussians that the classifier is aligned on are stale by design.

``trained_tasks`` ends the training after the first tasks. From then on features stay as they are: a head in
closed form learns later tasks exactly, and old classes are carried no further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    Activation,
    Backbone,
    Batch,
    BuildContext,
    ClassStatistics,
    ComputePhase,
    ConfigError,
    HeadedBaseline,
    ParameterGroup,
    Phase,
    Routing,
    Site,
    StepOutput,
    Tap,
    TapKind,
    TaskContext,
    TaskInfo,
    TrainingPhase,
    cosine,
    linear_head,
    replay_phase,
)
from lw2g_lora.options import SlcaConfig
from lw2g_lora.slow_set import SlowSet

__all__ = ["SlcaPlusPlus", "TaskHeads", "logit_norm_loss", "symmetric_loss"]

_INPUTS: Mapping[str, TapKind] = {
    **dict.fromkeys(("qkv", "q_proj", "k_proj", "v_proj"), "attn_in"),
    **dict.fromkeys(("fc1", "fc1_g", "fc1_x"), "mlp_in"),
    "fc2": "mlp_hidden",
}
"""What the layers that are updated multiply, whichever of them a block has."""

_DRIFT = 0.02
"""Assumed growth of features from task to task."""
_FIRST = 0.5
"""Learning rate of the network's updates in the first task, as a multiple of the classifier's."""
_ALIGN_LR = 0.01


def symmetric_loss(logits: Tensor, labels: Tensor, plain: float, reverse: float) -> Tensor:
    """Return ``plain`` times cross-entropy plus ``reverse`` times the same with roles exchanged.

    Args:
        logits: ``[B, C]``.
        labels: ``[B]``.
        plain: Weight of cross-entropy.
        reverse: Weight of ``-sum p log q``, q the one-hot labels, which are clamped to 1e-4.

    >>> round(float(symmetric_loss(torch.zeros(1, 2), torch.tensor([0]), 0.0, 1.0)), 4)
    4.6052
    """
    # the least values of both are those of symmetric cross-entropy as published (Wang et al., ICCV 2019)
    likely = logits.softmax(dim=1).clamp(min=1e-7)
    # scattered, not one_hot, which waits for its labels on the CPU
    wanted = torch.full_like(likely, 1e-4).scatter_(1, labels[:, None], 1.0)
    backwards = -(likely * wanted.log()).sum(dim=1).mean()
    return plain * functional.cross_entropy(logits, labels) + reverse * backwards


def logit_norm_loss(
    logits: Tensor, labels: Tensor, tasks: Tensor, num_tasks: int, temperature: float
) -> Tensor:
    """Return cross-entropy of logits divided by the temperature and their norm, the mean over tasks.

    Args:
        logits: ``[B, C]``.
        labels: ``[B]``.
        tasks: Task of each class, ``[C]``, each of which has one.
        num_tasks: Their number.
        temperature: tau.
    """
    member = logits.new_zeros(len(tasks), num_tasks).scatter_(1, tasks[:, None], 1.0)
    # the square root has no gradient at 0, where the logits of untrained heads may lie
    squares = (logits.square() @ member).clamp(min=torch.finfo(logits.dtype).tiny)
    norm = (squares.sqrt() + 1e-7).mean(dim=1, keepdim=True)  # never 0: it divides
    return functional.cross_entropy(logits / (norm * temperature), labels)


def factor_pair(
    down: nn.Parameter, up: nn.Parameter, block: int, layer: str, kind: TapKind
) -> tuple[Site, Site]:
    """Return the sites of one update: down, which multiplies the layer's input, and up behind it."""
    tap = Tap(block=block, kind=kind)
    behind = Activation(tap=tap, map=lambda: down[block])
    return (
        Site(name=f"blocks.{block}.{layer}_down", parameter=down, index=(block,), activation=tap),
        Site(
            name=f"blocks.{block}.{layer}_up",
            parameter=up,
            index=(block,),
            activation=behind,
            measured=False,
            soft=False,
        ),
    )


def require_own_norm(backbone: Backbone) -> None:
    """Refuse a backbone whose class token is not read after a final layer norm, which is trained here.

    Raises:
        ConfigError: Features are pooled in another way, or the final norm is another one.
    """
    backbone.require("low-rank updates")
    backbone.require_class_token("a feature before the final norm")
    norm = backbone.model.norm
    if not isinstance(norm, nn.LayerNorm):
        raise ConfigError(
            f"this method trains a final layer norm, and the backbone's is {type(norm).__name__!r}",
            "use a method on adapters or low-rank updates alone",
        )


class TaskHeads(nn.Module):
    """A linear classifier per task, so that weight decay reaches that of one task alone.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
    """

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.dim = dim
        self.num_classes = num_classes
        self.tasks = nn.ModuleList()

    def grow(self, classes: int) -> None:
        """Add the classifier of the next task."""
        self.tasks.append(linear_head(self.dim, classes))

    def forward(self, features: Tensor, scales: Tensor | None = None) -> Tensor:
        """Return ``[B, num_classes]``, 0 for classes to come.

        Args:
            features: ``[B, dim]``.
            scales: Factor on the features for each task.
        """
        if not len(self.tasks):
            return features.new_zeros(len(features), self.num_classes)
        logits = []
        for number, task in enumerate(self.tasks):
            own = features
            if scales is not None:
                own = scales[number] * features
            logits.append(task(own))
        known = torch.cat(logits, dim=1)
        return functional.pad(known, (0, self.num_classes - known.shape[1]))


class SlcaPlusPlus(HeadedBaseline):
    """Its one set and the newest task's classifier are trained; a copy of all classifiers is aligned.

    Attributes:
        head: The classifiers as their tasks left them, from which every alignment starts.
        aligned: Those that predict.
        scales: Factor on the features for each task's aligned classifier.
        statistics: Gaussians of each class's features when its task ended; None where a head in closed form
            predicts, and nothing is aligned.
    """

    learning_only = ("statistics",)
    replays = True

    scales: Tensor
    statistics: ClassStatistics | None

    def __init__(self, config: SlcaConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        require_own_norm(context.backbone)
        dim = context.backbone.dim
        classes = context.num_classes
        if config.rank > dim:
            raise ConfigError(
                f"baseline.rank: {config.rank!r} exceeds the backbone's width {dim}", "use a smaller one"
            )
        self.trained_tasks = self._tasks_to_train()
        self.aligned = TaskHeads(dim, classes)
        gaussians = None
        if self.closed_form is None:
            gaussians = ClassStatistics(classes, dim, "covariance")
        self.register_module("statistics", gaussians)
        self.register_buffer("scales", torch.ones(context.num_tasks))
        self.to(context.device)

    def _tasks_to_train(self) -> int | None:
        """Return how many tasks train the network; None: all.

        Raises:
            ConfigError: The trained head would have to learn later tasks, or the stream is shorter.
        """
        asked = self.config.trained_tasks
        if not asked:
            return None
        if self.closed_form is None:
            raise ConfigError(
                f"baseline.trained_tasks: {asked!r} leaves later tasks without training, and the head learns "
                "by nothing else",
                "set baseline.head to a head in closed form such as 'auto', or leave trained_tasks out",
            )
        if asked > self.context.num_tasks:
            raise ConfigError(
                f"baseline.trained_tasks: {asked!r} exceeds the stream's {self.context.num_tasks} tasks",
                "name fewer, or 0 to train on all",
            )
        return asked

    def new_head(self) -> TaskHeads:  # type: ignore[override]
        """Return classifiers for no task yet."""
        return TaskHeads(self.context.backbone.dim, self.context.num_classes)

    def new_set(self, source: nn.Module | None) -> SlowSet:
        """Return a set that changes nothing yet, except for a fresh final norm."""
        fresh = self.config.final_norm == "fresh"
        return SlowSet(self.context.backbone, self.config.rank, fresh_norm=fresh).to(self.context.device)

    def begin_task(self, task: TaskInfo) -> None:
        """Make room for the task's classifier, and for its aligned copy."""
        for heads in (self.head, self.aligned):
            cast(TaskHeads, heads).grow(len(task.classes))
            # no gradient: a training phase unfreezes what it trains, the newest task's alone
            heads.to(self.context.device).requires_grad_(False)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the adapted network, ``[B, dim]``."""
        slow_set = cast(SlowSet, routing.sets[0])
        # without the backbone's final norm: the method trains one of its own in its place
        return self.context.backbone.features(batch.images, slow_set.injections(), norm=slow_set.norm)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the aligned classifiers, or what predicts in their place."""
        if self.closed_form is not None:
            return super().logits(features)
        return cast(Tensor, self.aligned(features, self.scales))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the factors of all updates; a norm, a bias and the class token multiply no activation.

        Protecting the updates alone therefore does not keep features.
        """
        slow_set = cast(SlowSet, parameters)
        if not self.config.rank:
            return ()
        sites: list[Site] = []
        for name, kind in _INPUTS.items():
            if name in slow_set.down:
                for block in range(self.context.backbone.depth):
                    sites += factor_pair(slow_set.down[name], slow_set.up[name], block, name, kind)
        return tuple(sites)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return training, and statistics and alignment where the aligned classifiers predict."""
        if not self.trains(context.task):
            return self.with_head(context)
        config = self.config
        slow_set = cast(SlowSet, context.parameters)
        task_head = cast(TaskHeads, self.head).tasks[context.task.index]
        # the slow learner; in the first task there is nothing that quick updates could spoil
        factor_rate = _FIRST if context.grew else config.slow_factor
        rates = (
            (tuple(task_head.parameters()), 1.0),
            (slow_set.others, config.slow_factor),
            (slow_set.factors, factor_rate),
        )
        groups = []
        for trained, rate in rates:
            lr = rate * config.lr
            groups.append(ParameterGroup(parameters=trained, lr=lr, weight_decay=config.weight_decay))
        train = TrainingPhase(
            name="lora",
            groups=tuple(groups),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer="sgd",
            momentum=0.9,
            schedule=cosine(config.least_lr),
            host=True,
        )
        phases: list[Phase] = [train]
        if context.grew:  # once for the run: afterwards the down factors are trained like the others
            design = ComputePhase(
                name="lora-design", run=lambda progress: slow_set.design(self.context.backbone)
            )
            phases.insert(0, design)
        return self.with_head(context, *phases, replay=self.alignment(context), gaussians=self.statistics)

    def alignment(self, context: TaskContext) -> Sequence[Phase]:
        """Return statistics and alignment; none where a head in closed form predicts."""
        gaussians = self.statistics
        if gaussians is None:
            return ()
        routing = context.pool.force(context.set_id)
        return (
            gaussians.phase("statistics", context, lambda batch: self.features(batch, routing)),
            ComputePhase(
                name="alignment",
                run=lambda progress: self.align(context, gaussians, progress),
                counts="epochs",
            ),
        )

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the symmetric loss over the task's classes."""
        classes = context.task.classes
        features = self.features(batch, context.pool.force(context.set_id))
        # cut out and not masked: the reverse term takes all classes that it is given
        logits = self.head(features)[:, classes[0] : classes[-1] + 1]
        loss = symmetric_loss(logits, batch.labels - classes[0], self.config.plain, self.config.reverse)
        return StepOutput(loss=loss, features=features)

    def align(
        self, context: TaskContext, gaussians: ClassStatistics, progress: Callable[[int, int], None]
    ) -> None:
        """Train a copy of all classifiers on samples of all classes, and set the scales of their features."""
        config = self.config
        newest = context.task.index
        # the release computes a class's task from the size of the newest one: wrong where sizes differ
        tasks = context.task_of_class()
        # each alignment starts at the heads as their tasks left them, not at the alignment before
        self.aligned.load_state_dict(self.head.state_dict())

        def shrink(features: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
            """Return samples ``[n, dim]``, shorter the more tasks have passed since their class was new."""
            # divided by 1 + u age, with u of each sample from U(0.01, 0.03)
            uniform = torch.rand(len(features), generator=generator).to(features)
            per_task = _DRIFT * (uniform + 0.5)
            ages = newest - tasks[labels]
            return features / (1 + per_task * ages)[:, None]

        replay_phase(
            "alignment",
            context,
            self.aligned,
            gaussians,
            lr=_ALIGN_LR,
            epochs=config.align_epochs,
            per_centroid=config.align_samples,
            steps_for="seen",
            weight_decay=config.weight_decay,
            loss=lambda logits, labels: logit_norm_loss(
                logits, labels, tasks, newest + 1, config.temperature
            ),
            change=shrink,
        ).run(progress)
        ages = newest - torch.arange(len(self.scales), device=self.scales.device)
        self.scales.copy_(1 + _DRIFT * ages.clamp(min=0))
