"""InfLoRA: the down factor is designed from a task's inputs, off those of old tasks; only up is trained.

Liang & Li, "InfLoRA: Interference-Free Low-Rank Adaptation for Continual Learning", CVPR 2024. Training up
alone equals fine-tuning the weight inside the row space of down. The default blocks are the five lowest
("InfLoRA-b5"); no blocks named means all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from lw2g.plugin import (
    POOL,
    Activation,
    Batch,
    BuildContext,
    ComputePhase,
    ConfigError,
    HeadedBaseline,
    LowRankInjection,
    LowRankSet,
    LowRankSets,
    Phase,
    Routing,
    SecondMoment,
    Site,
    Subspace,
    Tap,
    TaskContext,
    TrainingPhase,
    coda_cosine,
    stepped,
)
from lw2g_lora.options import InfLoraConfig

__all__ = ["DesignedSet", "InfLora", "design_down", "memory_energy"]

Progress = Callable[[int, int], None]

_NORM = 3**-0.5
"""Norm of a designed row, as released: about that of the random start it replaces."""

_NOTHING = 1e-10
"""Directions whose share of the leading singular value is below this are rounding."""


def memory_energy(energy: float, task: int, num_tasks: int) -> float:
    """Return the energy the memory holds after a task, rising from ``energy`` towards 1.

    >>> [round(memory_energy(0.95, task, 10), 3) for task in (0, 1, 9)]
    [0.95, 0.955, 0.995]
    """
    return energy + (1 - energy) * task / num_tasks


def design_down(
    moment: SecondMoment, memory: Subspace, rank: int, design: Literal["pcp", "pc"] = "pcp"
) -> Tensor:
    """Return the down factor for a task: its leading input directions off the memory, rows of norm 1/sqrt(3).

    Args:
        moment: Second moment C of the task's inputs.
        memory: Span of old tasks' inputs; P is the projection off it.
        rank: Number of rows; those for which there is no direction left are zero.
        design: Left singular vectors of P C P, or of P C.

    Returns:
        ``[rank, dim]`` in float64.
    """
    matrix = memory.off(moment.matrix[0]).mT  # C and P are symmetric: rows of (C P)^T are those of P C
    if design == "pcp":
        matrix = memory.off(matrix)
    left, values, _ = torch.linalg.svd(matrix)
    # float64: P C P of a nearly covered task is a small difference of large numbers;
    # relative to C itself: what is left of a covered task is rounding throughout
    kept = values[:rank] > _NOTHING * max(moment.trace(), torch.finfo(values.dtype).tiny)
    rows: Tensor = left[:, :rank].mT * kept[:, None]
    return _NORM * rows


class DesignedSet(LowRankSet):
    """Low-rank updates whose down factor is designed, and may be designed again when the set is reused.

    Attributes:
        designs: How often down was designed; ``z = down x`` of different designs have nothing in common.
    """

    designs: Tensor

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.register_buffer("designs", torch.zeros((), dtype=torch.long))


def _down_factor(parameters: DesignedSet, position: int) -> Tensor:
    """Return the down factor of the ``position``-th block, ``[rank, dim]``, as it is when somebody asks."""
    return parameters.down[position, 0]


class InfLora(HeadedBaseline):
    """All sets are summed in every forward; a global memory of old inputs grows with every task.

    Keys and values of a block share the designed down factor. A reused set keeps it and trains up on, in the
    complement of what its old tasks activate behind it: a space of ``rank`` dimensions, cut by energy there,
    which closes the set once it is full. With ``reuse = "redesign"`` what a reused set has learned is folded
    into one dense increment, and the set starts off the memory like a new one.

    Of the memory and its complement the one with fewer dimensions is kept (DualGPM).
    """

    scope = POOL
    learning_only = ("basis", "ranks")

    basis: Tensor
    ranks: Tensor
    folded: Tensor | None

    def __init__(self, config: InfLoraConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        # a down factor is zero until it is designed
        self.updates = LowRankSets(config, context, bound=0.0, set_class=DesignedSet, shared_down=True)
        if config.rank > context.backbone.dim:
            raise ConfigError(
                f"baseline.rank: {config.rank!r} exceeds the backbone's width {context.backbone.dim}",
                "use a smaller one",
            )
        count = len(self.updates.blocks)
        dim = context.backbone.dim
        # at full size, so that the state dict keeps its shapes: the memory's columns up to rank dim / 2,
        # those of its complement beyond
        self.register_buffer("basis", torch.zeros(count, dim, dim // 2, dtype=torch.float64))
        self.register_buffer("ranks", torch.zeros(count, dtype=torch.long))
        # what a set added to each layer before it was designed again
        increments = None
        if config.reuse == "redesign":
            increments = torch.zeros(count, len(self.updates.targets), dim, dim)
        self.register_buffer("folded", increments)
        self.to(context.device)

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet."""
        return self.updates.new_set(source)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def new_head(self) -> nn.Linear:
        """Return the classifier as torch starts it; masked logits make it one head per task."""
        return nn.Linear(self.context.backbone.dim, self.context.num_classes)

    @property
    def memory(self) -> tuple[Subspace, ...]:
        """The span of all finished tasks' inputs at each block."""
        spaces = []
        for basis, rank in zip(self.basis, self.ranks.tolist(), strict=True):
            dim, num_columns = basis.shape
            if rank <= num_columns:
                spaces.append(Subspace(basis=basis[None, :, :rank], ranks=(rank,)))
                continue
            # beyond half of all dimensions the complement is what is stored (DualGPM)
            left = dim - rank
            spaces.append(Subspace(basis=basis[None, :, :left], ranks=(left,)).complement())
        return tuple(spaces)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the updates of all sets and what has been folded."""
        return self.updates.summed(routing, dense=self.folded)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the up factors of each block, the only trained ones; they multiply ``z = down x``.

        A redesigned set has sites of other names: the space of an older ``z`` says nothing about its own.
        """
        designed = cast(DesignedSet, parameters)
        edition = int(designed.designs)
        suffix = f".design-{edition}" if edition > 1 else ""
        sites = []
        for position, block in enumerate(self.updates.blocks):
            # cut behind the map: z has rank dimensions, and an energy below 1 leaves some of them free
            activation = Activation(
                tap=Tap(block=block, kind="attn_in"),
                map=partial(_down_factor, designed, position),
                cut="map",
            )
            name = f"blocks.{block}.up{suffix}"
            sites.append(Site(name=name, parameter=designed.up, index=(position,), activation=activation))
        return tuple(sites)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return design (of a new set, or of every one), training, and the update of the memory."""
        config = self.config
        updates = cast(LowRankSet, context.parameters)
        train = TrainingPhase(
            name="lora",
            groups=self.updates.groups((updates.up,), self.head, config.lr),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=stepped(coda_cosine, config.stepping),
            host=True,
        )
        design = ComputePhase(name="lora-design", run=lambda progress: self.design(context, progress))
        memory = ComputePhase(name="lora-memory", run=lambda progress: self.remember(context, progress))
        if context.grew or config.reuse == "redesign":
            return self.with_head(context, design, train, memory)
        return self.with_head(context, train, memory)  # "continue": the set keeps its down factor

    @torch.no_grad()
    def design(self, context: TaskContext, progress: Progress) -> None:
        """Design the down factors of the task's set, which changes nothing yet: up is zero, or is folded."""
        updates = cast(DesignedSet, context.parameters)
        # under all earlier updates: the inputs that training will meet
        moments = self.input_moments(context, progress, "lora-design")
        if self.folded is not None:
            self.folded += updates.increments()
            updates.up.zero_()
        updates.designs += 1
        for position, (moment, memory) in enumerate(zip(moments, self.memory, strict=True)):
            down = design_down(moment, memory, self.config.rank, self.config.design)
            updates.down[position, 0] = down.to(updates.down)
        missing = int((updates.down == 0).all(dim=-1).sum())
        if missing:
            warnings.warn(
                f"task {context.task.index + 1}: no direction is left off the memory for {missing} of "
                f"{updates.down.shape[0] * self.config.rank} rows of down factors; they are zero",
                stacklevel=2,
            )

    @torch.no_grad()
    def remember(self, context: TaskContext, progress: Progress) -> None:
        """Extend the memory by the finished task's inputs, with its set active."""
        energy = memory_energy(self.config.memory_energy, context.task.index, self.context.num_tasks)
        # inputs are read anew: with the finished set they differ from those of the design
        moments = self.input_moments(context, progress, "lora-memory")
        for position, (moment, old) in enumerate(zip(moments, self.memory, strict=True)):
            space = self.remembered(old, moment, energy)
            stored = space
            if space.rank > self.basis.shape[2]:  # beyond half the width its complement takes less room
                stored = space.complement()
            self.basis[position] = 0.0
            self.basis[position, :, : stored.rank] = stored.basis[0]
            self.ranks[position] = space.rank

    def remembered(self, old: Subspace, moment: SecondMoment, energy: float) -> Subspace:
        """Return the memory of a block with a share ``energy`` of a task's inputs in it."""
        config = self.config
        power = config.memory_power
        if not old.is_empty:
            return old.extend(moment, energy, power=power, residual=config.memory_residual)
        space = Subspace.build(moment, energy, power=power, rule=config.memory_rule)
        if space.is_empty:
            # "below" may keep nothing; the release keeps one
            return Subspace.build(moment, energy, power=power)
        return space

    def input_moments(self, context: TaskContext, progress: Progress, purpose: str) -> list[SecondMoment]:
        """Return the second moments of the inputs of qkv at each block, over all tokens of the task.

        Args:
            context: The task.
            progress: Called with the number of images done and their total.
            purpose: Seeds the augmentation, if there is one.
        """
        backbone = self.context.backbone
        taps = [Tap(block=block, kind="attn_in") for block in self.updates.blocks]
        injection = self.injection(context.pool.route(None))

        moments = {tap: SecondMoment(backbone.dim, device=context.device) for tap in taps}
        done = 0
        # 64 a forward: moments are the same for any size, up to rounding
        if self.config.transform == "test":
            images = context.statistics(64)
        else:  # as released, where the memory is of augmented images
            images = context.training_images(64, purpose)
        for batch in images:
            seen = backbone.activations(batch.images, taps, (injection,))
            for tap, moment in moments.items():
                moment.update(seen[tap])
            done += len(batch)
            progress(done, context.task.num_images)
        return list(moments.values())
