"""Baselines that predict by a classifier in closed form alone."""

from __future__ import annotations

from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.heads import fitting_phase
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import ComputePhase

__all__ = ["SolvedBaseline"]


class SolvedBaseline(Baseline):
    """A baseline whose classifier is solved in closed form from its own features.

    Attributes:
        closed_form: The classifier.
    """

    closed_form: ClosedForm

    @property
    def likelihood(self) -> bool:
        """Whether the classifier's scores are log likelihoods."""
        return self.closed_form.likelihood

    def logits(self, features: Tensor) -> Tensor:
        """Return the classifier's scores, ``[B, num_classes]``; 0 for classes to come."""
        return self.closed_form.logits(features)

    def fitting(self, name: str, context: TaskContext) -> ComputePhase:
        """Return the phase that shows the classifier the task's images, un-augmented."""
        routing = context.pool.force(context.set_id)
        return fitting_phase(name, context, self.closed_form, lambda batch: self.features(batch, routing))
