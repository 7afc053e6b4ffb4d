"""Building block: the linear head over all classes of the stream."""

from __future__ import annotations

from torch import nn

__all__ = ["linear_head"]


def linear_head(dim: int, num_classes: int) -> nn.Linear:
    """Return a linear head at full size: truncated normal weights (std 0.02), zero bias.

    Rows of classes outside the current task get no gradient as long as their logits are masked.
    """
    head = nn.Linear(dim, num_classes)
    nn.init.trunc_normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return head
