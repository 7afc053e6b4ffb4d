"""Merging a trained copy of a set into the set that it started from.

Parameters of a common start are interpolated. Low-rank updates are merged by their products, since the
product of averaged factors has terms that no task has trained; the sum of two products has twice the rank
and is cut to the set's by its singular values. What the cut loses (the record tells its share) may lie in
directions that a constraint protects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

__all__ = ["Mergeable", "interpolate", "merge_set", "merged_product"]


@runtime_checkable
class Mergeable(Protocol):
    """A set whose parameters are not merged one by one."""

    def merge(self, start: Mapping[str, Tensor], weight: float) -> float:
        """Become ``(1 - weight) start + weight self`` in function; return the share of energy lost by it."""


@torch.no_grad()
def merge_set(trained: nn.Module, start: Mapping[str, Tensor], weight: float) -> float:
    """Turn a trained copy of a set into ``(1 - weight) start + weight copy``.

    Returns the share of low-rank updates' energy (squared singular values) that the cut to their rank loses.

    Args:
        trained: The copy.
        start: The parameters that it started from, by name.
        weight: From 0 to 1; 1 changes nothing.
    """
    if weight == 1:
        return 0.0
    if isinstance(trained, Mergeable):
        return trained.merge(start, weight)
    return interpolate(trained, start, weight)


def interpolate(
    trained: nn.Module,
    start: Mapping[str, Tensor],
    weight: float,
    pairs: Iterable[tuple[nn.Parameter, nn.Parameter]] = (),
) -> float:
    """Write ``(1 - weight) start + weight trained`` into the parameters of ``trained``, under ``no_grad``.

    Factors of a low-rank update are merged by their product (:func:`merged_product`), all others one by one.
    Returns the share of the pairs' energy that is lost.

    Args:
        trained: The trained copy.
        start: The parameters that it started from, by name.
        weight: From 0, which gives ``start``, to 1, which changes nothing.
        pairs: The factors ``down`` and ``up`` of each low-rank update of ``trained``.
    """
    names = {id(parameter): name for name, parameter in trained.named_parameters()}
    in_pairs = set()
    lost = whole = 0.0
    if not weight:
        # nothing of the copy is left: factors go back as they were, in place of a product of equal value
        pairs = ()
    for down, up in pairs:
        in_pairs |= {id(down), id(up)}
        before = start[names[id(down)]], start[names[id(up)]]
        new_down, new_up, (pair_lost, pair_kept) = merged_product(before, (down, up), weight)
        down.copy_(new_down)
        up.copy_(new_up)
        lost += float(pair_lost)
        whole += float(pair_lost + pair_kept)
    for parameter in trained.parameters():
        if id(parameter) in in_pairs:
            continue
        merged = start[names[id(parameter)]]
        if weight:
            merged = merged.lerp(parameter, weight)
        parameter.copy_(merged)
    if not whole:
        return 0.0
    return lost / whole


def merged_product(
    start: tuple[Tensor, Tensor], copy: tuple[Tensor, Tensor], weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return factors of the best approximation of ``(1 - weight) up0 down0 + weight up1 down1``.

    Args:
        start: ``down0 [..., n, rank, in]`` and ``up0 [..., m, out, rank]``; for n = 1 all m share it.
        copy: The same after training.
        weight: From 0 to 1.

    Returns:
        ``down`` and ``up`` of the same shapes, rows of ``down`` orthogonal; and the energy (squared singular
        values) that is lost and that is kept, ``[2]`` float64.
    """
    shape = start[1].shape
    rank = start[0].shape[-2]
    joint = start[0].shape[:-2] != shape[:-2]  # one down factor for all m

    def stacked(up: Tensor) -> Tensor:
        """Return factors that share a down factor as one, ``[..., 1, m out, rank]``."""
        up = up.double()
        if joint:
            up = up.flatten(-3, -2).unsqueeze(-3)
        return up

    # the sum is one product of twice the rank: [up0 up1] [down0; down1]
    ups = torch.cat([(1 - weight) * stacked(start[1]), weight * stacked(copy[1])], dim=-1)
    downs = torch.cat([start[0].double(), copy[0].double()], dim=-2)
    # ups = Q1 R1 and downs' = Q2 R2: the sum Q1 (R1 R2') Q2' has the singular values of R1 R2', which is
    # [2 rank, 2 rank]; the sum itself, [out, in], is never made
    left, small_left = torch.linalg.qr(ups)
    right, small_right = torch.linalg.qr(downs.mT)
    u, s, v = torch.linalg.svd(small_left @ small_right.mT)
    root = s[..., :rank].sqrt()
    up = (left @ u[..., :rank]) * root[..., None, :]
    down = root[..., None] * (v[..., :rank, :] @ right.mT)
    energy = torch.stack([s[..., rank:].square().sum(), s[..., :rank].square().sum()])
    return down.to(start[0]), up.reshape(shape).to(start[1]), energy
