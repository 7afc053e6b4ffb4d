"""How the weights of a frozen backbone are stored: in float32 or bfloat16, and packed for oneDNN."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from lw2g.vit.products import OneDNNLinear

__all__ = ["reference_weight", "store_in_bf16", "take_onednn"]


def store_in_bf16(model: nn.Module) -> None:
    """Store Linear and Conv weights in bfloat16, in place.

    Norms, class token and position embeddings stay float32, and so do convolutions that standardise
    their weights, so every result equals that of autocast over float32 weights, bit for bit. Autocast
    would cast the same weights in every forward, because it caches casts of trainable weights only.
    """
    for module in model.modules():
        if _is_stored(module):
            module.to(torch.bfloat16)


def take_onednn(model: nn.Module) -> None:
    """Let oneDNN take the products of a model's linear layers, in place."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = OneDNNLinear


def reference_weight(model: nn.Module) -> Tensor:
    """Return the weight whose device and dtype are the model's: the first that is stored in bfloat16.

    It is the first parameter of a model without such a weight.
    """
    for module in model.modules():
        if _is_stored(module):
            weight: Tensor = module.weight
            return weight
    first: Tensor = next(model.parameters())
    return first


def _is_stored(module: nn.Module) -> TypeGuard[nn.Linear | nn.Conv2d]:
    """Whether a module's weight is stored in bfloat16: not if it is standardised before its use."""
    return type(module) in (nn.Linear, OneDNNLinear, nn.Conv2d)
