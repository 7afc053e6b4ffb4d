"""Aper: adapt the backbone on the first task only, then classify by class means of old and new features.

Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability and Adaptivity
are All You Need", IJCV 2024. The feature of an image is ``[frozen ; adapted]``; nothing is trained after the
first task. ``aper-adapter`` adapts by bottlenecks, ``aper-vpt-deep`` by prompt tokens in every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from lw2g.plugin import (
    Baseline,
    Batch,
    BuildContext,
    Cosine,
    CosineClassifier,
    Phase,
    Routing,
    TaskContext,
    TaskInfo,
    fitting_phase,
)
from lw2g_single_set.first_task import adaptation, first_classifier
from lw2g_single_set.options import FirstTaskOptions

__all__ = ["Aper"]


class Aper(Baseline):
    """Its one set is learned in the first task; later tasks only add class means.

    Attributes:
        adaptation: How the set adapts the backbone.
        classifier: What the set is learned with; None after the first task.
        closed_form: The class means, ``[num_classes, 2 width]``.
    """

    several_classes = True
    trained_tasks = 1

    classifier: CosineClassifier | None
    closed_form: Cosine

    def __init__(
        self, config: FirstTaskOptions, context: BuildContext, *, adapt: Literal["adapter", "vpt-deep"]
    ) -> None:
        super().__init__(context)
        self.config = config
        self.adaptation = adaptation(adapt, config, context)
        self.register_module("classifier", None)
        self.closed_form = Cosine(2 * context.backbone.width, context.num_classes).to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return the set, before the first task is learned."""
        return self.adaptation.new_set()

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return ``[frozen ; adapted]``, ``[B, 2 width]``; the frozen half is computed once a run."""
        adapted = self.adaptation.features(batch.images, routing.sets[0])
        # as they are: one cosine of both halves lets the longer one count more, as the authors have it
        return torch.cat([batch.query, adapted], dim=1)

    def logits(self, features: Tensor) -> Tensor:
        """Return cosines with the class means, ``[B, num_classes]``; 0 for classes to come."""
        return self.closed_form.logits(features)

    def begin_task(self, task: TaskInfo) -> None:
        """Make the classifier of the first task, and drop it afterwards."""
        self.classifier = first_classifier(task, self.context.backbone.dim)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the adaptation in the first task, and the class means in every task."""
        routing = context.pool.force(context.set_id)
        # after the adaptation, in the first task, too: means of features that still move are of no use
        means = fitting_phase(
            "class-means", context, self.closed_form, lambda batch: self.head_features(batch, routing)
        )
        if self.classifier is None:
            return (means,)
        return (self.adaptation.phase(self.config, context, self.classifier), means)
