"""Building block: sets of low-rank updates of the query, key and value projections (LoRA).

The weight of a target grows by ``scale * up @ down``: ``down`` projects the input of the block's fused qkv to
a few numbers, ``up`` expands them. peft and InfLoRA's code call ``down`` A and ``up`` B, the InfLoRA paper
the other way round. Nothing is ever merged into the backbone, so that a set can still be trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lw2g.blocks.merging import interpolate
from lw2g.blocks.options import LowRankOptions, UpOnReuse
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ParameterGroup
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.site import Activation, Site
from lw2g.vit.low_rank import LowRank, LowRankInjection, Update, UpdateTarget
from lw2g.vit.taps import Tap

__all__ = [
    "Factors",
    "LowRankSet",
    "LowRankSets",
    "chosen_factors",
    "down_sites",
    "factor_sites",
    "inject_factors",
    "summed_factors",
    "trained_factors",
    "up_sites",
]


class Factors(NamedTuple):
    """A pair of stacked low-rank factors, down first; a plain tuple ``(down, up)`` will do.

    Attributes:
        down: Applied first, ``[..., num_blocks, num_targets or 1, rank, dim]``.
        up: Applied second, ``[..., num_blocks, num_targets, dim, rank]``.
    """

    down: Tensor
    up: Tensor


class LowRankSet(nn.Module):
    """Low-rank updates of some targets at some blocks; they change nothing at first, because ``up`` is zero.

    Args:
        num_blocks: Number of blocks that are updated.
        num_targets: Number of targets (of q, k, v) per block.
        rank: Rank of an update.
        dim: Width of the backbone.
        bound: ``down`` is drawn from U(-bound, bound).
        shared_down: Whether the targets of a block share one ``down``.

    Attributes:
        down: ``[num_blocks, num_targets or 1, rank, dim]``; its last axis multiplies the input of qkv.
        up: ``[num_blocks, num_targets, dim, rank]``; its last axis multiplies ``z = down x``.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        num_targets: int,
        rank: int,
        dim: int,
        bound: float,
        shared_down: bool = False,
    ) -> None:
        super().__init__()
        num_downs = 1 if shared_down else num_targets
        self.down = nn.Parameter(torch.empty(num_blocks, num_downs, rank, dim).uniform_(-bound, bound))
        self.up = nn.Parameter(torch.zeros(num_blocks, num_targets, dim, rank))

    def copy_from(self, source: nn.Module | None) -> LowRankSet:
        """Copy the values of a set of the same shape (None: keep one's own), and return the set itself."""
        if source is not None:
            self.load_state_dict(source.state_dict())
        return self

    def merge(self, start: Mapping[str, Tensor], weight: float) -> float:
        """Merge the products of the factors (:func:`~lw2g.blocks.merging.merge_set`)."""
        return interpolate(self, start, weight, [(self.down, self.up)])

    def increments(self) -> Tensor:
        """Return the dense increments ``up @ down``, ``[num_blocks, num_targets, dim, dim]`` float32."""
        # sums over many sets are made of them: in bf16 their errors would add up
        with torch.autocast(self.up.device.type, enabled=False):
            return self.up @ self.down


def chosen_factors(routing: Routing) -> Factors:
    """Return the factors of the chosen sets; a choice per sample adds a leading batch axis.

    Args:
        routing: Over :class:`LowRankSet` s, with a choice.
    """
    return Factors(
        down=routing.select(lambda item: cast(LowRankSet, item).down),
        up=routing.select(lambda item: cast(LowRankSet, item).up),
    )


def summed_factors(sets: Sequence[nn.Module], weights: Tensor | None = None) -> tuple[Factors, ...]:
    """Return factors whose products add up to the sum over all sets, by stacking along the rank.

    Trained sets are stacked separately from frozen ones, so that autograd skips the frozen ones.

    Args:
        sets: The sets.
        weights: Factor on each product, ``[sets, num_blocks, num_targets]``; 1 by default.
    """
    owned = [cast(LowRankSet, item) for item in sets]
    frozen: list[Factors] = []
    trained: list[Factors] = []
    for number, item in enumerate(owned):
        up: Tensor = item.up
        if weights is not None:
            up = weights[number, :, :, None, None] * up
        is_trained = item.down.requires_grad or item.up.requires_grad
        group = trained if is_trained else frozen
        group.append(Factors(item.down, up))
    summed = []
    for group in (frozen, trained):
        if group:
            down = _joined([down for down, _ in group], dim=-2)
            summed.append(Factors(down, _joined([up for _, up in group], dim=-1)))
    return tuple(summed)


