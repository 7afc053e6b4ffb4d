"""Building block: sets of bottleneck adapters parallel to the MLP (AdaptFormer).

The branch of a block is ``scale * (up relu(down h + down_bias) + up_bias)``, with h the residual stream after
attention; h is not normalised, so a few of its coordinates are huge. ``down`` multiplies h, a site at the tap
``block_mid``; ``up`` multiplies the inner activations, a site at the tap ``published``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from lw2g.blocks.options import AdapterSetOptions
from lw2g.blocks.schedules import cosine
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ParameterGroup, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.scope import EACH
from lw2g.interfaces.site import Site
from lw2g.vit.adapter import AdapterInjection, Bottleneck
from lw2g.vit.injection import in_product_dtype
from lw2g.vit.taps import Tap

__all__ = [
    "SCALE",
    "AdapterBaseline",
    "AdapterSet",
    "as_buffers",
    "bottlenecks",
    "bottlenecks_of",
    "down_sites",
]

SCALE = 0.1
"""Factor on a branch, as in Aper, EASE, TUNA and MOS."""
_TENSORS = ("down", "down_bias", "up", "up_bias")
"""Names of the tensors of a set."""


class AdapterSet(nn.Module):
    """One bottleneck per block; a new set changes nothing, because ``up`` is zero.

    Args:
        num_blocks: Number of blocks.
        dim: Width of the backbone.
        bottleneck: Inner width r.

    Attributes:
        DROPOUT: Dropout between the layers of a branch in training, as in Aper, EASE, TUNA and MOS.
        down: ``[num_blocks, r, dim]``, drawn from U(-1/sqrt(dim), 1/sqrt(dim)); its last axis multiplies the
            stream after attention.
        down_bias: ``[num_blocks, r]``.
        up: ``[num_blocks, dim, r]``; its last axis multiplies the inner activations.
        up_bias: ``[num_blocks, dim]``.
    """

    DROPOUT: ClassVar[float] = 0.1

    def __init__(self, num_blocks: int, dim: int, bottleneck: int) -> None:
        super().__init__()
        bound = dim**-0.5  # torch's for a linear layer of this width
        self.down = nn.Parameter(torch.empty(num_blocks, bottleneck, dim).uniform_(-bound, bound))
        self.down_bias = nn.Parameter(torch.zeros(num_blocks, bottleneck))
        self.up = nn.Parameter(torch.zeros(num_blocks, dim, bottleneck))
        self.up_bias = nn.Parameter(torch.zeros(num_blocks, dim))

    def as_buffers(self, *, zero: bool = False) -> nn.Module:
        """Return a module with the form of the set that is never trained: its tensors are buffers.

        Args:
            zero: Whether all values are zero instead: the module then changes nothing and has no state.
        """
        module = nn.Module()
        for name, value in self.named_parameters():
            buffer = value.detach().clone()
            if zero:
                buffer.zero_()
            # zeros need no place in a checkpoint
            module.register_buffer(name, buffer, persistent=not zero)
        return module

    def down_sites(self) -> list[Site]:
        """Return the sites of every block's down-projection, which multiplies the stream after attention."""
        return [
            Site(
                name=f"blocks.{block}.adapter_down",
                parameter=self.down,
                index=(block,),
                activation=Tap(block=block, kind="block_mid"),
            )
            for block in range(len(self.down))
        ]


# names that methods made with 0.2.0 import
as_buffers = AdapterSet.as_buffers


def down_sites(adapters: AdapterSet, num_blocks: int) -> list[Site]:
    """Return the sites of the first ``num_blocks`` blocks' down-projections, as ``adapters.down_sites``."""
    return adapters.down_sites()[:num_blocks]


def bottlenecks(
    routing: Routing, num_blocks: int, *, scale: float = SCALE, dropout: float = 0.0
) -> list[Bottleneck]:
    """Return the branch of every block for the chosen sets.

    Args:
        routing: Over :class:`AdapterSet` s, with a choice.
        num_blocks: Number of blocks.
        scale: Factor on a branch.
        dropout: Dropout between the layers of a branch.
    """

    def chosen(name: str) -> Tensor:
        """Return one of a set's tensors by its name, of the chosen set or of the set of each sample."""
        return routing.select(lambda item: cast(Tensor, getattr(item, name)))

    return bottlenecks_of({name: chosen(name) for name in _TENSORS}, num_blocks, scale=scale, dropout=dropout)


