"""Aper: adapt the backbone on the first task only, then classify by class means of old and new features.

Zhou et al., "Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability and Adaptivity
are All You Need", IJCV 2024. The feature of an image is ``[frozen ; adapted]``; nothing is trained after the
first task.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lw2g.blocks.closed_form import Cosine
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Routing
from lw2g_single_set.first_task import AdapterSets, FirstTask, TokenSets
from lw2g_single_set.options import FirstTaskOptions
from lw2g_single_set.solved import SolvedBaseline

__all__ = ["Aper", "AperAdapter", "AperVptDeep"]


class Aper(FirstTask, SolvedBaseline):
    """Its one set is learned in the first task; later tasks only add class means."""

    def __init__(self, config: FirstTaskOptions, context: BuildContext) -> None:
        super().__init__(config, context)
        self.closed_form = Cosine(2 * context.backbone.dim, context.num_classes).to(context.device)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return ``[frozen ; adapted]``, ``[B, 2 dim]``; the frozen half is computed once a run."""
        return torch.cat([batch.query, self.adapted(batch.images, routing.sets[0])], dim=1)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the adaptation in the first task, and the class means in every task."""
        return (*self.adaptation(context), self.fitting("class-means", context))


class AperVptDeep(TokenSets, Aper):
    """Adapts by prompt tokens in every block."""


class AperAdapter(AdapterSets, Aper):
    """Adapts by bottlenecks in every block."""