def _joined(factors: Sequence[Tensor], dim: int) -> Tensor:
    if len(factors) == 1:
        # the factors are not copied, so that a merged weight is found again
        return factors[0]
    return torch.cat(list(factors), dim=dim)


def inject_factors(
    blocks: Sequence[int],
    targets: Sequence[UpdateTarget],
    factors: Sequence[tuple[Tensor, Tensor]],
    scale: float = 1.0,
    dense: Tensor | None = None,
) -> LowRankInjection:
    """Return the injection of the sum of all products ``up @ down``.

    Args:
        blocks: The blocks, in the order of the factors' block axis.
        targets: The targets, in the order of their target axis.
        factors: Pairs ``(down, up)``, in this order (:class:`Factors`): ``down [..., num_blocks, num_targets,
            rank, dim]`` and ``up [..., num_blocks, num_targets, dim, rank]``, with a leading batch axis where
            each sample has its own. A ``down`` with a target axis of length 1 serves all targets.
        scale: Factor on every product and on ``dense``.
        dense: Increments ``[num_blocks, num_targets, dim, dim]`` to add to the products.

    Raises:
        ValueError: A pair has other axes, as in the order ``(up, down)``; widths are compared with the
            backbone's when it runs.
    """
    for down, up in factors:
        _require_axes(down, up, len(blocks), len(targets))

    def update(pair: tuple[Tensor, Tensor], block: int, target: int) -> LowRank:
        """Return the factors of one target of a block, by their places, ``[rank, dim]``, ``[dim, rank]``."""
        down, up = (part[..., block, :, :, :] for part in pair)
        # the last one serves all targets where they share it
        own_down = min(target, down.shape[-3] - 1)
        return LowRank(down=down[..., own_down, :, :], up=up[..., target, :, :])

    updates: dict[int, dict[UpdateTarget, list[Update]]] = {}
    for position, block in enumerate(blocks):
        updates[block] = {}
        for number, target in enumerate(targets):
            summands: list[Update] = [update(pair, position, number) for pair in factors]
            if dense is not None:
                summands.append(dense[position, number])
            updates[block][target] = summands
    return LowRankInjection(updates, scale=scale)


def _require_axes(down: Tensor, up: Tensor, blocks: int, targets: int) -> None:
    """Refuse a pair of factors whose axes of blocks, targets or rank do not fit.

    Raises:
        ValueError: They do not.
    """
    expected = f"(down [.., {blocks}, {targets} or 1, rank, dim], up [.., {blocks}, {targets}, dim, rank])"
    got = f"expected factors {expected} but got ({list(down.shape)}, {list(up.shape)})"
    if min(down.ndim, up.ndim) < 4 or down.shape[-2] != up.shape[-1]:
        raise ValueError(got)
    if (down.shape[-4], up.shape[-4], up.shape[-3]) != (blocks, blocks, targets):
        raise ValueError(got)
    if down.shape[-3] not in (1, targets):
        raise ValueError(got)


def down_sites(parameters: nn.Module, blocks: Sequence[int]) -> tuple[Site, ...]:
    """Return one site per block: the down factors of all its targets, which multiply the input of qkv."""
    down = cast(LowRankSet, parameters).down
    return tuple(
        Site(
            name=f"blocks.{block}.down",
            parameter=down,
            index=(position,),
            activation=Tap(block=block, kind="attn_in"),
        )
        for position, block in enumerate(blocks)
    )


def up_sites(
    parameters: nn.Module, blocks: Sequence[int], targets: Sequence[UpdateTarget]
) -> tuple[Site, ...]:
    """Return one site per block and target: the up factor, which multiplies ``z = down x``.

    Its space is the whole image of the input's space: ``up down x`` stays the same for every x in that space
    only if both factors are projected. The site is as wide as the rank, so its angles are not comparable with
    those of the down factor: it is not measured, and no soft constraint acts on it.
    """
    updates = cast(LowRankSet, parameters)

    def site(position: int, place: int) -> Site:
        """Return the site of one update's ``up``, whose activation is what ``down`` of the update gives."""
        return Site(
            name=f"blocks.{blocks[position]}.up_{targets[place]}",
            parameter=updates.up,
            index=(position, place),
            activation=Activation(
                tap=Tap(block=blocks[position], kind="attn_in"), map=lambda: updates.down[position, place]
            ),
            measured=False,
            soft=False,
        )

    sites = []
    for position in range(len(blocks)):
        for place in range(len(targets)):
            sites.append(site(position, place))
    return tuple(sites)