def bottlenecks_of(
    tensors: Mapping[str, Tensor], num_blocks: int, *, scale: float = SCALE, dropout: float = 0.0
) -> list[Bottleneck]:
    """Return the branch beside the MLP of every block from the tensors of a set.

    Args:
        tensors: Those of an :class:`AdapterSet` by name, each ``[num_blocks, ...]``, or
            ``[B, num_blocks, ...]`` if every sample has its own.
        num_blocks: Number of blocks.
        scale: Factor on a branch.
        dropout: Dropout between the layers of a branch.
    """
    # unbind cuts all blocks apart at once: the gradient of ``tensor[block]`` would be a tensor of all blocks
    # (axes count from the end, because a choice per sample puts a batch axis before that of the blocks)
    by_block = {
        "down": in_product_dtype(tensors["down"]).unbind(-3),
        "down_bias": tensors["down_bias"].unbind(-2),
        "up": in_product_dtype(tensors["up"]).unbind(-3),
        "up_bias": tensors["up_bias"].unbind(-2),
    }
    branches = []
    for block in range(num_blocks):
        tensors_of_block = {name: cut[block] for name, cut in by_block.items()}
        branches.append(Bottleneck(**tensors_of_block, scale=scale, dropout=dropout))
    return branches


class AdapterBaseline(Baseline):
    """A baseline whose sets are adapters at all blocks.

    With the scope ``EACH`` every live set computes features of every image. A subclass adds phases and the
    classifier.
    """

    scope = EACH

    def __init__(self, config: AdapterSetOptions, context: BuildContext) -> None:
        super().__init__(context)
        context.backbone.require("adapters")
        self.options = config

    def new_set(self, source: nn.Module | None) -> AdapterSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet."""
        backbone = self.context.backbone
        adapters = AdapterSet(backbone.depth, backbone.dim, self.options.bottleneck).to(self.context.device)
        if source is not None:
            adapters.load_state_dict(source.state_dict())
        return adapters

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if new sets start from it, None if they start at random."""
        if self.options.init_from == "previous":
            return pool.newest
        return None

    @property
    def takes_copies(self) -> bool:
        """True: each sample gets its own set."""
        return True

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the adapted network, ``[B, dim]``."""
        return self._adapted(batch, routing, 0.0)

    def training_features(self, batch: Batch, context: TaskContext) -> Tensor:
        """Return features under the task's set, with dropout in its adapters."""
        return self._adapted(batch, context.pool.force(context.set_id), AdapterSet.DROPOUT)

    def trained(self, context: TaskContext) -> tuple[nn.Parameter, ...]:
        """Return the parameters of its set that a task trains.

        Constraints protect old tasks at sites, by projecting updates of ``down`` and ``up``. A bias has no
        site: each change of it changes the outputs for old tasks' images. A reused set therefore keeps its
        biases, unless the options leave all of it free.
        """
        adapters = cast(AdapterSet, context.parameters)
        if context.grew or self.options.up_on_reuse == "free":
            return tuple(adapters.parameters())
        if self.options.up_on_reuse == "freeze":
            return (adapters.down,)
        return (adapters.down, adapters.up)  # "project": the constraint protects both

    def adapters_phase(
        self,
        groups: Sequence[ParameterGroup],
        step: Callable[[Batch], StepOutput],
        adjust: Callable[[], None] | None = None,
    ) -> TrainingPhase:
        """Return the phase that trains a task's set, by SGD with momentum 0.9 and half a cosine.

        Args:
            groups: The trained parameters with their learning rates.
            step: Returns the loss of a batch.
            adjust: Called after every optimizer step.
        """
        return TrainingPhase(
            name="adapters",
            groups=tuple(groups),
            step=step,
            epochs=self.options.epochs,
            batch_size=self.options.batch_size,
            optimizer="sgd",
            momentum=0.9,
            schedule=cosine(),
            host=True,
            adjust=adjust,
        )

    def group(self, parameters: Sequence[nn.Parameter], factor: float = 1.0) -> ParameterGroup:
        """Return a group with the options' weight decay and ``factor`` times their learning rate."""
        options = self.options
        return ParameterGroup(
            parameters=tuple(parameters), lr=factor * options.lr, weight_decay=options.weight_decay
        )

    def _adapted(self, batch: Batch, routing: Routing, dropout: float) -> Tensor:
        return self._through(batch, bottlenecks(routing, self.context.backbone.depth, dropout=dropout))

    def _through(self, batch: Batch, branches: Sequence[Bottleneck]) -> Tensor:
        """Return features ``[B, dim]`` of the network with one branch at each block."""
        injection = AdapterInjection(dict(enumerate(branches)))
        return self.context.backbone.features(batch.images, (injection,))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return every block's down-projection, and its up-projection if the options protect it.

        An up-projection is as wide as the bottleneck, so its angles are not comparable with those of the
        down-projections: it is not measured, and no soft constraint acts on it.
        """
        adapters = cast(AdapterSet, parameters)
        blocks = range(self.context.backbone.depth)
        sites = adapters.down_sites()
        if self.options.up_on_reuse != "project":
            return sites  # they are frozen, or deliberately free
        for block in blocks:
            up_site = Site(
                name=f"blocks.{block}.adapter_up",
                parameter=adapters.up,
                index=(block,),
                activation=Tap(block=block, kind="published"),
                measured=False,
                soft=False,
            )
            sites.append(up_site)
        return sites
