"""TUNA: an adapter per task, the most certain of which answers beside a merge of all of them.

Wang, Zhou & Ye, "Integrating Task-Specific and Universal Adapters for Pre-Trained Model-based
Class-Incremental Learning", ICCV 2025. A set starts from the one before it, which gives them a common basis:
bottlenecks of unlike bases cannot be merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, cast

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
    cosine,
    entropy,
    mask_logits,
    replay_phase,
)
from lw2g_adapters.options import TunaConfig

__all__ = ["Tuna", "merge", "overlap"]

_SHARPNESS = 20.0
"""Factor on cosines in every softmax."""

_PULL = 1e-3
"""Weight of the orthogonality term, before its decay."""

_ALIGN_DRAWS = 5
"""Samples of a class in an epoch of alignment, over the batch size."""


def merge(values: Tensor) -> Tensor:
    """Merge sets coordinate by coordinate: keep the largest value of the sign that their mean has.

    Args:
        values: ``[sets, ...]``.

    >>> merge(torch.tensor([[1.0, 2.0], [-3.0, -1.0], [1.0, 0.0]]))
    tensor([-3.,  2.])
    """
    sign = torch.where(values.mean(dim=0) > 0, 1.0, -1.0)
    # times the sign, the values that agree with it are positive: the largest of them, or 0 without any
    return sign * (sign * values).amax(dim=0).clamp(min=0)


def overlap(up: Tensor, other: Tensor, how: Literal["code", "pairwise"]) -> Tensor:
    """Return how far the rows of two up-projections point alike, averaged over blocks: a scalar.

    Args:
        up: ``[blocks, dim, r]``.
        other: Of another set, of the same shape.
        how: ``"code"``: the product of the mean unit rows, as released, which is zero for rows that cancel;
            ``"pairwise"``: the mean size of the products of all pairs of unit rows.
    """
    ours = functional.normalize(up, dim=-1)
    theirs = functional.normalize(other, dim=-1)
    if how == "pairwise":
        return (ours @ theirs.mT).abs().mean()
    return (ours.mean(dim=1) * theirs.mean(dim=1)).sum(dim=-1).abs().mean()


def _five(base: float, epoch: int, epochs: int) -> float:
    # as released, whatever the number of epochs: down to 0 in five of them, and up again in the next five
    return base * 0.5 * (1 + math.cos(math.pi * epoch / 5))


class Tuna(AdapterBaseline):
    """Every set answers over all seen classes; the answer of least entropy and that of the merge are added.

    Under a policy that shares sets, all live ones are merged and compared. Gaussians of the classes of old
    tasks are stale where a later task went on training their set.

    Attributes:
        head: A cosine classifier over all classes, which all sets share.
        statistics: Gaussians of the classes, each under its set, that the head is aligned with.
        universal: The merge of all live sets.
        newest: The set of the last task.
    """

    newest: Tensor

    learning_only = ("statistics",)

    def __init__(self, config: TunaConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        dim = context.backbone.dim
        classes = context.num_classes
        self.head = nn.Linear(dim, classes, bias=False)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        self.statistics = ClassStatistics(classes, dim, "covariance")
        self.universal = AdapterSet(context.backbone.depth, dim, config.bottleneck).as_buffers()
        self.register_buffer("newest", torch.zeros((), dtype=torch.long))
        self._seen = classes
        self.to(context.device)

    def begin_task(self, task: TaskInfo) -> None:
        """Note how many classes are seen: probabilities are over these."""
        self._seen = task.seen

    def beside(self) -> tuple[nn.Module, ...]:
        """Return the merged set, unless the newest set takes its place."""
        if self.config.second == "newest":
            # the released code never reaches its merged set, and asks the newest one
            return ()
        return (self.universal,)

    # -- prediction ------------------------------------------------------------------------------------

    def cosines(self, features: Tensor) -> Tensor:
        """Return 20 times the cosines of features and the head's rows, ``[..., num_classes]``."""
        rows = functional.normalize(self.head.weight, dim=-1)
        return _SHARPNESS * (functional.normalize(features, dim=-1) @ rows.T)

    def set_scores(self, features: Tensor) -> Tensor:
        """Return minus the entropy of each live set's answer, ``[B, sets]``."""
        answers = self.cosines(features[:, : features.shape[1] - len(self.beside())])
        return -entropy(answers[..., : self._seen])

    def logits(self, features: Tensor) -> Tensor:
        """Return log sums of two probabilities, ``[B, num_classes]``: of the chosen set, and of the merge."""
        chosen = self.set_scores(features).argmax(dim=1)
        second = self.newest.expand_as(chosen)
        if self.beside():
            second = torch.full_like(chosen, features.shape[1] - 1)
        places = torch.stack([chosen, second], dim=1)
        chosen_features = features[torch.arange(len(features), device=features.device)[:, None], places]
        answers = mask_logits(self.cosines(chosen_features), range(self._seen))
        # log(p_chosen + p_second): probabilities are added, not logits
        return answers.log_softmax(dim=-1).logsumexp(dim=1)

    # -- learning --------------------------------------------------------------------------------------

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy of 20 cosines over the task's classes."""
        return functional.cross_entropy(mask_logits(self.cosines(features), task.classes), batch.labels)

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the margin loss over the task's classes, and the overlap with the other sets."""
        config = self.config
        features = self.training_features(batch, context)
        cosines = self.cosines(features)
        if config.margin:
            # CosFace: 20 (cos - m) for the true class; the cosines are times 20 already
            off = functional.one_hot(batch.labels, cosines.shape[1]) * (_SHARPNESS * config.margin)
            cosines = cosines - off
        loss = functional.cross_entropy(mask_logits(cosines, context.task.classes), batch.labels)
        others = [set_id for set_id in context.pool.ids if set_id != context.set_id]
        if config.orthogonality != "none" and others:
            up = cast(AdapterSet, context.parameters).up
            overlaps = []
            for set_id in others:
                # detached: in the release this term goes on training the sets of old tasks
                other = cast(AdapterSet, context.pool[set_id]).up.detach()
                overlaps.append(overlap(up, other, config.orthogonality))
            # as released: each task's term has 1/e of the weight of the one before
            decay = math.exp(-(context.task.index + 1))
            loss = loss + _PULL * decay * torch.stack(overlaps).sum()
        return StepOutput(loss=loss, features=features)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return four phases: adapters and head, the merge, Gaussians of classes, alignment of the head."""
        config = self.config
        trained = (*self.trained(context), *self.head.parameters())
        routing = context.pool.force(context.set_id)
        schedule = cosine()
        if config.align_schedule == "cosine-5":  # as released, whatever the number of epochs
            schedule = _five
        change = None
        if config.mean_decay:
            change = self.shrunk(context)
        return (
            self.adapters_phase([self.group(trained)], lambda batch: self.step(batch, context)),
            ComputePhase(name="merge", run=lambda progress: self.merge(context)),
            self.statistics.phase("statistics", context, lambda batch: self.features(batch, routing)),
            replay_phase(
                "alignment",
                context,
                self.head,
                self.statistics,
                lr=config.align_lr,
                epochs=config.align_epochs,
                per_centroid=_ALIGN_DRAWS * config.batch_size,
                logits=self.cosines,
                steps_for="seen",
                weight_decay=config.weight_decay,
                schedule=schedule,
                change=change,
            ),
        )

    @torch.no_grad()
    def merge(self, context: TaskContext) -> None:
        """Merge all live sets into the universal one."""
        self.newest.fill_(context.set_id)
        for name, value in self.universal.named_buffers():
            values = [getattr(own_set, name) for own_set in context.pool.sets]
            value.copy_(merge(torch.stack(values)))

    def shrunk(self, context: TaskContext) -> Callable[[Tensor, Tensor, torch.Generator], Tensor]:
        """Return the function that moves samples as if :meth:`mean_scale` scaled their class means."""
        scale = self.mean_scale(context)

        def change(features: Tensor, labels: Tensor, _: torch.Generator) -> Tensor:
            """Return samples ``[n, dim]`` about the scaled means of their classes; nothing is drawn."""
            # mean + noise becomes scale * mean + noise: the spread stays
            return features + (scale[labels] - 1)[:, None] * self.statistics.mean[labels, 0]

        return change

    def mean_scale(self, context: TaskContext) -> Tensor:
        """Return the factor on the mean of each seen class, ``[seen]``: 1 for the newest, towards 0.9.

        As released: 0.9 + 0.1 / T for class 0, 0.9 for the next ones, towards 0.8 for the newest.
        """
        tasks = context.task_of_class()
        if self.config.decay_order == "released":
            # its size of a task is negative, known classes less all: so k is 0, -1, -1, ... by class
            size = len(context.task.classes)
            tasks = torch.arange(context.task.seen, device=tasks.device).div(-size, rounding_mode="floor")
        return 0.9 + 0.1 * (tasks + 1) / (context.task.index + 1)
