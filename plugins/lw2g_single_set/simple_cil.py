"""simple-cil: the nearest class mean of frozen features, or another head in closed form; nothing is trained.

Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models", IJCV 2024.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lw2g.plugin import (
    BACKBONE,
    Baseline,
    Batch,
    BuildContext,
    ClosedForm,
    Phase,
    Routing,
    TaskContext,
    closed_form,
    fitting_phase,
)
from lw2g_single_set.options import SimpleCILConfig

__all__ = ["SimpleCIL"]


class SimpleCIL(Baseline):
    """The nearest class mean by cosine similarity, or another head in closed form; nothing is trained.

    But for what ``ridge`` and ``klda`` choose by a task, the final result depends neither on the order of
    classes nor on how they are grouped into tasks.
    """

    scope = BACKBONE

    closed_form: ClosedForm

    def __init__(self, config: SimpleCILConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.closed_form = closed_form(config.head, config.head_features, context).to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a module without parameters."""
        return nn.Module()

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return un-prompted features ``[B, width]``, which are computed once a run."""
        # of the frozen backbone without any set: no task can make a class mean stale
        return batch.query

    def logits(self, features: Tensor) -> Tensor:
        """Return the head's scores, ``[B, num_classes]``; 0 for classes to come."""
        return self.closed_form.logits(features)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: the head sees the task's classes."""
        return (fitting_phase("class-means", context, self.closed_form, lambda batch: batch.query),)