def factor_sites(
    parameters: nn.Module, blocks: Sequence[int], targets: Sequence[UpdateTarget], up_on_reuse: UpOnReuse
) -> tuple[Site, ...]:
    """Return the sites of a set whose factors are both trained; a free up factor has none."""
    down = down_sites(parameters, blocks)
    if up_on_reuse == "free":
        return down
    return (*down, *up_sites(parameters, blocks, targets))


def trained_factors(context: TaskContext, up_on_reuse: UpOnReuse) -> tuple[nn.Parameter, ...]:
    """Return the factors of its set that a task trains, for methods that train both."""
    updates = cast(LowRankSet, context.parameters)
    # a new set trains both: up is zero at first, and down would get no gradient
    if up_on_reuse == "freeze" and not context.grew:
        return (updates.down,)
    return (updates.down, updates.up)


class LowRankSets:
    """What methods share whose sets are low-rank updates: how one is made, injected and trained.

    A method has one as an attribute, and its own methods of the contract say what they take from here.

    Args:
        options: Those of the method.
        context: What is known before the first task.
        scale: Factor on every update.
        bound: Bound of a new down factor; None for ``1 / sqrt(dim)``, as torch initialises linear layers.
        set_class: The class of the sets.
        shared_down: Whether the targets of a block share one down factor.

    Attributes:
        blocks: The blocks that are updated.
        targets: The projections that are updated there.

    Raises:
        ConfigError: The backbone takes no updates there.
    """

    def __init__(
        self,
        options: LowRankOptions,
        context: BuildContext,
        *,
        scale: float = 1.0,
        bound: float | None = None,
        set_class: type[LowRankSet] = LowRankSet,
        shared_down: bool = False,
    ) -> None:
        self.options = options
        self.dim = context.backbone.dim
        self.device = context.device
        self.scale = scale
        if bound is None:
            bound = float(self.dim**-0.5)
        self.bound = bound
        self.set_class = set_class
        self.shared_down = shared_down
        blocks = options.blocks or tuple(range(context.backbone.depth))
        self.blocks = context.backbone.check_blocks(blocks, "baseline.blocks", "low-rank updates")
        self.targets = options.targets

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet."""
        return self.of_rank(self.options.rank).to(self.device).copy_from(source)

    def of_rank(self, rank: int) -> LowRankSet:
        """Return a new set of another rank than the options', which changes nothing yet, on the CPU.

        It is drawn there, so that a method may draw more of it before it moves: a device has random numbers
        of its own.
        """
        return self.set_class(
            num_blocks=len(self.blocks),
            num_targets=len(self.targets),
            rank=rank,
            dim=self.dim,
            bound=self.bound,
            shared_down=self.shared_down,
        )

    def summed(
        self, routing: Routing, *, weights: Tensor | None = None, dense: Tensor | None = None
    ) -> LowRankInjection:
        """Return the sum of the updates of all sets, whatever the routing chooses.

        Args:
            routing: Over the sets.
            weights: Factor on the product of each set, ``[sets, num_blocks, num_targets]``; 1 by default.
            dense: Increments ``[num_blocks, num_targets, dim, dim]`` to add.
        """
        factors = summed_factors(routing.sets, weights)
        return inject_factors(self.blocks, self.targets, factors, self.scale, dense)

    def chosen(self, routing: Routing) -> LowRankInjection:
        """Return the updates of the chosen set, or of each sample's."""
        return inject_factors(self.blocks, self.targets, (chosen_factors(routing),), self.scale)

    def groups(
        self, factors: Sequence[nn.Parameter], head: nn.Module, lr: float
    ) -> tuple[ParameterGroup, ...]:
        """Return factors of a set at learning rate ``lr`` and the head at the options' multiple of it."""
        return (
            ParameterGroup(parameters=tuple(factors), lr=lr),
            ParameterGroup(parameters=tuple(head.parameters()), lr=lr * self.options.head_factor),
        )

    def trained(self, context: TaskContext, up_on_reuse: UpOnReuse) -> tuple[nn.Parameter, ...]:
        """Return the factors of its set that a task trains, for methods that train both."""
        return trained_factors(context, up_on_reuse)

    def sites(self, parameters: nn.Module, up_on_reuse: UpOnReuse) -> tuple[Site, ...]:
        """Return the sites of a set whose factors are both trained; a free up factor has none."""
        return factor_sites(parameters, self.blocks, self.targets, up_on_reuse)
