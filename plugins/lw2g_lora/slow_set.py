"""The parts of the network that SLCA++ trains: low-rank updates, norms, biases and the class token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    Backbone,
    LayerInjection,
    LinearLayer,
    ParameterInjection,
    interpolate,
    linears_of,
)

__all__ = ["SlowSet", "leading_rows"]

_SCALE = 0.8
"""Constant factor on every update."""
_FRESH_EPS = 1e-5
"""The epsilon of torch's norms, which is not that of ViTs."""


def leading_rows(weight: Tensor, rank: int) -> Tensor:
    """Return the leading right singular vectors of a weight ``[out, in]`` as rows, ``[rank, in]``."""
    # float64: W' W has the squares of W's singular values
    matrix = weight.detach().double()
    wide = matrix.shape[1] > matrix.shape[0]
    # eigenvectors of the smaller of both products: cheaper than an SVD of the weight
    small = matrix @ matrix.T if wide else matrix.T @ matrix
    vectors = torch.linalg.eigh(small)[1]
    rows: Tensor = vectors[:, vectors.shape[1] - rank :].flip(1).T
    if wide:
        # left singular vectors u, and v = W' u / |W' u|
        rows = functional.normalize(rows @ matrix, dim=1)
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
        model = backbone.model
        down = {}
        up = {}
        for name in _layer_names(backbone):
            layers = _layers(backbone, name)
            out, width = layers[0].weight.shape
            down[name] = nn.Parameter(torch.zeros(len(layers), rank, width))
            up[name] = nn.Parameter(torch.zeros(len(layers), out, rank))
        values = {}
        for full_name, value in model.named_parameters():
            if _is_trained(full_name):
                # a parameter's name has no dots
                values[full_name.replace(".", "-")] = nn.Parameter(value.detach().float().clone())
        # from whole dictionaries, which torch sorts by name: checkpoints and optimizers know this order
        self.down = nn.ParameterDict(down)
        self.up = nn.ParameterDict(up)
        self.values = nn.ParameterDict(values)
        norm = cast(nn.LayerNorm, model.norm)
        eps = _FRESH_EPS if fresh_norm else norm.eps
        self.norm = nn.LayerNorm(backbone.dim, eps=eps)
        if not fresh_norm:
            self.norm.load_state_dict(norm.state_dict())

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
        values = {name.replace("-", "."): value for name, value in self.values.items()}
        updates = LayerInjection.of_stacks(dict(self.down), dict(self.up), scale=_SCALE)
        return updates, ParameterInjection(values)


def _is_trained(name: str) -> bool:
    """Whether a parameter of the model is a norm, a bias or the class token; the final norm is our own."""
    if name.startswith("norm."):
        return False
    return name == "cls_token" or name.endswith((".bias", "_bias")) or "norm" in name


def _layer_names(backbone: Backbone) -> tuple[LinearLayer, ...]:
    """Return the layers that are updated: all but the projection of the attention's output."""
    names = linears_of(backbone.model.blocks[0])
    return tuple(cast(LinearLayer, name) for name in names if name != "proj")


def _layers(backbone: Backbone, name: LinearLayer) -> list[nn.Linear]:
    return [linears_of(block)[name] for block in backbone.model.blocks]
