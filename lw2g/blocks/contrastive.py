"""Building block: the contrastive loss that keeps features away from the centroids of old classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["self_identification_loss"]


def self_identification_loss(features: Tensor, centroids: Tensor, temperature: float = 0.8) -> Tensor:
    """Return how badly rows tell themselves from all others (HiDe-Prompt's contrastive term, as released).

    With the rows ``M = [centroids; features]`` and ``S = M M^T / temperature`` it is the mean over rows r of
    the cross-entropy of ``S_r`` against target r. Rows are *not* normalised, and samples of one class count
    as negatives too. The sum runs in float64: squared norms of ViT features are large, their differences are
    what matters.

    Args:
        features: ``[B, d]``, with gradient.
        centroids: Of old classes, ``[m, d]``, m >= 0; they get no gradient.
        temperature: Divides the similarities.

    Returns:
        A scalar of the dtype of ``features``.

    >>> self_identification_loss(torch.zeros(4, 2), torch.zeros(0, 2)).exp()
    tensor(4.)
    """
    rows = torch.cat([centroids.detach().to(features), features]).double()
    similarity = rows @ rows.T / temperature
    targets = torch.arange(len(rows), device=rows.device)
    return functional.cross_entropy(similarity, targets).to(features.dtype)
