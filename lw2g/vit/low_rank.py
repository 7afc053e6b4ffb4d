"""Low-rank (or dense) updates of linear layers: rows of the fused qkv (C-LoRA, InfLoRA), or whole layers.

In forwards with gradients an update is added to the layer's output, in one product, which oneDNN's layers
(:mod:`lw2g.vit.products`) take within their own. In those without, on a
CPU, it is merged into the weight, once for each version of its factors, so that the forward costs what the
plain one does. In float32 both agree to about 1e-6; in bf16 a merged weight is rounded as the backbone's are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import attention_of, block_at, linear_of, linears_of, projections_of, require_rung
from lw2g.vit.injection import in_product_dtype
from lw2g.vit.products import OneDNNLinear, StandIn

__all__ = [
    "LayerInjection",
    "LayerUpdate",
    "LinearLayer",
    "LowRank",
    "LowRankInjection",
    "Update",
    "UpdateTarget",
    "layer_updates",
]

UpdateTarget = Literal["q", "k", "v"]
_TARGETS: tuple[UpdateTarget, ...] = ("q", "k", "v")
LinearLayer = Literal["qkv", "q_proj", "k_proj", "v_proj", "proj", "fc1", "fc1_g", "fc1_x", "fc2"]
"""Linear layers that blocks of timm's ViTs have: which of them a block has, its model says."""


@attrs.frozen(kw_only=True, eq=False)
class LowRank:
    """An update ``up @ down`` of a weight: the output grows by ``up (down x)``.

    Attributes:
        down: Applied first, [r, d] or per sample [B, r, d].
        up: Applied second, [d, r] or per sample [B, d, r].

    Raises:
        ValueError: The ranks differ.
    """

    down: Tensor
    up: Tensor

    def __attrs_post_init__(self) -> None:
        matrices = {self.down.ndim, self.up.ndim} <= {2, 3}
        if not matrices or self.down.shape[-2] != self.up.shape[-1]:
            raise ValueError(
                f"expected down [.., r, d] and up [.., d, r] of one rank but got {list(self.down.shape)} and "
                f"{list(self.up.shape)}"
            )


MERGING_DEVICES = ("cpu",)
"""Types of devices on which weights are merged: those where it was measured to pay."""

Update = LowRank | Tensor
"""Low-rank factors, or a dense increment [d, d] (such as the sum of all old sets' updates)."""


