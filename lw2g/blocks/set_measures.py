"""Building block: how well a set suits an image, measured from the logits under that set."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["entropy", "log_mass", "log_sum"]


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the classes' probabilities, ``[..., C]`` -> ``[...]``: low if one dominates.

    >>> entropy(torch.zeros(1, 4))
    tensor([1.3863])
    """
    log_classes = logits.log_softmax(dim=-1)
    return -(log_classes.exp() * log_classes).sum(dim=-1)


def log_mass(logits: Tensor, owned: Tensor) -> Tensor:
    """Return the log of the total probability of a set's own classes, ``[...]``.

    Args:
        logits: ``[..., C]``.
        owned: Whether a class is the set's own, ``[..., C]`` bool.
    """
    return logits.log_softmax(dim=-1).masked_fill(~owned, float("-inf")).logsumexp(dim=-1)


def log_sum(logits: Tensor) -> Tensor:
    """Return ``logsumexp`` of the logits, ``[..., C]`` -> ``[...]``: minus their energy."""
    return torch.logsumexp(logits, dim=-1)
