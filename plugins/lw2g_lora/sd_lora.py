"""SD-LoRA: low-rank updates that stay as directions; every task trains their magnitudes further.

Wu et al., "SD-LoRA: Scalable Decoupled Low-Rank Adaptation for Class Incremental Learning", ICLR 2025.
One magnitude per set, shared by all blocks and projections, weighs its update; the sum of all is the model of
every task, and nothing is chosen. RR (``reduced_ranks``) makes late sets smaller; KD (``absorb``) drops a set
whose update the old ones nearly span.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lw2g.plugin import (
    POOL,
    Batch,
    BuildContext,
    ComputePhase,
    HeadedBaseline,
    LowRankInjection,
    LowRankSet,
    LowRankSets,
    ParameterGroup,
    Phase,
    Pool,
    Routing,
    Site,
    TaskContext,
    TrainingPhase,
    milestones,
)
from lw2g_lora.options import SdLoraConfig

__all__ = ["RankedSet", "SdLora", "inner_products"]

_NOTHING = 1e-12
"""Least norm, so that a set whose up factor is zero adds zero instead of NaN."""


class RankedSet(LowRankSet):
    """Low-rank updates that take the rank of a state they are loaded with."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of them."""
        return not self.up.numel()

    def drop(self) -> None:
        """Become updates of rank 0."""
        self.down = nn.Parameter(self.down.detach()[..., :0, :].clone(), requires_grad=False)
        self.up = nn.Parameter(self.up.detach()[..., :0].clone(), requires_grad=False)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *others: Any) -> None:
        for name in ("down", "up"):
            stored = state_dict.get(prefix + name)
            own = getattr(self, name)
            if stored is not None and stored.shape != own.shape:
                setattr(self, name, nn.Parameter(torch.empty(stored.shape, device=own.device)))
        super()._load_from_state_dict(state_dict, prefix, *others)


def inner_products(one: LowRankSet, other: LowRankSet) -> Tensor:
    """Return ``<U_i D_i, U_j D_j>`` of each block and target in float64, without forming a product.

    Returns:
        ``[num_blocks, num_targets]``.
    """
    # tr(D_i' U_i' U_j D_j): two products of size rank instead of one of size dim
    up = one.up.double().mT @ other.up.double()
    down = one.down.double() @ other.down.double().mT
    return (up * down).sum(dim=(-2, -1))


