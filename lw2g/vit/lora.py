"""Low-rank (or dense) updates of linear layers: rows of the fused qkv (C-LoRA, InfLoRA), or whole layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import attention_of, block_at, linear_of, projections_of, require_rung

__all__ = ["LayerInjection", "LinearLayer", "LowRank", "LowRankInjection", "Update", "UpdateTarget"]

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

    def __call__(self, x: Tensor) -> Tensor:
        """Return the update's output for tokens, [B, N, d] -> [B, N, d]."""
        return (x @ self.down.transpose(-2, -1)) @ self.up.transpose(-2, -1)


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
        """Add the updates by forward hooks on the projections within the context."""
        require_rung(model, "low-rank updates", self.updates)
        with ExitStack() as stack:
            for index, per_target in self.updates.items():
                for name, layer in projections_of(attention_of(block_at(model, index))).items():
                    add = self._fused(per_target) if name == "qkv" else self._separate(per_target, name)
                    stack.enter_context(layer.register_forward_hook(add))
            yield

    def _separate(
        self, per_target: Mapping[UpdateTarget, Update | Sequence[Update]], layer: str
    ) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        target = next(target for target in _TARGETS if layer.startswith(target))
        updates = _as_sequence(per_target.get(target, ()))

        def add(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            for update in updates:
                output = output + (self.scale * _apply(update, args[0])).to(output.dtype)
            return output

        return add

    def _fused(
        self, per_target: Mapping[UpdateTarget, Update | Sequence[Update]]
    ) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        updates = [_as_sequence(per_target.get(target, ())) for target in _TARGETS]

        def add(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            rows = list(output.chunk(3, dim=-1))
            for i, update in enumerate(updates):
                for part in update:
                    # not in place: autograd may need the output that the chunks view
                    rows[i] = rows[i] + (self.scale * _apply(part, args[0])).to(output.dtype)
            return torch.cat(rows, dim=-1)

        return add


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

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Add the updates by forward hooks on the layers within the context.

        Raises:
            ConfigError: A block has no such layer.
        """
        with ExitStack() as stack:
            for index, per_layer in self.updates.items():
                for name, update in per_layer.items():
                    layer = linear_of(model, index, name)
                    stack.enter_context(layer.register_forward_hook(self._adder(update)))
            yield

    def _adder(self, update: Update) -> Callable[[nn.Module, Any, Tensor], Tensor]:
        def add(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            return output + (self.scale * _apply(update, args[0])).to(output.dtype)

        return add


def _as_sequence(update: Update | Sequence[Update]) -> Sequence[Update]:
    return (update,) if isinstance(update, LowRank | Tensor) else update


def _apply(update: Update, x: Tensor) -> Tensor:
    return update(x) if isinstance(update, LowRank) else x @ update.transpose(-2, -1)