@attrs.frozen(eq=False)
class LowRankInjection:
    """Updates added to queries, keys and values at some blocks; the backbone's weights are not touched.

    Attributes:
        updates: Block index to target to one update, or several that are summed.
        scale: Factor on every update.

    Raises:
        ConfigError: A target is not one of q, k, v.
    """

    updates: Mapping[int, Mapping[UpdateTarget, Update | Sequence[Update]]] = attrs.field()
    scale: float = attrs.field(default=1.0, kw_only=True)

    @updates.validator
    def _known_targets(self, attribute: Any, updates: Mapping[int, Mapping[UpdateTarget, Any]]) -> None:
        unknown = [target for per_block in updates.values() for target in per_block if target not in _TARGETS]
        if unknown:
            raise ConfigError(f"unknown update target {unknown[0]!r}", "choose among 'q', 'k' and 'v'")

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Update the projections within the context."""
        require_rung(model, "low-rank updates", self.updates)
        with ExitStack() as stack:
            for layer, of_layer in self._parts(model):
                stack.enter_context(_updated(layer, of_layer, self.scale))
            yield

    def _parts(self, model: nn.Module) -> Iterator[tuple[nn.Linear, list[_Part]]]:
        """Yield each layer of a model that is updated, with the updates of its rows."""
        for index, per_target in self.updates.items():
            parts: dict[str, list[_Part]] = {}
            layers = projections_of(attention_of(block_at(model, index)))
            for number, target in enumerate(_TARGETS):
                if "qkv" in layers:
                    # rows of queries, keys and values lie one after another in the fused weight
                    name = "qkv"
                    first = number * layers[name].out_features // len(_TARGETS)
                else:
                    name = f"{target}_proj"
                    first = 0
                for update in _as_sequence(per_target.get(target, ())):
                    parts.setdefault(name, []).append(_Part.of(update, first))
            for name, of_layer in parts.items():
                yield layers[name], of_layer


@attrs.frozen(eq=False)
class LayerInjection:
    """Updates added to the output of whole linear layers of some blocks (SLCA++).

    Attributes:
        updates: Block index to layer to update: ``qkv`` (or ``q_proj``, ``k_proj``, ``v_proj``) and ``proj``
            of the attention, ``fc1`` (or ``fc1_g``, ``fc1_x``) and ``fc2`` of the MLP.
        scale: Factor on every update.
    """

    updates: Mapping[int, Mapping[LinearLayer, Update]]
    scale: float = attrs.field(default=1.0, kw_only=True)

    @classmethod
    def of_stacks(
        cls, down: Mapping[str, Tensor], up: Mapping[str, Tensor], *, scale: float = 1.0
    ) -> LayerInjection:
        """Return the injection of factors that hold those of all blocks.

        Args:
            down: Of each layer by its name, ``[depth, r, in]``.
            up: Likewise, ``[depth, out, r]``.
            scale: Factor on every update.
        """
        updates: dict[int, dict[LinearLayer, Update]] = {}
        adds = torch.is_grad_enabled()
        for name in down:
            downs = down[name]
            ups = up[name]
            if adds:
                # scaled and cast once for all blocks; what is merged takes the factors as they are
                downs = in_product_dtype(downs * scale)
                ups = in_product_dtype(ups)
            # cut apart at once: the gradient of a single selection is a tensor of all blocks
            pairs = zip(downs.unbind(), ups.unbind(), strict=True)
            for block, (own_down, own_up) in enumerate(pairs):
                update = LowRank(down=own_down, up=own_up)
                updates.setdefault(block, {})[cast(LinearLayer, name)] = update
        return cls(updates, scale=1.0 if adds else scale)

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Update the layers within the context.

        Raises:
            ConfigError: A block has no such layer.
        """
        with ExitStack() as stack:
            for layer, of_layer in self._parts(model):
                stack.enter_context(_updated(layer, of_layer, self.scale))
            yield

    def _parts(self, model: nn.Module) -> Iterator[tuple[nn.Linear, list[_Part]]]:
        """Yield each layer of a model that is updated, with its update."""
        for index, per_layer in self.updates.items():
            layers = linears_of(block_at(model, index))
            for name, update in per_layer.items():
                # linear_of looks through the block once more, and refuses what it does not have
                layer = layers[name] if name in layers else linear_of(model, index, name)
                yield layer, [_Part.of(update)]


@attrs.frozen(kw_only=True, eq=False)
class LayerUpdate:
    """The whole update ``up @ down`` of the weight of a layer, all that it is made of and its scale inside.

    Attributes:
        layer: The layer.
        down: ``[r, in]`` float32.
        up: ``[out, r]`` float32.
    """

    layer: nn.Linear
    down: Tensor
    up: Tensor


def layer_updates(injection: LowRankInjection | LayerInjection, model: nn.Module) -> list[LayerUpdate]:
    """Return the updates of an injection as the layers of a model see them, each by one product.

    Args:
        injection: The injection.
        model: What it would be installed in.

    Raises:
        ConfigError: An update is dense, so that it has no factors.
        ValueError: Updates differ from sample to sample.
    """
    found = []
    for layer, parts in injection._parts(model):
        downs: list[Tensor] = []
        ups: list[Tensor] = []
        for part in parts:
            if part.down is None:
                raise ConfigError(
                    "an update is a dense increment, and has no low-rank factors", "export the whole model"
                )
            if part.is_per_sample:
                raise ValueError("expected the updates of one set but got those of a set for each sample")
            down = part.down.detach().float()
            up = down.new_zeros(layer.out_features, len(down))
            up[part.first : part.first + part.up.shape[0]] = injection.scale * part.up.detach().float()
            for place, known in enumerate(downs):
                if known.shape == down.shape and torch.equal(known, down):  # queries and keys may share it
                    ups[place] = ups[place] + up
                    break
            else:
                downs.append(down)
                ups.append(up)
        found.append(LayerUpdate(layer=layer, down=torch.cat(downs), up=torch.cat(ups, dim=1)))
    return found


