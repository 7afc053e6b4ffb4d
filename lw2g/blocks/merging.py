"""Merging a trained copy of a set into the set that it started from.

Parameters of a common start are interpolated. Low-rank updates are merged by their products, since the
product of averaged factors has terms that no task has trained; the sum of two products has twice the rank
and is cut to the set's by its singular values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

__all__ = ["Mergeable", "merge_set", "merged_product"]


@runtime_checkable
class Mergeable(Protocol):
    """A set whose factors are merged by their products."""

    def factor_pairs(self) -> tuple[tuple[nn.Parameter, nn.Parameter], ...]:
        """Return the pairs ``down [..., n, rank, in]`` and ``up [..., n or more, out, rank]``.

        Where ``up`` has several matrices for one ``down``, they share it.
        """


@torch.no_grad()
def merge_set(trained: nn.Module, start: Mapping[str, Tensor], weight: float) -> None:
    """Turn a trained copy into ``(1 - weight) start + weight copy``; 0 and 1 are equal to either to the bit.

    Args:
        trained: The copy.
        start: The parameters that it started from, by name.
        weight: From 0 to 1.
    """
    if weight == 1:
        return
    names = {id(value): name for name, value in trained.named_parameters()}
    pairs = trained.factor_pairs() if isinstance(trained, Mergeable) and weight > 0 else ()
    for down, up in pairs:
        before = start[names.pop(id(down))], start[names.pop(id(up))]
        for parameter, value in zip((down, up), merged_product(before, (down, up), weight), strict=True):
            parameter.copy_(value)
    for value in trained.parameters():
        if id(value) in names:
            before_it = start[names[id(value)]]
            value.copy_(before_it if weight == 0 else before_it.lerp(value, weight))


def merged_product(
    start: tuple[Tensor, Tensor], copy: tuple[Tensor, Tensor], weight: float
) -> tuple[Tensor, Tensor]:
    """Return factors of the best approximation of ``(1 - weight) up0 down0 + weight up1 down1``.

    Args:
        start: ``down0 [..., n, rank, in]`` and ``up0 [..., m, out, rank]``; for n = 1 all m share it.
        copy: The same after training.
        weight: From 0 to 1.

    Returns:
        ``down`` and ``up`` of the same shapes; rows of ``down`` are orthogonal.
    """
    shape, rank = start[1].shape, start[0].shape[-2]
    joint = start[0].shape[:-2] != shape[:-2]  # one down factor for all m

    def stacked(up: Tensor) -> Tensor:
        return up.double().flatten(-3, -2).unsqueeze(-3) if joint else up.double()

    ups = torch.cat([(1 - weight) * stacked(start[1]), weight * stacked(copy[1])], dim=-1)
    downs = torch.cat([start[0].double(), copy[0].double()], dim=-2)
    left, small_left = torch.linalg.qr(ups)
    right, small_right = torch.linalg.qr(downs.mT)
    u, s, v = torch.linalg.svd(small_left @ small_right.mT)
    root = s[..., :rank].sqrt()
    up = (left @ u[..., :rank]) * root[..., None, :]
    down = root[..., None] * (v[..., :rank, :] @ right.mT)
    return down.to(start[0]), up.reshape(shape).to(start[1])
