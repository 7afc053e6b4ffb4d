"""Resizing and cropping of images: the bits of torchvision's v2 transforms, without importing torchvision.

torchvision takes longer to import than torch itself, because it brings torch's compiler along. torch does the
arithmetic for both; what is written down here is which torch calls torchvision makes of bytes.
"""

from __future__ import annotations

import platform
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import interpolate

__all__ = ["Interpolation", "center_crop", "channels_last", "resize"]

Interpolation: TypeAlias = Literal["bilinear", "bicubic"]


def channels_last(image: Tensor) -> Tensor:
    """Return the same image in the memory format that torch resamples fastest."""
    return image.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def resize(image: Tensor, size: int | tuple[int, int], interpolation: Interpolation) -> Tensor:
    """Return an image resized with antialiasing, as torchvision's ``v2.functional.resize`` returns it.

    Args:
        image: uint8 ``[3, H, W]``.
        size: Its new shorter side, or its new height and width.
        interpolation: The filter.
    """
    old = tuple(image.shape[1:])
    new = _scaled_to(old, size) if isinstance(size, int) else tuple(size)
    # as torchvision does: an image of the right size goes through no kernel
    if new == old:
        return image
    batch = image[None]
    if batch.is_contiguous(memory_format=torch.channels_last) and batch.stride(0) != image.numel():
        # with the stride of a whole image torch sees that the batch of one lies channels last, and so
        # resamples it in place of a copy
        batch = batch.as_strided(batch.shape, (image.numel(), *batch.stride()[1:]))
    resamples_bytes = image.is_cpu and (interpolation == "bicubic" or _resamples_bytes_bilinearly())
    if not resamples_bytes:
        batch = batch.float()
    resampled = interpolate(batch, size=new, mode=interpolation, align_corners=False, antialias=True)[0]
    if resamples_bytes:
        return resampled
    if interpolation == "bicubic":  # it overshoots
        resampled = resampled.clamp_(min=0, max=255)
    return resampled.round_().to(torch.uint8)


def center_crop(image: Tensor, size: int) -> Tensor:
    """Return the centre of an image ``[3, H, W]`` that is at least as large: a view ``[3, size, size]``.

    An odd border is split by rounding to even, as torchvision does.
    """
    height, width = image.shape[1:]
    top = round((height - size) / 2)
    left = round((width - size) / 2)
    return image[:, top : top + size, left : left + size]


def _scaled_to(old: tuple[int, ...], shorter: int) -> tuple[int, ...]:
    """Return the height and width of an image that keeps its shape, with a new shorter side."""
    longer = int(shorter * max(old) / min(old))  # torchvision cuts off, too
    height, width = old
    if width <= height:
        return (longer, shorter)
    return (shorter, longer)


def _resamples_bytes_bilinearly() -> bool:
    """Whether torch's kernel for bilinear resampling of bytes is there, which others emulate in floats."""
    fast = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return fast or platform.machine() in ("aarch64", "arm64")
