"""Building block: sets of prefixes, which are extra keys and values in the attention of some blocks.

A method whose parameter set is a prefix holds :class:`PrefixSets`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from lw2g.blocks.options import PrefixOptions
from lw2g.blocks.schedules import chosen_schedule
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ParameterGroup, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.site import Owner, Site
from lw2g.vit.anatomy import checked_blocks
from lw2g.vit.injection import in_product_dtype
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap

__all__ = [
    "PrefixSet",
    "PrefixSets",
    "check_blocks",
    "chosen_prefixes",
    "inject_prefixes",
    "prefix_sites",
    "reshaped",
]


_QUERY = partial(Tap, kind="query")


class PrefixSet(nn.Module):
    """Prefix keys and values for some blocks, drawn from U(-1, 1).

    Args:
        num_blocks: Number of blocks that get a prefix.
        length: Prefix tokens per block.
        dim: Width of the backbone.

    Attributes:
        key: ``[num_blocks, length, dim]``, in the head-major order of the backbone's fused projection. It
            multiplies the block's queries, and constraints protect it.
        value: ``[num_blocks, length, dim]``.
    """

    def __init__(self, num_blocks: int, length: int, dim: int) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.empty(num_blocks, length, dim).uniform_(-1, 1))
        self.value = nn.Parameter(torch.empty(num_blocks, length, dim).uniform_(-1, 1))

    def copy_from(self, source: nn.Module | None) -> PrefixSet:
        """Copy the values of a set of the same shape (None: keep one's own), and return the set itself."""
        if source is not None:
            self.load_state_dict(source.state_dict())
        return self

    def sites(
        self,
        blocks: Sequence[int],
        owner: Owner = "set",
        *,
        tap: Callable[[int], Tap] = _QUERY,
    ) -> tuple[Site, ...]:
        """Return one site per block: the key half, measured and protected against the block's queries.

        The value half multiplies attention probabilities, which depend on the prefix length, and is no site.

        Args:
            blocks: The blocks, in the order of the set's block axis.
            owner: Whose parameters they are.
            tap: Where to read the queries that meet the keys of a block: ``Backbone.key_tap``, which knows of
                rotated ones.
        """
        return tuple(
            Site(
                name=f"blocks.{block}.prefix_key",
                parameter=self.key,
                index=(position,),
                activation=tap(block),
                owner=owner,
                per_sample=True,  # inject_prefixes accepts a batch axis
            )
            for position, block in enumerate(blocks)
        )


def inject_prefixes(blocks: Sequence[int], key: Tensor, value: Tensor) -> PrefixInjection:
    """Return the injection of stacked prefixes.

    Args:
        blocks: The blocks, in the order of the tensors' block axis.
        key: ``[num_blocks, L, dim]``, or ``[B, num_blocks, L, dim]`` with one per sample.
        value: Of the same shape.
    """
    # cut apart at once: the gradient of a single selection is a tensor of all blocks
    keys, values = (in_product_dtype(half).unbind(-3) for half in (key, value))
    return PrefixInjection(dict(zip(blocks, zip(keys, values, strict=True), strict=True)))


def chosen_prefixes(routing: Routing) -> tuple[Tensor, Tensor]:
    """Return keys and values of the chosen sets, ``[num_blocks, L, dim]`` each.

    Args:
        routing: Over sets that are :class:`PrefixSet`; a choice per sample adds a leading batch axis.
    """
    key = routing.select(lambda item: cast(PrefixSet, item).key)
    return key, routing.select(lambda item: cast(PrefixSet, item).value)


def reshaped(key: Tensor, value: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return prefixes as released ports distribute them, by a reshape in place of a transpose.

    They concatenate the keys and the values of the whole batch, and sample b takes entries 2b and 2b + 1 as
    its key and value: the first half of the batch gets two keys each, the second half two values.

    Args:
        key: ``[num_blocks, L, dim]``, with a leading batch axis for one per sample.
        value: Of the same shape.
        size: Number of samples in the batch.
    """
    if key.ndim == 3:
        key = key.expand(size, *key.shape)
        value = value.expand(size, *value.shape)
    row = torch.cat([key, value])
    return row[0::2], row[1::2]


class PrefixSets:
    """What methods share whose sets are prefixes: how one is made, injected, protected and trained.

    A method has one as an attribute, and its own methods of the contract say what they take from here.

    Args:
        options: Those of the method.
        context: What is known before the first task.

    Attributes:
        blocks: The blocks that get a prefix.

    Raises:
        ConfigError: The backbone takes no prefixes there.
    """

    def __init__(self, options: PrefixOptions, context: BuildContext) -> None:
        self.options = options
        self.backbone = context.backbone
        self.device = context.device
        self.blocks = context.backbone.check_blocks(options.blocks, "baseline.blocks", "prefixes")

    @property
    def takes_copies(self) -> bool:
        """Whether each sample gets its own prefix: released ports mix prefixes across the batch."""
        return self.options.gather == "per-sample"

    def new_set(self, source: nn.Module | None) -> PrefixSet:
        """Return a new prefix set: a copy of ``source``, or U(-1, 1)."""
        prefixes = PrefixSet(len(self.blocks), self.options.length, self.backbone.dim)
        return prefixes.to(self.device).copy_from(source)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set if new sets start from it, None if they start at random."""
        if self.options.init_from == "previous":
            return pool.newest
        return None

    def chosen(self, routing: Routing, size: int) -> PrefixInjection:
        """Return the injection of the chosen sets for a batch of ``size`` samples."""
        key, value = chosen_prefixes(routing)
        return self.inject(key, value, size)

    def inject(self, key: Tensor, value: Tensor, size: int) -> PrefixInjection:
        """Return the injection of a set's prefixes, distributed over samples as the options say."""
        if self.options.gather == "reshaped":
            key, value = reshaped(key, value, size)
        # "per-sample": they are so already
        return inject_prefixes(self.blocks, key, value)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's prefix."""
        return cast(PrefixSet, parameters).sites(self.blocks, tap=self.backbone.key_tap)

    def phase(
        self,
        context: TaskContext,
        step: Callable[[Batch], StepOutput],
        groups: Sequence[ParameterGroup],
    ) -> TrainingPhase:
        """Return the phase that trains a task's set.

        Args:
            context: The task.
            step: Returns the loss of a batch.
            groups: What is trained, at which learning rate.
        """
        return TrainingPhase(
            name="prompts",
            groups=tuple(groups),
            step=step,
            epochs=self.options.epochs,
            batch_size=self.options.batch_size,
            schedule=chosen_schedule(self.options, context.task.index),
            clip_norm=self.options.clip_norm,
            host=True,
        )


# names that methods made with 0.2.0 import
prefix_sites = PrefixSet.sites


def check_blocks(blocks: Sequence[int], depth: int, path: str) -> tuple[int, ...]:
    """Return blocks of a backbone of ``depth``, checked; ``Backbone.check_blocks`` knows the depth itself.

    Raises:
        ConfigError: A block is repeated or lies outside the backbone.
    """
    return checked_blocks(nn.Identity(), depth, blocks, path)
