"""The parts of the network that SLCA++ trains: low-rank updates, norms, biases and the class token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.merging import interpolate
from lw2g.vit.anatomy import linears_of
from lw2g.vit.backbone import Backbone
from lw2g.vit.lora import LayerInjection, LinearLayer, LowRank, Update
from lw2g.vit.parameters import ParameterInjection

__all__ = ["SlowSet", "leading_rows"]

_SCALE, _FRESH_EPS = 0.8, 1e-5
"""Constant factor on every update, and the epsilon of torch's norms, which is not that of ViTs."""


def leading_rows(weight: Tensor, rank: int) -> Tensor:
    """Return the leading right singular vectors of a weight ``[out, in]`` as rows, ``[rank, in]``."""
    matrix = weight.detach().double()
    wide = matrix.shape[1] > matrix.shape[0]
    vectors = torch.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)[1]
    leading = vectors[:, vectors.shape[1] - rank :].flip(1).T
    rows: Tensor = functional.normalize(leading @ matrix, dim=1) if wide else leading
    return rows.to(weight.dtype)


class SlowSet(nn.Module):
    """The trained parts of the network: low-rank updates, norms, biases and the class token.

    Args:
        backbone: Where values are copied from.
        rank: Rank of an update.
        fresh_norm: Whether the final norm starts from torch's default.

    Attributes:
        down: Of each layer, ``[depth, rank, in]``; its last axis multiplies the layer's input.
        up: Of each layer, ``[depth, out, rank]``.
        values: The others, by their names in the model's state dict with ``-`` for the dots.
        norm: The final norm.
    """

    def __init__(self, backbone: Backbone, rank: int, *, fresh_norm: bool) -> None:
        super().__init__()
        names = _layer_names(backbone)
        weights = {name: [layer.weight for layer in _layers(backbone, name)] for name in names}
        shapes = {name: (len(stack), *stack[0].shape) for name, stack in weights.items()}
        self.down = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(n, rank, width)) for name, (n, _, width) in shapes.items()}
        )
        self.up = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(n, out, rank)) for name, (n, out, _) in shapes.items()}
        )
        model = backbone.model
        self.values = nn.ParameterDict(
            {
                name.replace(".", "-"): nn.Parameter(value.detach().float().clone())
                for name, value in model.named_parameters()
                if not name.startswith("norm.")
                and (name == "cls_token" or name.endswith((".bias", "_bias")) or "norm" in name)
            }
        )
        own = cast(nn.LayerNorm, model.norm)
        self.norm = nn.LayerNorm(backbone.dim, eps=_FRESH_EPS if fresh_norm else own.eps)
        if not fresh_norm:
            self.norm.load_state_dict(own.state_dict())

    @torch.no_grad()
    def design(self, backbone: Backbone) -> None:
        """Set the down factors to the leading input directions of their weights."""
        for name, down in self.down.items():
            for row, layer in zip(down, _layers(backbone, cast(LinearLayer, name)), strict=True):
                row.copy_(leading_rows(layer.weight.float(), down.shape[1]))

    @property
    def factors(self) -> tuple[nn.Parameter, ...]:
        """The low-rank part."""
        return (*self.down.values(), *self.up.values())

    def merge(self, start: Mapping[str, Tensor], weight: float) -> float:
        """Merge the products of each layer's factors, and interpolate the others."""
        return interpolate(self, start, weight, zip(self.down.values(), self.up.values(), strict=True))

    @property
    def others(self) -> tuple[nn.Parameter, ...]:
        """Norms, biases and the class token."""
        return (*self.values.values(), *self.norm.parameters())

    def injections(self) -> tuple[LayerInjection, ParameterInjection]:
        """Return the injections of everything but the final norm."""
        depth = len(next(iter(self.down.values())))
        updates: dict[int, dict[LinearLayer, Update]] = {
            block: {
                cast(LinearLayer, name): LowRank(down=self.down[name][block], up=self.up[name][block])
                for name in self.down
            }
            for block in range(depth)
        }
        values = {name.replace("-", "."): value for name, value in self.values.items()}
        return LayerInjection(updates, scale=_SCALE), ParameterInjection(values)


def _layer_names(backbone: Backbone) -> tuple[LinearLayer, ...]:
    """Return the layers that are updated: all but the projection of the attention's output."""
    names = linears_of(backbone.model.blocks[0])
    return tuple(cast(LinearLayer, name) for name in names if name != "proj")


def _layers(backbone: Backbone, name: LinearLayer) -> list[nn.Linear]:
    return [linears_of(block)[name] for block in backbone.model.blocks]