@attrs.frozen(eq=False)
class _Part:
    """An update of some rows of a layer's weight, from row ``first``: ``up @ down``, or ``up`` if dense."""

    up: Tensor
    down: Tensor | None
    first: int

    @classmethod
    def of(cls, update: Update, first: int = 0) -> _Part:
        if isinstance(update, LowRank):
            return cls(update.up, update.down, first)
        return cls(update, None, first)

    @property
    def tensors(self) -> list[Tensor]:
        if self.down is None:
            return [self.up]
        return [self.up, self.down]

    @property
    def layout(self) -> tuple[int, list[torch.Size]]:
        return self.first, [tensor.shape for tensor in self.tensors]

    def copy(self) -> _Part:
        down = None if self.down is None else self.down.detach().clone()
        return _Part(self.up.detach().clone(), down, self.first)

    def scaled(self, scale: float) -> _Part:
        if scale == 1:
            return self
        # the scale goes into the smaller matrix, where it costs nothing
        if self.down is None:
            return _Part(self.up * scale, None, self.first)
        return _Part(self.up, self.down * scale, self.first)

    @property
    def is_per_sample(self) -> bool:
        return any(tensor.ndim > 2 for tensor in self.tensors)


@contextmanager
def _updated(layer: nn.Linear, parts: Sequence[_Part], scale: float) -> Iterator[None]:
    """Update a layer within the context: merge into its weight what can be, and add the others to its output.

    Args:
        layer: The layer.
        parts: Updates of its parts, such as q, k and v.
        scale: Factor on them.

    Raises:
        ValueError: An update is not as wide as the layer, such as one whose factors are swapped.
    """
    for part in parts:
        down, up = part.down, part.up
        outside = part.first + up.shape[-2] > layer.out_features
        if down is not None and (down.shape[-1] != layer.in_features or outside):
            raise ValueError(
                f"expected down [r, {layer.in_features}], applied first, and up [d, r] with d up to "
                f"{layer.out_features - part.first}, but got {list(down.shape)} and {list(up.shape)}"
            )
    # a merged weight has no gradient to the update, and is the same for all samples
    merges = layer.weight.device.type in MERGING_DEVICES and not torch.is_grad_enabled()
    merged = [part for part in parts if merges and not part.is_per_sample]
    added = [part for part in parts if part not in merged]
    with ExitStack() as stack:
        if merged:
            stack.enter_context(_merged_weight(layer, merged, scale).within(layer))
        whole = _whole_update(layer, added, scale)
        if whole is not None:
            stack.enter_context(whole)
        elif added:
            adder = _Adder(added, scale)
            stack.enter_context(layer.register_forward_pre_hook(adder.share))
            stack.enter_context(layer.register_forward_hook(adder.add))
        yield


def _whole_update(
    layer: nn.Linear, parts: Sequence[_Part], scale: float
) -> AbstractContextManager[None] | None:
    """Return the context in which oneDNN's product takes an update of all rows; None for other updates."""
    if len(parts) != 1 or not isinstance(layer, OneDNNLinear):
        return None
    part = parts[0].scaled(scale)
    is_whole = part.up.shape[-2] == layer.out_features
    # a layer has one place for an update: a second injection adds its own behind the layer
    if part.down is None or part.is_per_sample or not is_whole or layer.update is not None:
        return None
    return layer.updated(part.down, part.up)


