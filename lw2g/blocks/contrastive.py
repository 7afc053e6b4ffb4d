"""Building block: a contrastive loss that pushes features away from the centroids of old classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["self_identification_loss"]


def self_identification_loss(features: Tensor, centroids: Tensor, temperature: float = 0.8) -> Tensor:
    """Return the cross-entropy of telling each row from all others (HiDe-Prompt's contrastive term).

    With the rows ``M = [centroids; features]`` and ``S = M M^T / temperature`` it is the mean over rows r of
    the cross-entropy of ``S_r`` against target r, as released: rows are *not* normalised, and samples of one
    class are negatives too. It is computed in float64, because the differences between the large squared
    norms of ViT features matter.

    Args:
        features: ``[B, d]``, with gradient.
        centroids: Centroids of old classes, ``[m, d]``, m >= 0; they get no gradient.
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