class SdLora(HeadedBaseline):
    """Every forward sums the updates of all sets, each times its magnitude.

    The magnitudes are shared: they move with every task, and old features with them, whatever is protected. A
    reused set is trained further. Published is a set per task; an absorbed one stays, with rank 0.

    Attributes:
        magnitudes: ``[num_tasks]``, one for each set by its id.
        finished: Which sets enter divided by their factors' norms where new ones do not, ``[num_tasks]``.
        offsets: What absorbed sets have added to the magnitudes, ``[num_tasks, num_blocks, num_targets]``.
    """

    scope = POOL

    finished: Tensor
    offsets: Tensor

    def __init__(self, config: SdLoraConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context, set_class=RankedSet)
        self.magnitudes = nn.Parameter(torch.full((context.num_tasks,), self.start))
        self.register_buffer("finished", torch.zeros(context.num_tasks, dtype=torch.bool))
        places = (context.num_tasks, len(self.updates.blocks), len(self.updates.targets))
        self.register_buffer("offsets", torch.zeros(places))
        self.to(context.device)

    @property
    def start(self) -> float:
        """What a magnitude begins with."""
        if self.config.magnitudes == "learned":
            return self.config.magnitude
        return 1.0  # "ones": they stay so

    def new_head(self) -> nn.Linear:
        """Return the classifier as released: uniform within ``sqrt(3 / dim)``, bias zero."""
        head = nn.Linear(self.context.backbone.dim, self.context.num_classes)
        nn.init.kaiming_uniform_(head.weight, nonlinearity="linear")
        nn.init.zeros_(head.bias)
        return head

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the live sets: their number determines the rank of the next one."""
        if not self.config.reduced_ranks or not len(pool):
            return None
        return nn.ModuleList(pool.sets)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a new set, of a lower rank where ``source`` holds as many sets as the options say."""
        config = self.config
        live = 0
        if source is not None:
            live = len(cast(nn.ModuleList, source))
        rank = config.rank
        # not strict: without reduced ranks none of the numbers counts
        for after, reduced in zip(config.reduce_after, config.reduced_ranks, strict=False):
            if live >= after:
                rank = reduced
        new = self.updates.of_rank(rank)
        if config.new_direction == "normalised":  # a zero product has no direction
            nn.init.uniform_(new.up, -self.updates.bound, self.updates.bound)
        return new.to(self.context.device)

    def weights(self, sets: Sequence[nn.Module]) -> Tensor:
        """Return the factor on the product of each set, block and target, ``[sets, blocks, targets]``."""
        count = len(sets)
        return (self.magnitudes[:count, None, None] + self.offsets[:count]) / self.divisors(sets)

    def divisors(self, sets: Sequence[nn.Module]) -> Tensor:
        """Return what the product of each set is divided by: the norms of its factors, or 1.

        The paper divides all sets, the release (``boundary`` reset) those that a task has finished, and
        otherwise none is divided.
        """
        all_divided = self.config.new_direction == "normalised"
        if not (all_divided or self.config.boundary == "reset"):
            return torch.ones_like(self.offsets[: len(sets)])
        products = []
        for own_set in sets:
            updates = cast(LowRankSet, own_set)
            # |U| |D|, not |U D|: directions are shorter than 1, by about the root of the rank
            products.append(updates.down.norm(dim=(-2, -1)) * updates.up.norm(dim=(-2, -1)))
        norms = torch.stack(products).clamp(min=_NOTHING)
        if all_divided:
            return norms
        # the set that a task trains is no direction yet
        return torch.where(self.finished[: len(sets), None, None], norms, torch.ones_like(norms))

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the weighted updates of all sets."""
        return self.updates.summed(routing, weights=self.weights(routing.sets))

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them; none of an empty set."""
        if cast(RankedSet, parameters).is_empty:
            return ()
        return self.updates.sites(parameters, self.config.up_on_reuse)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the boundary between tasks, the training, and the absorption of a set that adds little."""
        config = self.config
        later = context.task.index > 0
        lr = config.lr
        if later and config.later_lr is not None:
            lr = config.later_lr
        trained = self.updates.trained(context, config.up_on_reuse)
        factors, head = self.updates.groups(trained, self.head, lr)
        groups = []
        if config.directions == "all" or not later:  # "first": later tasks train magnitudes and head alone
            groups.append(factors)
        if config.magnitudes == "learned":
            # magnitudes of old sets are trained, too: later tasks weigh old directions anew
            groups.append(ParameterGroup(parameters=(self.magnitudes,), lr=lr))
        groups.append(head)
        train = TrainingPhase(
            name="lora",
            groups=tuple(groups),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer=config.optimizer,
            momentum=0.9,
            schedule=milestones(config.milestones, config.drop),
            host=True,
        )
        start = ComputePhase(name="lora-start", run=lambda progress: self.begin(context))
        absorb = ComputePhase(name="lora-absorb", run=lambda progress: self.absorb(context))
        if config.absorb is not None and context.grew and later:
            return self.with_head(context, start, train, absorb)
        return self.with_head(context, start, train)

    @torch.no_grad()
    def begin(self, context: TaskContext) -> None:
        """Mark all sets but the task's as finished; reset the magnitudes where the options say so."""
        self.finished.fill_(False)
        self.finished[list(context.pool.ids)] = True
        self.finished[context.set_id] = False
        # the release forgets here how long the last set had become: its function jumps between tasks
        if self.config.boundary == "reset":
            self.magnitudes.fill_(self.start)

    @torch.no_grad()
    def absorb(self, context: TaskContext) -> None:
        """Give a new set's update to the old ones' magnitudes if they span nearly all of it."""
        coefficients, share_left = self.residual(context)
        if share_left is None or float(share_left.mean()) >= cast(float, self.config.absorb):
            return
        sets = context.pool.sets
        old = [set_id for set_id in context.pool.ids if set_id != context.set_id]
        weights = self.weights(sets)
        divisors = self.divisors(sets)
        # weight x product = sum of (weight x coefficient) x old products, and an old one enters divided
        self.offsets[old] += weights[context.set_id] * coefficients.to(weights) * divisors[old]
        cast(RankedSet, context.parameters).drop()
        context.pool.touch(context.set_id)

    def residual(self, context: TaskContext) -> tuple[Tensor, Tensor | None]:
        """Return the best combination of the old sets' products for the new one's, and the share it leaves.

        Returns:
            Coefficients ``[old sets, num_blocks, num_targets]``, and the share of the squared norm outside
            their span, ``[num_blocks, num_targets]``; None where the new product is zero.
        """
        updates = cast(LowRankSet, context.parameters)
        old = []
        for set_id in context.pool.ids:
            if set_id != context.set_id:
                old.append(cast(LowRankSet, context.pool[set_id]))
        columns = []
        for one in old:
            products = [inner_products(one, other) for other in old]
            columns.append(torch.stack(products, dim=-1))
        gram = torch.stack(columns, dim=-1)  # [blocks, targets, old sets, old sets]
        with_own = torch.stack([inner_products(old_set, updates) for old_set in old], dim=-1)
        # least squares by the normal equations; pinv, as an absorbed set is zero and makes them singular
        coefficients = (torch.linalg.pinv(gram, hermitian=True) @ with_own[..., None])[..., 0]
        size = inner_products(updates, updates)
        share_left = None
        if bool((size > 0).all()):
            # a projection c has |c|^2 = <c, own>
            share_left = 1 - (coefficients * with_own).sum(-1) / size
        return coefficients.permute(2, 0, 1), share_left