class _Adder:
    """The hooks that add updates to a layer's output, each by one product.

    An update may be of some outputs alone, such as the keys of a layer that gives queries, keys and values
    side by side. All updates of a layer have outputs of one width.

    Args:
        parts: The updates.
        scale: Factor on them.
    """

    def __init__(self, parts: Sequence[_Part], scale: float) -> None:
        self._width = parts[0].up.shape[-2]
        self._parts = [part.scaled(scale) for part in parts]
        self._input: Tensor | None = None

    def share(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor] | None:
        """Return the layer's input in the dtype of products, where one update takes it, too: cast once."""
        (x,) = args
        kind = x.device.type
        # gradients of several updates would be added up in another order
        if len(self._parts) > 1 or x.dtype != torch.float32 or not torch.is_autocast_enabled(kind):
            return None
        of_layer, self._input = _Shared.apply(x, torch.get_autocast_dtype(kind))
        return (of_layer,)

    def add(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Return the layer's output with the update of each of its parts (q, k, v) added: ``x down' up'``."""
        (x,) = args
        if self._input is not None:
            x = self._input
            self._input = None
        # a layer with one piece is not cut: its gradient would be copied
        count = output.shape[-1] // self._width
        pieces = [output] if count == 1 else list(output.chunk(count, dim=-1))
        for part in self._parts:
            hidden = x if part.down is None else x @ part.down.transpose(-2, -1)
            number = part.first // self._width
            pieces[number] = _plus_product(pieces[number], hidden, part.up)
        if len(pieces) == 1:  # nothing to join: a copy less
            return pieces[0]
        return torch.cat(pieces, dim=-1)


class _Shared(torch.autograd.Function):
    """An input cast for a layer and its update, whose gradients are added in the input's own dtype.

    They have the bits of two casts: were one cast used twice, both would be added before they are widened.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        ctx.dtype = x.dtype
        cast = x.to(dtype)
        return cast, cast.view_as(cast)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        of_layer, of_update = gradients
        return of_layer.to(ctx.dtype) + of_update, None


def _plus_product(output: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return ``output + x @ weight.T`` by one product, ``[B, N, out]``; the weight may be per sample."""
    if weight.ndim > 2:
        return torch.baddbmm(output, x, weight.transpose(-2, -1))
    flat = torch.addmm(output.flatten(0, -2), x.flatten(0, -2), weight.T)
    return flat.view_as(output)


@attrs.frozen(eq=False)
class _Merged:
    """A weight with updates merged into it, and copies of what it was made of."""

    weight: StandIn
    own: Tensor
    version: int
    parts: Sequence[_Part]
    scale: float

    def is_of(self, layer: nn.Linear, parts: Sequence[_Part], scale: float) -> bool:
        """Whether these updates of this layer would give the same weight."""
        weight = layer.weight
        if (weight.data_ptr(), weight._version, scale) != (self.own.data_ptr(), self.version, self.scale):
            return False
        if [part.layout for part in parts] != [part.layout for part in self.parts]:
            return False
        # values, not versions: a fused optimizer changes a parameter without counting
        pairs = zip(_tensors(parts), _tensors(self.parts), strict=True)
        return all(torch.equal(one, two) for one, two in pairs)


_MERGED: WeakKeyDictionary[nn.Module, _Merged] = WeakKeyDictionary()
"""The latest of each layer."""


def _merged_weight(layer: nn.Linear, parts: Sequence[_Part], scale: float) -> StandIn:
    """Return the layer's weight with updates merged into it, which is made anew where one has changed."""
    if torch.compiler.is_compiling():
        # a traced program has the sum of constants, which is folded later; values cannot be compared
        return StandIn(_sum_of(layer.weight, parts, scale))
    kept = _MERGED.get(layer)
    if kept is not None and kept.is_of(layer, parts, scale):
        return kept.weight
    weight = layer.weight.detach()
    made = StandIn(_sum_of(weight, parts, scale))
    copies = [part.copy() for part in parts]
    _MERGED[layer] = _Merged(weight=made, own=weight, version=weight._version, parts=copies, scale=scale)
    return made


def _sum_of(weight: Tensor, parts: Sequence[_Part], scale: float) -> Tensor:
    """Return a weight with updates added."""
    # summed in at least float32: in bf16 each update would be rounded by itself
    wide = torch.promote_types(weight.dtype, torch.float32)
    total = weight.to(wide)
    with torch.autocast(weight.device.type, enabled=False):
        for part in parts:
            after = part.first + part.up.shape[0]
            rows = total[part.first : after]
            if part.down is None:
                rows = torch.add(rows, part.up.to(wide), alpha=scale)
            else:
                rows = torch.addmm(rows, part.up.to(wide), part.down.to(wide), alpha=scale)
            # put together and not written in place, which torch does not trace
            total = torch.cat([total[: part.first], rows, total[after:]])
    return total.to(weight.dtype)


def _tensors(parts: Sequence[_Part]) -> list[Tensor]:
    return [tensor for part in parts for tensor in part.tensors]


def _as_sequence(update: Update | Sequence[Update]) -> Sequence[Update]:
    return (update,) if isinstance(update, LowRank | Tensor) else update
