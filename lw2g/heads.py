"""Building blocks around classification heads: the growing linear head and logit masks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["linear_head", "mask_logits"]


def linear_head(dim: int, num_classes: int) -> nn.Linear:
    """Return a linear head at full size: truncated normal weights (std 0.02), zero bias.

    Rows of classes outside the current task get no gradient as long as their logits are masked.
    """
    head = nn.Linear(dim, num_classes)
    nn.init.trunc_normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head


def mask_logits(logits: Tensor, classes: Sequence[int] | range) -> Tensor:
    """Set the logits of all classes outside ``classes`` to minus infinity.

    Args:
        logits: ``[B, num_classes]``.
        classes: Positions that stay.

    >>> mask_logits(torch.zeros(1, 3), [1])
    tensor([[-inf, 0., -inf]])
    """
    hidden = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
    hidden[list(classes)] = False
    return logits.masked_fill(hidden, float("-inf"))
