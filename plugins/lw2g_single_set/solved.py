"""Baselines that predict by a classifier in closed form and by nothing else."""

from __future__ import annotations

from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.heads import fitting_phase
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase

__all__ = ["NearestClassMean", "SolvedBaseline"]


class SolvedBaseline(Baseline):
    """A baseline whose classifier is solved for, from its own features.

    Attributes:
        closed_form: The classifier.
    """

    closed_form: ClosedForm

    def logits(self, features: Tensor) -> Tensor:
        """Return the classifier's scores, ``[B, num_classes]``; 0 for classes to come."""
        return self.closed_form.logits(features)

    def fitting(self, name: str, context: TaskContext) -> ComputePhase:
        """Return the phase that shows the classifier the task's images, un-augmented."""
        routing = context.pool.force(context.set_id)
        return fitting_phase(name, context, self.closed_form, lambda batch: self.features(batch, routing))


class NearestClassMean(SolvedBaseline):
    """Its classifier is the nearest class mean by angle: what ``simple-cil`` and Aper share."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__(context)
        self.closed_form = Cosine(self.width, context.num_classes).to(context.device)

    @property
    def width(self) -> int:
        """Width of the features: the backbone's."""
        return self.context.backbone.dim

    def means_phase(self, context: TaskContext) -> ComputePhase:
        """Return the phase that enters the means of the task's classes."""
        return self.fitting("class-means", context)
