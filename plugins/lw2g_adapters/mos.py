"""MOS: an adapter per task, kept near the others in training; the prediction itself refines the choice.

Sun et al., "MOS: Model Surgery for Pre-Trained Model-Based Class-Incremental Learning", AAAI 2025. A wrong
choice costs less among sets that lie near one another, and a predicted class names the set to ask next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    AdapterBaseline,
    AdapterSet,
    Batch,
    BuildContext,
    ClassStatistics,
    ComputePhase,
    Phase,
    StepOutput,
    TaskContext,
    TaskInfo,
    bottlenecks_of,
    collect_features,
    derive_seed,
    linear_head,
    mask_logits,
    replay_phase,
    self_identification_loss,
)
from lw2g_adapters.options import MosConfig

__all__ = ["Mos", "Pull"]

_ROUNDS = 4
"""Rounds in which the choice of a set is refined."""

_ALIGN_DRAWS = 5
"""Samples of a class in an epoch of alignment, over the batch size."""


class Pull:
    """Draws a task's set towards the mean of the other sets, after every step.

    Args:
        own: The set.
        trained: Those of its parameters that are drawn.
        others: The other sets.
        share: How far they are drawn.
    """

    def __init__(
        self, own: nn.Module, trained: Sequence[nn.Parameter], others: Sequence[nn.Module], share: float
    ) -> None:
        self.own = own
        self.share = share
        self.means: dict[str, Tensor] = {}
        for name, value in own.named_parameters():
            # what the task does not train is not drawn either
            if any(value is parameter for parameter in trained):
                values = [item.get_parameter(name).detach() for item in others]
                self.means[name] = torch.stack(values).mean(dim=0)
        self._distances: dict[str, Tensor] = {}

    def during_forward(self) -> dict[str, Tensor]:
        """Return the set's tensors as the blocks of a released forward see them: each block draws them once.

        Gradients are taken at the values that the last block leaves; from there the optimizer steps.

        Returns:
            The tensors by name, as functions of the set's parameters.
        """
        tensors: dict[str, Tensor] = dict(self.own.named_parameters())
        for name, mean in self.means.items():
            value = tensors[name]
            distance = value.detach() - mean
            # block b sees the set after b + 1 draws: mean + (1 - share)^(b + 1) (value - mean)
            draws = torch.arange(1, len(value) + 1).view(-1, *[1] * (value.ndim - 1)).to(value)
            tensors[name] = value + ((1 - self.share) ** draws - 1) * distance
            self._distances[name] = distance
        return tensors

    def __call__(self) -> None:
        """Draw the set after a step: once for each block if the forward drew it too, then once more.

        With d the distance of the set from the mean and N blocks, the draws of the forward leave
        ``(1 - share)^N d`` of it. The step was taken from the set as it was, so their change is added to it.
        """
        for name, mean in self.means.items():
            value = self.own.get_parameter(name)
            if name in self._distances:  # its first axis is that of the blocks
                value.add_(self._distances.pop(name), alpha=(1 - self.share) ** len(value) - 1)
            value.lerp_(mean, self.share)


class Mos(AdapterBaseline):
    """The nearest class mean under the first set chooses a set; the class that it predicts chooses the next.

    Under a policy that shares sets, the choice is among sets, not tasks. Statistics of a class are stale
    where a later task went on training its set.

    Attributes:
        head: A linear classifier over all classes, which all sets share.
        statistics: Gaussians of the classes, each under its set, that the head is aligned with.
        prototype: Class means under the first set, ``[num_classes, dim]``.
        owner: The set of each class, ``[num_classes]`` int64.
    """

    prototype: Tensor
    owner: Tensor

    learning_only = ("statistics",)

    def __init__(self, config: MosConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        dim = context.backbone.dim
        classes = context.num_classes
        self.head = linear_head(dim, classes)
        self.statistics = ClassStatistics(classes, dim, config.statistics)
        self.register_buffer("prototype", torch.zeros(classes, dim))
        self.register_buffer("owner", torch.zeros(classes, dtype=torch.long))
        self._tasks = context.num_tasks
        self._seen = classes
        self.to(context.device)

    def begin_task(self, task: TaskInfo) -> None:
        """Note how many tasks and classes there are by now."""
        self._tasks = task.index + 1
        self._seen = task.seen

    # -- prediction ------------------------------------------------------------------------------------

    def asked(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the refined choice of a set, the head's answer under it, and cosines to the class means.

        Args:
            features: ``[B, sets, dim]``.

        Returns:
            The sets ``[B]``, and logits and cosines over the seen classes, ``[B, seen]``.
        """
        rows = torch.arange(len(features), device=features.device)
        means = functional.normalize(self.prototype[: self._seen], dim=-1)
        cosines = functional.normalize(features[:, 0], dim=-1) @ means.T
        following = self.owner[cosines.argmax(dim=1)]
        for _ in range(_ROUNDS):  # a choice that repeats itself stays
            chosen = following
            logits: Tensor = self.head(features[rows, chosen])[:, : self._seen]
            following = self.owner[logits.argmax(dim=1)]
        return chosen, logits, cosines

    def set_scores(self, features: Tensor) -> Tensor:
        """Return the share of the head's answer in each set's classes, and 1 more for the chosen set."""
        chosen, logits, _ = self.asked(features)
        sets = functional.one_hot(self.owner[: self._seen], features.shape[1]).to(logits)
        return logits.softmax(dim=1) @ sets + functional.one_hot(chosen, features.shape[1])

    def logits(self, features: Tensor) -> Tensor:
        """Return log sums of the head's probabilities and those of the class means, ``[B, num_classes]``."""
        _, logits, cosines = self.asked(features)
        parts = [logits.log_softmax(dim=1)]
        if self.config.ensemble:
            # cosines are at most 1: the factor, number of tasks, is the released code's temperature
            parts.append((self._tasks * cosines).log_softmax(dim=1))
        # log(softmax(z) + softmax(t q)); unseen classes get no share of either
        answer = torch.stack(parts).logsumexp(dim=0)
        return functional.pad(answer, (0, self.context.num_classes - self._seen), value=float("-inf"))

    # -- learning --------------------------------------------------------------------------------------

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the head's cross-entropy over the task's classes."""
        return functional.cross_entropy(mask_logits(self.head(features), task.classes), batch.labels)

    def step(self, batch: Batch, context: TaskContext, pull: Pull | None = None) -> StepOutput:
        """Return cross-entropy over the task's classes, and the contrastive term with all class means."""
        config = self.config
        task = context.task
        if pull is None or config.merging == "once":
            features = self.training_features(batch, context)
        else:  # "released": the blocks of the forward see the set drawn already
            depth = self.context.backbone.depth
            branches = bottlenecks_of(pull.during_forward(), depth, dropout=AdapterSet.DROPOUT)
            features = self._through(batch, branches)
        loss = self.probe_loss(features, batch, task)
        if config.contrastive:
            # features as they are, un-normalised, like the means that they are compared with
            means = self.statistics.centroids(range(task.seen - len(task.classes)))
            term = self_identification_loss(features, means)
            loss = loss + config.contrastive * term
        return StepOutput(loss=loss, features=features)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return four phases: adapters and head, class means, Gaussians of classes, alignment of the head."""
        config = self.config
        routing = context.pool.force(context.set_id)
        pull = self.pull(context)
        head = self.group(tuple(self.head.parameters()), config.head_factor)
        groups = (self.group(self.trained(context)), head)
        return (
            self.adapters_phase(groups, lambda batch: self.step(batch, context, pull), pull),
            ComputePhase(name="class-means", run=lambda progress: self.measure(context, progress)),
            self.statistics.phase("statistics", context, lambda batch: self.features(batch, routing)),
            replay_phase(
                "alignment",
                context,
                self.head,
                self.statistics,
                lr=config.align_lr,
                epochs=config.align_epochs,
                per_centroid=_ALIGN_DRAWS * config.batch_size,
                steps_for="seen",
                weight_decay=config.weight_decay,
            ),
        )

    def pull(self, context: TaskContext) -> Pull | None:
        """Return what draws the task's set towards the mean of the others, None without any."""
        others = [context.pool[set_id] for set_id in context.pool.ids if set_id != context.set_id]
        if not others or not self.config.merge:
            return None
        # the mean of the others is taken now: they do not move while the task is learned
        return Pull(context.parameters, self.trained(context), others, self.config.merge)

    @torch.no_grad()
    def measure(self, context: TaskContext, progress: Callable[[int, int], None]) -> None:
        """Store the means of the task's classes under the first set, and the set of each class."""
        # under the first set, whatever the task's own: class means of all tasks can then be compared
        routing = context.pool.force(context.pool.ids[0])
        index = context.task.index
        dropout = 0.0
        if index and self.config.merging == "released":
            # the release aligns its head in training mode, and stays in it
            dropout = AdapterSet.DROPOUT

        def features(batch: Batch) -> Tensor:
            if dropout:  # seeded by the images, whichever process reads them
                torch.manual_seed(derive_seed(context.seed, "class-means", index, int(batch.samples[0])))
            return self._adapted(batch, routing, dropout)

        rows, labels = collect_features(context, features, progress)
        for label in context.task.classes:
            # float64, so that the mean does not depend on how the images were batched
            self.prototype[label] = rows[labels == label].double().mean(0).float()
            self.owner[label] = context.set_id
