"""Building block: classifiers over all classes of the stream, trained or in closed form.

A method with a linear head derives from :class:`HeadedBaseline`, its options from
:class:`lw2g.blocks.options.HeadOptions`, and it passes its phases through
:meth:`~HeadedBaseline.with_head`. Then a closed-form head can replace the trained one at prediction.
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
    """A cosine classifier of one task's classes, for training alone.

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
        """Redraw the weight from torch's global generator."""
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        """Return ``sigma * cos(features, weight)``, ``[B, classes]``."""
        cosines = functional.normalize(features, dim=-1) @ functional.normalize(self.weight, dim=-1).T
        return self.sigma * cosines


def linear_head(dim: int, num_classes: int) -> nn.Linear:
    """Return a linear head over all classes: truncated normal weights (std 0.02), zero bias."""
    head = nn.Linear(dim, num_classes)
    nn.init.trunc_normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head


def closed_form_head(options: HeadOptions, context: BuildContext) -> ClosedForm | None:
    """Return the closed-form head that the options name; None for the trained linear head.

    Raises:
        ConfigError: ``klda`` without random features, or ``head_carry`` with a head that cannot carry.
    """
    head = None if options.head == "linear" else closed_form(options.head, options.head_features, context)
    if options.head_carry and (head is None or not head.carries):
        raise ConfigError(
            f"baseline.head_carry: what {options.head!r} keeps cannot be moved along with features",
            "use 'lda' or 'cosine', or leave head_carry out",
        )
    return head


def closed_form(kind: ClosedFormKind, width: int, context: BuildContext) -> ClosedForm:
    """Return a closed-form classifier for features of the backbone's width.

    Args:
        kind: Name of the classifier.
        width: Number of random features for ``ridge`` and ``klda``.
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
                    "baseline.head_features: 0 leaves 'klda' nothing to work on", "raise it, or use 'lda'"
                )
            return KernelDiscriminant(dim, classes, width, seed)


def fitting_phase(
    name: str, context: TaskContext, head: ClosedForm, features: Callable[[Batch], Tensor]
) -> ComputePhase:
    """Return the phase that fits a closed-form classifier to a task's images under the test transform.

    Args:
        name: Shown in the progress, and the purpose of the phase's generator.
        context: The task.
        head: The classifier.
        features: Returns the features of a batch.
    """

    def run(progress: Callable[[int, int], None]) -> None:
        rows, labels = collect_features(context, features, progress)
        head.learn(rows, labels, context.generator(name))

    return ComputePhase(name=name, run=run)


class HeadedBaseline(Baseline):
    """A baseline with a linear head over all classes, which a closed-form head can replace at prediction.

    Training and evidence use :attr:`head`, prediction uses :meth:`logits`. A closed-form head keeps sums over
    the features of each task under its own set, as they were at the end of the task. If a later task trains
    that set or parameters that all sets share, these features drift and the sums are *stale*, because no old
    image is left to measure them again; the record holds the share of such classes (``stale_classes``).

    ``head_carry`` corrects the sums of every old class whose features a task makes drift
    (:mod:`lw2g.blocks.carrying`). It passes the task's images through each old set concerned before and after
    the task: two passes per such set (one for the task's own). The record counts these images
    (``findings.carry_forwards``).

    Attributes:
        head: The trained head.
        closed_form: The closed-form head that predicts; None if :attr:`head` does.
        before: Features of the task's images at its beginning, for ``head_carry``; else None.
    """

    closed_form: ClosedForm | None
    before: Before | None

    def __init__(self, options: HeadOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.head = self.new_head().to(context.device)
        predictor = closed_form_head(options, context)
        self.register_module("closed_form", None if predictor is None else predictor.to(context.device))
        before = Before(context.backbone.dim).to(context.device) if options.head_carry else None
        self.register_module("before", before)

    def new_head(self) -> nn.Linear:
        """Return the trained classifier over all classes."""
        return linear_head(self.context.backbone.dim, self.context.num_classes)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, or scores of the closed-form head, ``[B, num_classes]``."""
        return (
            cast(Tensor, self.head(features))
            if self.closed_form is None
            else self.closed_form.logits(features)
        )

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the trained head's cross-entropy over the task's classes for features ``[B, dim]``."""
        return functional.cross_entropy(mask_logits(self.head(features), task.classes), batch.labels)

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the loss whose gradient is the evidence: :meth:`class_loss`, whichever head predicts."""
        return self.class_loss(features, batch, task)

    def with_head(self, context: TaskContext, *phases: Phase) -> Sequence[Phase]:
        """Return a task's phases with those of the closed-form head, if there is one.

        That head is fitted after all other phases. If it carries statistics that the task will change, a
        phase before the others stores the features of the task's images.
        """
        head, before = self.closed_form, self.before
        if head is None:
            return phases
        routing = context.pool.force(context.set_id)
        views = [] if before is None else self._views(context)
        owner = 0 if before is None else self.scope.made_under(context.set_id)

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
        """Return one view per set under which features of old classes drift in this task.

        If features depend on all sets together, a new set makes them drift too: ``before`` leaves it out.
        """
        pool, scope, classes = context.pool, self.scope, dict[int, list[int]]()
        for task in context.history[:-1]:
            own = pool.task_to_set[task.index]
            if scope.moves(context.set_id, own):
                classes.setdefault(scope.made_under(own), []).extend(task.classes)
        new = context.set_id if context.grew else None
        return [_View(own, scope.before(pool, own, new), pool.force(own), of) for own, of in classes.items()]

    def findings(self) -> Mapping[str, Any]:
        """Return the number of images that were passed through the backbone to carry statistics."""
        return {} if self.before is None else {"carry_forwards": int(self.before.forwards)}


class _View(NamedTuple):
    """Old classes whose features drift alike in a task.

    Attributes:
        owner: The set under which they were measured; 0 if features depend on all sets together.
        before: The routing for their features before the task.
        after: The routing for their features after it.
        classes: The classes.
    """

    owner: int
    before: Routing
    after: Routing
    classes: list[int]
