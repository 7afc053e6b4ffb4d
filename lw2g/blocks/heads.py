"""Building block: classifiers over all classes of the stream, trained or in closed form.

A method with a linear head derives from :class:`HeadedBaseline`, its options derive from
:class:`lw2g.blocks.options.HeadOptions`, and its phases pass through :meth:`~HeadedBaseline.with_head`: then
another head may take the place of the trained one at prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

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
from lw2g.blocks.options import ClosedFormKind, HeadOptions
from lw2g.blocks.statistics import collect_features
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo, derive_seed
from lw2g.interfaces.phase import ComputePhase, Phase
from lw2g.interfaces.pool import Routing

__all__ = [
    "CosineClassifier",
    "HeadedBaseline",
    "closed_form",
    "closed_form_head",
    "fitting_phase",
    "linear_head",
]


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
    made = None if options.head == "linear" else closed_form(options.head, options.head_features, context)
    if options.head_carry and (made is None or not made.carries):
        raise ConfigError(
            f"baseline.head_carry: what {options.head!r} keeps cannot be moved along with features; "
            "use 'lda' or 'cosine', or leave head_carry out"
        )
    return made


def closed_form(kind: ClosedFormKind, width: int, context: BuildContext) -> ClosedForm:
    """Return a classifier in closed form on features as wide as the backbone's.

    Args:
        kind: Its name.
        width: Number of random features of ``ridge`` and ``klda``.
        context: What is known before the first task.

    Raises:
        ConfigError: ``klda`` without random features.
    """
    dim, classes = context.backbone.dim, context.num_classes
    seed = derive_seed(context.seed, "head", dim, width)
    match kind:
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
    measure them again; the record tells their share (``stale_classes``). ``head_carry`` moves the sums of
    every old class whose features the task moves, whatever moves them: the task's images are passed through
    each old set that is concerned, before and after the task. That costs two passes over them for each such
    set (one for the task's own); the record counts the images (``findings.carry_forwards``).

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
        views = [] if before is None else self._views(context)
        owner = context.set_id if before is not None and self.feature_scope != "pool" else 0

        def rows(routing: Routing, progress: Callable[[int, int], None]) -> tuple[Tensor, Tensor]:
            return collect_features(context, lambda batch: self.features(batch, routing), progress)

        def fit(progress: Callable[[int, int], None]) -> None:
            own, labels = rows(routing, progress)
            if before is not None:
                for view, old in zip(views, before.take(), strict=True):
                    now = own if view.owner == owner else rows(view.after, progress)[0]
                    head.carry(motion(old, now, labels), view.classes, view.owner)
                    before.forwards += len(labels) * (2 - (view.owner == owner))
            head.learn(own, labels, context.generator("head"), owner)

        last = ComputePhase(name="head", run=fit)
        if before is None or not views:
            return (*phases, last)

        def look(progress: Callable[[int, int], None]) -> None:
            before.put([rows(view.before, progress)[0] for view in views])

        return (ComputePhase(name="head-before", run=look), *phases, last)

    def _views(self, context: TaskContext) -> list[_View]:
        """Return one view for each set under which old classes were measured whose features the task moves.

        What a new set adds to features that all sets make together moves them, too: before the task they were
        made without it.
        """
        pool, classes = context.pool, dict[int, list[int]]()
        pooled, shared = self.feature_scope == "pool", self.feature_scope == "set+shared"
        for task in context.history[:-1]:
            own = pool.task_to_set[task.index]
            if pooled or shared or own == context.set_id:
                classes.setdefault(0 if pooled else own, []).extend(task.classes)
        if not pooled:
            return [_View(one, pool.force(one), pool.force(one), of) for one, of in classes.items()]
        old = tuple(pool[one] for one in pool.ids if not (context.grew and one == context.set_id))
        return [_View(0, Routing(sets=old, chosen=0), pool.force(0), of) for of in classes.values()]

    def findings(self) -> Mapping[str, Any]:
        """Return how many images were passed through the backbone so that statistics could be carried."""
        return {} if self.before is None else {"carry_forwards": int(self.before.forwards)}


class _View(NamedTuple):
    """Old classes whose features a task moves alike.

    Attributes:
        owner: The set under which they were measured; 0 where all sets make features together.
        before: How features were made before the task.
        after: How they are made after it.
        classes: The classes.
    """

    owner: int
    before: Routing
    after: Routing
    classes: list[int]
