"""The difference between two states, which is all that a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["apply", "changes"]

_AT = "#at"
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WORTH = 0.9
"""Slices are stored instead of a whole tensor where they are fewer than this share of it."""


def changes(
    old: Mapping[str, Tensor], new: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """Return the tensors that lead from one state to another, bit for bit.

    A tensor of which only some slices along an axis have changed (rows of a head, prompts of a pool, columns
    of a basis), or which has grown along it, is stored by those slices: ``name`` holds them and ``name#at``
    their positions.

    Args:
        old: The earlier state.
        new: The later one; contiguous tensors on the CPU.

    Returns:
        Tensors to store, and ``[axis, size]`` of each tensor that is stored by slices.
    """
    stored: dict[str, Tensor] = {}
    sliced: dict[str, list[int]] = {}
    for name, value in new.items():
        earlier = old.get(name)
        slices = None
        if earlier is not None:
            if earlier is value or _same(earlier, value):
                continue
            slices = _slices(earlier, value)
        if slices is None:
            stored[name] = value
            continue
        axis, at = slices
        stored[name] = value.index_select(axis, at)
        stored[name + _AT] = at
        sliced[name] = [axis, value.shape[axis]]
    return stored, sliced


def apply(
    old: Mapping[str, Tensor], stored: Mapping[str, Tensor], sliced: Mapping[str, Any], dropped: list[str]
) -> dict[str, Tensor]:
    """Return the later state from the earlier one and what :func:`changes` returned."""
    tensors = {name: value for name, value in old.items() if name not in dropped}
    for name, value in stored.items():
        if name.endswith(_AT) and name.removesuffix(_AT) in sliced:
            continue
        if name not in sliced:
            tensors[name] = value
            continue
        # the old tensor in the corner of a larger one, and the new slices over it
        axis, size = sliced[name]
        shape = list(old[name].shape)
        shape[axis] = size
        whole = value.new_zeros(shape)
        whole.narrow(axis, 0, old[name].shape[axis]).copy_(old[name])
        tensors[name] = whole.index_copy_(axis, stored[name + _AT], value)
    return tensors


def _same(old: Tensor, new: Tensor) -> bool:
    return old.dtype == new.dtype and old.shape == new.shape and torch.equal(_bits(old), _bits(new))


def _bits(tensor: Tensor) -> Tensor:
    """Return a tensor as integers of its width: zeros have signs, NaN equals itself."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def _slices(old: Tensor, new: Tensor) -> tuple[int, Tensor] | None:
    """Return the axis with the smallest share of changed slices, and their positions ``[n]`` int64.

    None if the whole tensor has to be stored: it is another kind of tensor, or too much of it has changed.
    """
    if old.dtype != new.dtype or old.ndim != new.ndim or not old.numel() or not new.numel():
        return None
    resized = [axis for axis in range(new.ndim) if old.shape[axis] != new.shape[axis]]
    # what is stored are one axis and its new size, under which the old tensor is laid whole
    if len(resized) > 1 or any(old.shape[axis] > new.shape[axis] for axis in resized):
        return None
    kept = new
    if resized:
        # contiguous, because integers can be viewed only in tensors without gaps
        kept = new.narrow(resized[0], 0, old.shape[resized[0]]).contiguous()
    differs = _bits(old) != _bits(kept)
    best = None
    least = _WORTH
    for axis in resized or range(new.ndim):
        others = [other for other in range(new.ndim) if other != axis]
        # without other axes there is nothing to reduce, and ``any`` of no axis would reduce all
        changed = differs.any(others) if others else differs
        added = torch.arange(old.shape[axis], new.shape[axis])
        at = torch.cat([changed.nonzero()[:, 0], added])
        if len(at) < least * new.shape[axis]:
            best = (axis, at)
            least = len(at) / new.shape[axis]
    return best
