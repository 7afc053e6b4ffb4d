"""RanPAC: ridge regression of labels on random features of a backbone that the first task may have adapted.

McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning", NeurIPS 2023.
Sums over all images seen are kept, so that after every task the classifier is that of all tasks at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, derive_seed
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import BACKBONE
from lw2g_single_set.first_task import AdapterSets, FirstTask, TokenSets
from lw2g_single_set.options import RanPacConfig
from lw2g_single_set.solved import SolvedBaseline

__all__ = ["RanPac", "RanPacAdapted", "RanPacAdapter", "RanPacFrozen", "RanPacVptDeep", "ranpac"]


def random_ridge(config: RanPacConfig, context: BuildContext) -> Ridge:
    """Return the classifier, still empty.

    Its projection is fixed by the run's seed, its width and the backbone's: neither what was adapted nor for
    how long changes it.
    """
    dim, width = context.backbone.dim, config.features
    seed = derive_seed(context.seed, "ranpac", dim, width)
    ridge = Ridge(dim, context.num_classes, width, seed, choice=config.penalty)
    return ridge.to(context.device)


class RanPac(SolvedBaseline):
    """A ridge classifier on random features; subclasses say of which features, and build it.

    Attributes:
        closed_form: Its float64 sums are ``[M, M]`` and ``[num_classes, M]``.
    """

    closed_form: Ridge

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the phase of every task: its features enter the sums, and choose the penalty."""
        return (self.fitting("ridge", context),)


class RanPacFrozen(RanPac):
    """On frozen features: nothing is trained."""

    scope = BACKBONE

    def __init__(self, config: RanPacConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.closed_form = random_ridge(config, context)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a module without parameters."""
        return nn.Module()

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return un-prompted features ``[B, dim]``, which are computed once a run."""
        return batch.query


class RanPacAdapted(FirstTask, RanPac):
    """On features under the set of the first task."""

    def __init__(self, config: RanPacConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.closed_form = random_ridge(config, context)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return adapted features ``[B, dim]``."""
        return self.adapted(batch.images, routing.sets[0])

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the adaptation in the first task, and the ridge regression in every task."""
        return (*self.adaptation(context), *super().phases(context))


class RanPacAdapter(AdapterSets, RanPacAdapted):
    """On features that adapters have adapted."""


class RanPacVptDeep(TokenSets, RanPacAdapted):
    """On features that prompt tokens have adapted."""


def ranpac(config: RanPacConfig, context: BuildContext) -> RanPac:
    """Build ``ranpac`` in the form that the options name."""
    match config.adapt:
        case "adapter":
            return RanPacAdapter(config, context)
        case "vpt-deep":
            return RanPacVptDeep(config, context)
        case "none":
            return RanPacFrozen(config, context)
