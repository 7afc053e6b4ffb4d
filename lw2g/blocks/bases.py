"""Base classes for plugins that were written before a kind of sets was an object that a method holds.

They are importable for one minor version from where they were; lw2g's own methods use none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from lw2g.blocks.heads import HeadedBaseline
from lw2g.blocks.lora import LowRankSet, LowRankSets
from lw2g.blocks.options import LowRankOptions, PrefixOptions
from lw2g.blocks.prefixes import PrefixSet, PrefixSets
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ParameterGroup, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.site import Site
from lw2g.vit.lora import LowRankInjection
from lw2g.vit.prefix import PrefixInjection

__all__ = ["LowRankBaseline", "PrefixBaseline"]


class PrefixBaseline(HeadedBaseline):
    """A baseline whose sets are prefixes: :class:`HeadedBaseline` that holds :class:`PrefixSets`."""

    def __init__(self, config: PrefixOptions, context: BuildContext) -> None:
        super().__init__(config, context)
        self.options = config
        self.prefixes = PrefixSets(config, context)
        self.blocks = self.prefixes.blocks

    @property
    def takes_copies(self) -> bool:
        """Whether each sample gets its own prefix."""
        return self.prefixes.takes_copies

    def new_set(self, source: nn.Module | None) -> PrefixSet:
        """Return a new prefix set."""
        return self.prefixes.new_set(source)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if the options start new sets from it."""
        return self.prefixes.source_of(pool)

    def injections(self, routing: Routing, size: int) -> Sequence[PrefixInjection]:
        """Return the injections for a batch of ``size`` samples."""
        return (self.prefixes.chosen(routing, size),)

    def inject(self, key: Tensor, value: Tensor, size: int) -> PrefixInjection:
        """Return the injection of a set's prefixes."""
        return self.prefixes.inject(key, value, size)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return prompted features ``[B, dim]``."""
        return self.context.backbone.features(batch.images, self.injections(routing, len(batch)))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's prefix."""
        return self.prefixes.sites(parameters)

    def shared_prompts(self) -> Sequence[nn.Parameter]:
        """Return the prompts that all tasks train, besides their set and the head; none by default."""
        return ()

    def trained_groups(self, context: TaskContext) -> Sequence[ParameterGroup]:
        """Return the groups of :meth:`prompt_phase`: set, shared prompts and head at one learning rate."""
        trained = (*context.parameters.parameters(), *self.shared_prompts(), *self.head.parameters())
        return (ParameterGroup(parameters=trained, lr=self.options.effective_lr),)

    def prompt_phase(self, context: TaskContext) -> TrainingPhase:
        """Return the phase that trains the task's set on :meth:`step`."""
        groups = self.trained_groups(context)
        return self.prefixes.phase(context, lambda batch: self.step(batch, context), groups)


class LowRankBaseline(HeadedBaseline):
    """A baseline whose sets are low-rank updates: :class:`HeadedBaseline` that holds :class:`LowRankSets`.

    With the scope ``POOL`` a forward sums the updates of all sets; with ``SET`` each sample gets those of its
    own.
    """

    set_class: ClassVar[type[LowRankSet]] = LowRankSet
    shared_down: ClassVar[bool] = False

    def __init__(self, config: LowRankOptions, context: BuildContext) -> None:
        super().__init__(config, context)
        self.options = config
        self.updates = LowRankSets(config, context, set_class=self.set_class, shared_down=self.shared_down)
        self.blocks = self.updates.blocks
        self.targets = self.updates.targets

    @property
    def scale(self) -> float:
        """Factor on every update; 1 by default."""
        return 1.0

    @property
    def bound(self) -> float:
        """Bound of a new down factor; ``1 / sqrt(dim)`` by default."""
        return float(self.context.backbone.dim**-0.5)

    @property
    def takes_copies(self) -> bool:
        """Whether each sample gets its own set; a sum over all sets would count copies twice."""
        return self.scope.choice

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet."""
        # asked now: a subclass may tell it from what it sets after this class
        self.updates.bound = self.bound
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the updates for a routing: those of all sets, or of each sample's set."""
        self.updates.scale = self.scale
        if self.scope.choice:
            return self.updates.chosen(routing)
        return self.updates.summed(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def trained_groups(self, factors: Sequence[nn.Parameter], lr: float) -> tuple[ParameterGroup, ...]:
        """Return factors of a set at learning rate ``lr`` and the head at the options' multiple of it."""
        return self.updates.groups(factors, self.head, lr)
