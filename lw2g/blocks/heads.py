"""Building block: classifiers over all classes of the stream, trained or in closed form.

A method with a linear head derives from :class:`HeadedBaseline`, its options derive from
:class:`lw2g.blocks.options.HeadOptions`, and its phases pass through :meth:`~HeadedBaseline.with_head`: then
another head may take the place of the trained one at prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.carrying import Before, motion
from lw2g.blocks.closed_form import (
    ClosedForm,
    Cosine,
    Discriminant,
    KernelDiscriminant,
    Mahalanobis,
    Ridge,
)
from lw2g.blocks.options import HeadOptions
from lw2g.blocks.statistics import collect_features
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo, derive_seed
from lw2g.interfaces.phase import ComputePhase, Phase

__all__ = ["CosineClassifier", "HeadedBaseline", "closed_form_head", "fitting_phase", "linear_head"]


class CosineClassifier(nn.Module):
    """What the classes of one task are told apart by while it is learned, and then thrown away.

    Attributes:
        weight: ``[classes, dim]``, uniform within ``1 / sqrt(dim)``.
        sigma: Learned factor on the cosines, 1 at the start.
    """

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))
        self.sigma = nn.Parameter(torch.ones(1))
        self.draw()

    def draw(self) -> None:
        """Draw the weight anew, from torch's global generator."""
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        """Return ``sigma * cos(features, weight)``, ``[B, classes]``."""
        cosines = functional.normalize(features, dim=-1) @ functional.normalize(self.weight, dim=-1).T
        return self.sigma * cosines


def linear_head(dim: int, num_classes: int) -> nn.Linear:
    """Return a linear head at full size: truncated normal weights (std 0.02), zero bias.

    Rows of classes outside the current task get no gradient as long as their logits are masked.
    """
    head = nn.Linear(dim, num_classes)
    nn.init.trunc_normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head


def closed_form_head(options: HeadOptions, context: BuildContext) -> ClosedForm | None:
    """Return the classifier in closed form that the options name, on features as wide as the backbone's.

    None stands for the trained linear head.

    Raises:
        ConfigError: ``klda`` without random features; statistics to be carried that cannot be.
    """
    made = _closed_form_head(options, context)
    if options.head_carry and (made is None or not made.carries):
        raise ConfigError(
            f"baseline.head_carry: what {options.head!r} keeps cannot be moved along with features; "
            "use 'lda' or 'cosine', or leave head_carry out"
        )
    return made


def _closed_form_head(options: HeadOptions, context: BuildContext) -> ClosedForm | None:
    dim, classes, width = context.backbone.dim, context.num_classes, options.head_features
    seed = derive_seed(context.seed, "head", dim, width)
    match options.head:
        case "linear":
            return None
        case "cosine":
            return Cosine(dim, classes)
        case "lda":
            return Discriminant(dim, classes)
        case "mahalanobis":
            return Mahalanobis(dim, classes)
        case "ridge":
            return Ridge(dim, classes, width, seed)
        case "klda":
            if not width:
                raise ConfigError(
                    "baseline.head_features: 0 leaves 'klda' nothing to work on; raise it, or use 'lda'"
                )
            return KernelDiscriminant(dim, classes, width, seed)


def fitting_phase(
    name: str, context: TaskContext, head: ClosedForm, features: Callable[[Batch], Tensor]
) -> ComputePhase:
    """Return the phase that shows a task's images, under the test transform, to a classifier in closed form.

    Args:
        name: Shown in the progress, and the purpose of the phase's generator.
        context: The task.
        head: The classifier.
        features: Gives the features of a batch.
    """

    def run(progress: Callable[[int, int], None]) -> None:
        rows, labels = collect_features(context, features, progress)
        head.learn(rows, labels, context.generator(name))

    return ComputePhase(name=name, run=run)


class HeadedBaseline(Baseline):
    """A baseline with a linear head over all classes, in whose place another may predict.

    Training and evidence ask :attr:`head`, prediction asks :meth:`logits`. A head in closed form keeps sums
    over features of each task under its own set, as they were when the task ended: where a later task goes on
    training that set, or parts that all share, those of old classes are *stale*, since no image is left to
    take them anew; the record tells their share (``stale_classes``). ``head_carry`` moves the sums along with
    the features of the task's own set, as far as the task's images show how these have moved.

    Args:
        options: Name the head.
        context: What is known before the first task.

    Attributes:
        head: The trained head.
        closed_form: What predicts in its place, None for the head itself.
        before: Features of the task's images when it began, where statistics are carried; else None.
    """

    closed_form: ClosedForm | None
    before: Before | None

    def __init__(self, options: HeadOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.head = self.new_head().to(context.device)
        made = closed_form_head(options, context)
        self.register_module("closed_form", None if made is None else made.to(context.device))
        kept = Before(context.backbone.dim).to(context.device) if options.head_carry else None
        self.register_module("before", kept)

    def new_head(self) -> nn.Linear:
        """Return the classifier over all classes that is trained."""
        return linear_head(self.context.backbone.dim, self.context.num_classes)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, or scores of that in its place, ``[B, num_classes]``."""
        return (
            cast(Tensor, self.head(features))
            if self.closed_form is None
            else self.closed_form.logits(features)
        )

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the trained head's cross-entropy over the task's classes for features ``[B, dim]``."""
        return functional.cross_entropy(mask_logits(self.head(features), task.classes), batch.labels)

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss whose gradient is the evidence: :meth:`class_loss`, whatever predicts."""
        return self.class_loss(features, batch, task)

    def with_head(self, context: TaskContext, *phases: Phase) -> Sequence[Phase]:
        """Return a task's phases with what a head in closed form asks for around them, if there is one.

        It looks at the task's images when everything else is done, and, where it carries statistics that the
        task will move, once before.
        """
        head, before = self.closed_form, self.before
        if head is None:
            return phases
        routing = context.pool.force(context.set_id)

        def features(batch: Batch) -> Tensor:
            return self.features(batch, routing)

        moved = self._moved(context)
        if before is None or not moved:
            return (*phases, fitting_phase("head", context, head, features))

        def look(progress: Callable[[int, int], None]) -> None:
            before.put(collect_features(context, features, progress)[0])

        def fit(progress: Callable[[int, int], None]) -> None:
            rows, labels = collect_features(context, features, progress)
            head.carry(motion(before.take(), rows, labels), moved)
            head.learn(rows, labels, context.generator("head"))

        return (
            ComputePhase(name="head-before", run=look),
            *phases,
            ComputePhase(name="head", run=fit),
        )

    def _moved(self, context: TaskContext) -> list[int]:
        """Return the old classes whose features pass through what the task trains of its set."""
        own = context.pool.tasks_of(context.set_id)
        return [
            label
            for task in context.history[:-1]
            if self.feature_scope == "pool" or task.index in own
            for label in task.classes
        ]
