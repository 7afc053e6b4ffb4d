"""Building block: prefixes that are sums of learned components, weighted by the cosine of key and query.

There is no hard choice of a set: every forward sums over the components of all live sets. CODA-Prompt and
OS-Prompt differ in the source of the query and in whether masks are applied to it. Because of the sum,
training a reused set moves the prefixes of every old task, also of those that never trained it, unless spaces
are built with ``growth.protect = "visible"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, Self, cast

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.options import WeightedPrefixOptions
from lw2g.blocks.schedules import coda_cosine, stepped
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ParameterGroup, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.scope import POOL
from lw2g.interfaces.site import Site
from lw2g.vit.injection import in_product_dtype
from lw2g.vit.prefix import PrefixInjection

__all__ = [
    "ComponentSet",
    "Components",
    "Queries",
    "RowInit",
    "WeightedPrefixBaseline",
    "new_rows",
    "weighted_injection",
]

RowInit = Literal["exact", "official"]
_EPS = 1e-12


def new_rows(old: Tensor, count: int, init: RowInit = "exact") -> Tensor:
    """Return random unit rows that are orthogonal to old ones: float32 ``[count, width]`` on the CPU.

    Args:
        old: The old rows, ``[m, width]``, m >= 0.
        count: Number of new rows.
        init: ``"exact"``: orthonormal, and orthogonal to the span of the old rows; if that span is too large,
            to as many of its directions as possible, those of most energy first. ``"official"``: one
            projection off each earlier row, as released; it gives neither once old rows have been trained
            and are no longer orthogonal to each other.

    Raises:
        ValueError: ``count`` is larger than the width.
    """
    if count > old.shape[1]:
        raise ValueError(f"expected at most {old.shape[1]} rows of that width but got {count}")
    old = old.detach().to("cpu", torch.float64)
    drawn = torch.randn(count, old.shape[1]).double()
    if init == "official":
        for row in drawn:
            unit = functional.normalize(old)
            row = functional.normalize(row - (unit @ row) @ unit, dim=0)
            old = torch.cat([old, row[None]])
        return old[-count:].float()
    # orthogonal to the span of the old rows; singular values below this are rounding
    _, sizes, directions = torch.linalg.svd(old, full_matrices=False)
    least = sizes[:1] * max(old.shape) * torch.finfo(old.dtype).eps
    rank = int((sizes > least).sum())
    basis = directions[: min(rank, old.shape[1] - count)]
    for _ in range(2):  # the second projection removes rounding errors
        drawn = drawn - (drawn @ basis.mT) @ basis
    return cast(Tensor, torch.linalg.qr(drawn.mT).Q.mT.float())


class ComponentSet(nn.Module):
    """One block of components with their keys, for some blocks of the backbone; zeros until :meth:`start`.

    Args:
        num_blocks: Number of blocks that get a prefix.
        components: Components per block.
        length: Prefix vectors per component: half are keys of the attention, half are values.
        dim: Width of the backbone.
        masked: Whether each component has a mask over the query.

    Attributes:
        prefix_key: ``[num_blocks, components, length / 2, dim]``; it multiplies the block's queries, and
            constraints protect it.
        prefix_value: Of the same shape.
        key: Compared with the query, ``[num_blocks, components, dim]``.
        mask: Multiplies the query channel by channel, ``[num_blocks, components, dim]`` or None.
    """

    def __init__(self, *, num_blocks: int, components: int, length: int, dim: int, masked: bool) -> None:
        super().__init__()
        halves = (num_blocks, components, length // 2, dim)
        rows = (num_blocks, components, dim)
        self.prefix_key = nn.Parameter(torch.zeros(halves))
        self.prefix_value = nn.Parameter(torch.zeros(halves))
        self.key = nn.Parameter(torch.zeros(rows))
        self.mask = None
        if masked:
            self.mask = nn.Parameter(torch.zeros(rows))

    def rows(self, position: int) -> tuple[Tensor, ...]:
        """Return the orthogonal rows of a block: components ``[components, length * dim]``, keys, masks."""
        # a component is orthogonal as a whole, key and value half together
        halves = torch.cat([self.prefix_key[position], self.prefix_value[position]], dim=1)
        if self.mask is None:
            return (halves.flatten(1), self.key[position])
        return (halves.flatten(1), self.key[position], self.mask[position])

    @torch.no_grad()
    def start(self, old: Sequence[ComponentSet], init: RowInit = "exact") -> Self:
        """Draw all rows orthogonal to those of the old sets, and return the set itself."""
        count, half, dim = self.prefix_key.shape[1:]
        for position in range(len(self.key)):
            drawn = []
            # components, keys and masks, in this order: each draws from the same generator
            for kind, own in enumerate(self.rows(position)):
                # rows are drawn on the CPU; old sets may be on another device than this one
                kept = [item.rows(position)[kind].cpu() for item in old]
                # an empty start says the width where there is no old set
                drawn.append(new_rows(torch.cat([own[:0].cpu(), *kept]), count, init))
            both = drawn[0].reshape(count, 2 * half, dim)
            self.prefix_key[position] = both[:, :half]
            self.prefix_value[position] = both[:, half:]
            self.key[position] = drawn[1]
            if self.mask is not None:
                self.mask[position] = drawn[2]
        return self


@attrs.frozen(eq=False)
class Queries:
    """Queries of a batch, ready to be compared with the keys of several blocks.

    Attributes:
        unit: Of length one, ``[B, dim]``.
        squares: Of its elements.
    """

    unit: Tensor
    squares: Tensor

    @classmethod
    def of(cls, query: Tensor) -> Queries:
        """Return what is compared of queries ``[B, dim]``, whose length does not matter."""
        unit = functional.normalize(query, dim=-1)
        return cls(in_product_dtype(unit), in_product_dtype(unit.square()))


@attrs.frozen(kw_only=True, eq=False)
class Components:
    """The components of all live sets at some blocks: normalised and cast once for all of them.

    Attributes:
        keys: Of length one and times their masks, ``[M, dim]`` for each block.
        squares: Of the masks, likewise; None without masks.
        prefix_keys: ``[M, length / 2, dim]`` for each block.
        prefix_values: Likewise.
    """

    keys: tuple[Tensor, ...]
    squares: tuple[Tensor, ...] | None
    prefix_keys: tuple[Tensor, ...]
    prefix_values: tuple[Tensor, ...]

    @classmethod
    def of(cls, sets: Sequence[nn.Module]) -> Components:
        """Join the live :class:`ComponentSet` s, at least one."""
        key = functional.normalize(_joined(sets, "key"), dim=-1)
        squares = None
        if cast(ComponentSet, sets[0]).mask is not None:
            mask = _joined(sets, "mask")
            key = mask * key
            squares = in_product_dtype(mask.square()).unbind()
        # cut apart at once: the gradient of a single selection is a tensor of all blocks
        return cls(
            keys=in_product_dtype(key).unbind(),
            squares=squares,
            prefix_keys=in_product_dtype(_joined(sets, "prefix_key")).unbind(),
            prefix_values=in_product_dtype(_joined(sets, "prefix_value")).unbind(),
        )

    def weights(self, position: int, queries: Queries) -> Tensor:
        """Return each component's weight at a block, ``cos(query * mask, key)`` in [-1, 1]: ``[B, M]``."""
        cosines = queries.unit @ self.keys[position].mT
        if self.squares is None:
            return cosines
        # ||q * a||^2 = q^2 . a^2 avoids a [B, M, dim] tensor
        size = (queries.squares @ self.squares[position].mT).clamp_min(_EPS).sqrt()
        return cosines / size

    def prefixes(self, position: int, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return prefix key and value of a block, ``[B, length / 2, dim]`` each: sums over all components."""
        weights = self.weights(position, queries)
        key = torch.einsum("bm,mld->bld", weights, self.prefix_keys[position])
        return key, torch.einsum("bm,mld->bld", weights, self.prefix_values[position])


def _joined(sets: Sequence[nn.Module], name: str) -> Tensor:
    """Return a tensor of all sets, concatenated over components: ``[num_blocks, M, ...]``."""
    parts = [getattr(item, name) for item in sets]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def weighted_injection(
    blocks: Sequence[int],
    sets: Sequence[nn.Module],
    query: Tensor | None = None,
    seen: dict[int, Tensor] | None = None,
) -> PrefixInjection:
    """Return the injection of weighted prefixes.

    Args:
        blocks: The blocks, in the order of the sets' block axis.
        sets: The live :class:`ComponentSet` s.
        query: The query of all blocks, ``[B, dim]``; None: the query of a block is the class token that
            enters it (before ``norm1``, with its graph), so that one forward suffices.
        seen: Filled with each block's query, by position.
    """
    components = Components.of(sets)
    common = None if query is None else Queries.of(query)

    def prefix(position: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a block for the tokens that enter it, ``[B, N, dim]``."""
        own = tokens[:, 0] if query is None else query
        if seen is not None:
            seen[position] = own
        return components.prefixes(position, common or Queries.of(own))

    return PrefixInjection({block: partial(prefix, position) for position, block in enumerate(blocks)})


class WeightedPrefixBaseline(Baseline):
    """A baseline whose sets are groups of prefix components and whose classifier is one linear head.

    The forward always uses all sets, so a routing that forces a set changes nothing.

    Attributes:
        query_source: ``"feature"``: the un-prompted feature (a second forward, cached if possible);
            ``"block"``: the class token that enters each block.
        masked: Whether components have masks.
    """

    scope = POOL
    query_source: ClassVar[Literal["feature", "block"]]
    masked: ClassVar[bool]

    def __init__(self, config: WeightedPrefixOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.options = config
        dim = context.backbone.dim
        if config.components > dim:
            raise ConfigError(
                f"baseline.components: {config.components!r} keys of width {dim} cannot be orthogonal",
                f"use at most {dim}",
            )
        self.blocks = context.backbone.check_blocks(config.blocks, "baseline.blocks", "prefixes")
        context.backbone.require_one_layer("a key of a prefix")
        if self.query_source == "block":
            context.backbone.require_class_token("the query of a block")
        self.head = nn.Linear(dim, context.num_classes).to(context.device)

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return all live sets: a new one is orthogonal to them."""
        if not len(pool):
            return None
        return nn.ModuleList(pool.sets)

    def new_set(self, source: nn.Module | None) -> ComponentSet:
        """Return a set whose components are orthogonal to those of the sets in ``source``."""
        old: list[ComponentSet] = []
        if source is not None:
            old = [cast(ComponentSet, item) for item in source.children()]
        components = ComponentSet(
            num_blocks=len(self.blocks),
            components=self.options.components,
            length=self.options.length,
            dim=self.context.backbone.dim,
            masked=self.masked,
        )
        return components.start(old, self.options.init).to(self.context.device)

    def injection(
        self, batch: Batch, sets: Sequence[nn.Module], seen: dict[int, Tensor] | None = None
    ) -> PrefixInjection:
        """Return the weighted prefixes for a batch, and fill ``seen`` with each block's query by position."""
        query = batch.query if self.query_source == "feature" else None
        return weighted_injection(self.blocks, sets, query, seen)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return prompted features ``[B, dim]`` with the components of all sets of the routing."""
        return self.context.backbone.features(batch.images, (self.injection(batch, routing.sets),))

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's components, measured against the block's queries.

        A prefix is linear in the components: updates of components orthogonal to a space change every
        weighted sum orthogonally to it. Keys and masks are no sites, because no projection preserves a
        cosine.
        """
        prefix_key = cast(ComponentSet, parameters).prefix_key
        return tuple(
            Site(
                name=f"blocks.{block}.prefix_key",
                parameter=prefix_key,
                index=(position,),
                activation=self.context.backbone.key_tap(block),
            )
            for position, block in enumerate(self.blocks)
        )

    def regulariser(self, batch: Batch, sets: Sequence[nn.Module], seen: dict[int, Tensor]) -> Tensor | None:
        """Return a scalar to add to the training loss (not to the evidence's); None for no such term.

        Args:
            batch: The batch.
            sets: The live sets.
            seen: The query of each block, ``[B, dim]`` by position.
        """
        return None

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return cross-entropy over the task's classes plus the regulariser, with all live sets."""
        sets = context.pool.sets
        seen = dict[int, Tensor]()
        features = self.context.backbone.features(batch.images, (self.injection(batch, sets, seen),))
        logits = mask_logits(self.logits(features), context.task.classes)
        loss = functional.cross_entropy(logits, batch.labels)
        added = self.regulariser(batch, sets, seen)
        if added is not None:
            loss = loss + added
        return StepOutput(loss=loss, features=features)

    def trained(self, context: TaskContext) -> tuple[nn.Parameter, ...]:
        """Return the parameters that a task trains: the head, and of its set what the options allow.

        Of a reused set the prefix keys are trained in any case. Its own keys and masks weigh the components
        of a query: were they trained, old tasks' queries would get other weights.
        """
        components = cast(ComponentSet, context.parameters)
        trained = [components.prefix_key]
        if context.grew or self.options.values_on_reuse == "free":
            trained.append(components.prefix_value)
        if context.grew or self.options.keys_on_reuse == "free":
            trained.append(components.key)
            if components.mask is not None:
                trained.append(components.mask)
        return (*trained, *self.head.parameters())

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the only phase, which trains the task's set and the head together."""
        options = self.options
        phase = TrainingPhase(
            name="prompts",
            groups=(ParameterGroup(parameters=self.trained(context), lr=options.lr),),
            step=lambda batch: self.step(batch, context),
            epochs=options.epochs,
            batch_size=options.batch_size,
            schedule=stepped(coda_cosine, options.stepping),
            host=True,
            drop_last=True,
        )
        return (phase,)
