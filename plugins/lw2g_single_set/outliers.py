"""Virtual outliers: points in feature space that no class should claim, and the loss that says so.

Huang et al., "OVOR: OnePrompt with Virtual Outlier Regularization", ICLR 2024, section 3.2; outliers are made
as in non-parametric outlier synthesis (Tao et al., ICLR 2023).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["PER_CLASS", "around_origin", "energy", "near_boundary", "neighbour_distance", "outlier_loss"]

PER_CLASS = 40
"""Outliers per class of the task."""

_NEIGHBOURS, _BOUNDARY, _DRAWS, _NOISE = 50, 50, 600, 0.1
_ROWS_AT_ONCE = 4096


def neighbour_distance(points: Tensor, index: Tensor, neighbours: int) -> Tensor:
    """Return the squared distance of each point to its ``neighbours``-th nearest row, ``[n]``.

    A point that is a row itself counts as its own first neighbour.

    Args:
        points: ``[n, d]``.
        index: ``[m, d]``.
        neighbours: From 1 to m.

    >>> neighbour_distance(torch.tensor([[0.0]]), torch.tensor([[0.0], [2.0], [3.0]]), 2)
    tensor([4.])
    """
    parts = [
        # not kthvalue, which is not deterministic on CUDA
        torch.cdist(part, index).topk(neighbours, dim=1, largest=False).values[:, -1]
        for part in torch.split(points, _ROWS_AT_ONCE)
    ]
    return torch.cat(parts).square()


def near_boundary(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw outliers around the features that lie farthest from the others (the paper's rule).

    The 50 features with the most distant 50th neighbour get 600 noisy copies each; the copies farthest from
    all features are kept. Distances are between directions, outliers keep their length.

    Args:
        features: All features of the task, ``[n, d]``.
        count: Number of outliers; at most 600 per boundary feature.
        generator: On the CPU.

    Returns:
        ``[count, d]``.
    """
    index = functional.normalize(features, dim=1)
    neighbours = min(_NEIGHBOURS, len(index))
    isolation = neighbour_distance(index, index, neighbours)
    boundary = features[isolation.topk(min(_BOUNDARY, len(index))).indices]
    noise = torch.randn(len(boundary), _DRAWS, features.shape[1], generator=generator).to(features)
    candidates = (boundary[:, None] + _NOISE * noise).flatten(0, 1)
    isolation = neighbour_distance(functional.normalize(candidates, dim=1), index, neighbours)
    return candidates[isolation.topk(min(count, len(candidates))).indices]


def around_origin(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw outliers as the released code does: noise around the origin, the farthest of 600 many times over.

    The release selects boundary features too, but uses them only to repeat its draws; so at most one in 50
    outliers is distinct. Arguments and result as for :func:`near_boundary`.
    """
    index = functional.normalize(features, dim=1)
    draws = _NOISE * torch.randn(_DRAWS, features.shape[1], generator=generator).to(features)
    isolation = neighbour_distance(draws, index, min(_NEIGHBOURS, len(index)))
    copies = min(_BOUNDARY, len(index))
    return draws[isolation.argsort(descending=True)].repeat_interleave(copies, dim=0)[:count]


def energy(logits: Tensor) -> Tensor:
    """Return ``-logsumexp`` of each row, in float32 at least: low where some class is sure.

    >>> energy(torch.zeros(1, 10))
    tensor([-2.3026])
    """
    return -torch.logsumexp(logits.float(), dim=1)


def outlier_loss(known: Tensor, outliers: Tensor, *, known_energy: float, outlier_energy: float) -> Tensor:
    """Return how far energies are on the wrong side of their bounds, by Huber's loss (delta 1).

    Args:
        known: Logits of real features over the task's classes, ``[n, c]``.
        outliers: Logits of outliers over the same classes, ``[m, c]``.
        known_energy: Real features should have at most this energy.
        outlier_energy: Outliers should have at least this energy.
    """
    above = functional.relu(energy(known) - known_energy)
    below = functional.relu(outlier_energy - energy(outliers))
    zero = torch.zeros_like
    return functional.huber_loss(above, zero(above)) + functional.huber_loss(below, zero(below))
