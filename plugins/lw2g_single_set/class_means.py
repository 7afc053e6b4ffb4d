"""The classifier that ``simple-cil`` and Aper share: the nearest class mean by cosine similarity."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.statistics import collect_features
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase

__all__ = ["NearestClassMean"]


class NearestClassMean(Baseline):
    """A baseline whose classifier is a table of class means of its own features.

    Args:
        context: What is known before the first task.

    Attributes:
        prototype: Means of the un-normalised features, ``[num_classes, width]``; zero for classes to come.
    """

    prototype: Tensor

    def __init__(self, context: BuildContext) -> None:
        super().__init__(context)
        self.register_buffer("prototype", torch.zeros(context.num_classes, self.width, device=context.device))

    @property
    def width(self) -> int:
        """Width of the features: the backbone's."""
        return self.context.backbone.dim

    def logits(self, features: Tensor) -> Tensor:
        """Return cosines to the class means, ``[B, num_classes]``."""
        return functional.normalize(features, dim=-1) @ functional.normalize(self.prototype, dim=-1).T

    def means_phase(self, context: TaskContext) -> ComputePhase:
        """Return the phase that enters the means of the task's classes, over un-augmented images."""

        def run(progress: Callable[[int, int], None]) -> None:
            routing = context.pool.force(context.set_id)
            rows, labels = collect_features(context, lambda batch: self.features(batch, routing), progress)
            for label in context.task.classes:
                # float64, so that the mean does not depend on how the images were batched
                self.prototype[label] = rows[labels == label].double().mean(0).float()

        return ComputePhase(name="class-means", run=run)
