"""Random augmentation of whole batches on the device of the images.

A sample's draws come from integer arithmetic on a seed and the sample's position, so they are the same on
every device and in every batch. Images are bytes, channels last; those of one batch may differ in size, and
then lie in the top left corner of the canvas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["CROP_DRAWS", "brightened", "canvas_of", "crop_boxes", "resampled", "shifted", "uniforms"]

Interpolation = Literal["bilinear", "bicubic"]

# the constants of SplitMix64 (Steele, Lea and Flood, 2014), signed because torch multiplies no other int64
_GOLDEN = -7046029254386353131
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685

_TRIES = 10
CROP_DRAWS = 2 * _TRIES + 2
"""Number of uniform draws for a random crop."""


def canvas_of(images: Sequence[Tensor]) -> Tensor:
    """Return images uint8 ``[h, w, 3]`` in the top left corners of the smallest batch that holds them."""
    height = max(image.shape[0] for image in images)
    width = max(image.shape[1] for image in images)
    if all(image.shape[:2] == (height, width) for image in images):
        return torch.stack(list(images))
    canvas = images[0].new_zeros(len(images), height, width, 3)
    for place, image in zip(canvas, images, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    return canvas


def uniforms(seed: int, positions: Tensor, count: int) -> Tensor:
    """Return ``count`` uniform draws in [0, 1) for each sample, ``[n, count]`` float32.

    A row depends on the seed and the sample's position alone, with the same bits on every device.

    Args:
        seed: The seed of the pass over the images.
        positions: Positions of the samples, ``[n]`` int64.
        count: Draws per sample.
    """
    state = _mixed(positions[:, None] * _GOLDEN + seed)
    steps = torch.arange(1, count + 1, device=positions.device)
    # 24 bits are what float32 holds exactly
    return (_mixed(state + steps * _GOLDEN) >> 40 & 0xFFFFFF).float() * 2**-24


def _mixed(state: Tensor) -> Tensor:
    """Return the output function of SplitMix64 by wrapping int64 arithmetic and logical shifts."""
    state = (state ^ _shifted_right(state, 30)) * _FIRST
    state = (state ^ _shifted_right(state, 27)) * _SECOND
    return state ^ _shifted_right(state, 31)


def _shifted_right(state: Tensor, bits: int) -> Tensor:
    # torch shifts the sign in: the mask takes it out again
    return state >> bits & (1 << 64 - bits) - 1


def crop_boxes(draws: Tensor, sizes: Tensor, *, least: float, stretch: float = 4 / 3) -> Tensor:
    """Return the boxes of random resized crops, ``[n, 4]`` int64: top, left, height, width.

    The distribution is that of torchvision's ``RandomResizedCrop``: a share of the area between ``least`` and
    1, an aspect ratio between ``1 / stretch`` and ``stretch`` (log-uniform), and the largest central crop of
    an allowed ratio if ten tries do not fit.

    Args:
        draws: Uniform draws, ``[n, CROP_DRAWS]``.
        sizes: Heights and widths of the images, ``[n, 2]``.
        least: Least share of the area.
        stretch: The largest aspect ratio.
    """
    height = sizes[:, :1].float()
    width = sizes[:, 1:].float()
    area = height * width * (least + (1 - least) * draws[:, :_TRIES])
    ratio = ((2 * draws[:, _TRIES : 2 * _TRIES] - 1) * math.log(stretch)).exp()
    heights = (area / ratio).sqrt().round()
    widths = (area * ratio).sqrt().round()
    # the first try that fits in the image
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    first = fits.byte().argmax(1, keepdim=True)
    # where no try fits, the first one is not a fit either
    fitted = fits.gather(1, first)
    tall = torch.where(fitted, heights.gather(1, first), torch.minimum(height, (width * stretch).round()))
    wide = torch.where(fitted, widths.gather(1, first), torch.minimum(width, (height * stretch).round()))
    offset = torch.where(fitted, draws[:, 2 * _TRIES :], 0.5)
    # a border of n pixels has n + 1 places; a central crop is not drawn among them
    top = (offset[:, :1] * (height - tall + fitted)).floor()
    left = (offset[:, 1:] * (width - wide + fitted)).floor()
    return torch.cat([top, left, tall, wide], dim=1).long()


def resampled(
    images: Tensor, boxes: Tensor, mirrored: Tensor, *, size: int, interpolation: Interpolation
) -> Tensor:
    """Crop a box from each image, mirror some, and resample all to one size, with antialiasing.

    On the CPU torch's kernel for bytes resamples image by image, elsewhere two matrix products resample the
    whole batch; they agree up to rounding.

    Args:
        images: uint8 ``[B, H, W, 3]``.
        boxes: Top, left, height and width, ``[B, 4]`` int64, on the same device.
        mirrored: Whether to mirror, ``[B]`` bool.
        size: Side S of the result in pixels.
        interpolation: The filter.

    Returns:
        uint8 ``[B, S, S, 3]``.
    """
    if images.device.type == "cpu":
        return _one_by_one(images, boxes, mirrored, size, interpolation)
    return _together(images, boxes, mirrored, size, interpolation)


def _one_by_one(images: Tensor, boxes: Tensor, mirrored: Tensor, size: int, interpolation: str) -> Tensor:
    """Return the crops of images, scaled and mirrored by torch's own kernel, ``[B, size, size, 3]`` uint8.

    Args:
        images: ``[B, H, W, 3]`` uint8.
        boxes: Top, left, height and width of each crop in pixels, ``[B, 4]``.
        mirrored: Whether a crop is mirrored, ``[B]``.
        size: Side of the results in pixels.
        interpolation: How they are resampled.
    """
    batch = torch.empty(len(images), size, size, 3, dtype=torch.uint8)
    each = zip(images, batch, boxes.tolist(), mirrored.tolist(), strict=True)
    for image, out, (top, left, height, width), mirror in each:
        crop = image[top : top + height, left : left + width]
        if mirror:
            crop = crop.flip(1)
        whole = crop.permute(2, 0, 1)[None]
        scaled = F.interpolate(whole, (size, size), mode=interpolation, antialias=True, align_corners=False)
        out.copy_(scaled[0].permute(1, 2, 0))
    return batch


def _together(images: Tensor, boxes: Tensor, mirrored: Tensor, size: int, interpolation: str) -> Tensor:
    """Return what :func:`_one_by_one` returns, for the whole batch by two products with weights."""
    count, height, width, _ = images.shape
    top, left, tall, wide = boxes.unbind(1)
    straight = torch.zeros_like(mirrored)
    down = _weights(top, tall, straight, size, height, interpolation)
    across = _weights(left, wide, mirrored, size, width, interpolation)
    # first each line of pixels to its new width, then each column to its new height
    columns = images.float().transpose(1, 2).reshape(count, width, height * 3)
    narrow = torch.bmm(across, columns).round_().clamp_(0, 255)  # rounded to bytes as in the CPU's kernel
    rows = narrow.view(count, size, height, 3).transpose(1, 2).reshape(count, height, size * 3)
    # bytes again: bicubic filters overshoot at edges
    return torch.bmm(down, rows).round_().clamp_(0, 255).view(count, size, size, 3).byte()


def _weights(
    start: Tensor, length: Tensor, mirrored: Tensor, size: int, limit: int, interpolation: str
) -> Tensor:
    """Return the weights that resample a part of a line of pixels, ``[B, size, limit]``, rows of sum 1.

    Args:
        start: The first pixel of the part, ``[B]``.
        length: Its pixels, ``[B]``.
        mirrored: Whether it is mirrored, ``[B]``.
        size: Pixels of the result.
        limit: Pixels of the line.
        interpolation: The filter.
    """
    device = start.device
    # middles of pixels: of the result, and below of the line
    target = torch.arange(size, device=device) + 0.5
    target = torch.where(mirrored[:, None], size - target, target)
    scale = (length / size)[:, None]
    stretch = scale.clamp(min=1)  # antialiasing: the filter is at least as wide as a step between pixels
    centre = start[:, None] + target * scale
    pixel = torch.arange(limit, device=device) + 0.5
    inside = (pixel > start[:, None]) & (pixel < (start + length)[:, None])
    weights = _filter((pixel - centre[..., None]) / stretch[..., None], interpolation) * inside[:, None]
    return weights / weights.sum(2, keepdim=True)


def _filter(distance: Tensor, interpolation: str) -> Tensor:
    x = distance.abs()
    if interpolation == "bilinear":
        return (1 - x).clamp(min=0)
    near = (1.5 * x - 2.5) * x * x + 1  # Keys, a = -1/2, as in every library that antialiases
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def shifted(images: Tensor, draws: Tensor, mirrored: Tensor, *, most: int) -> Tensor:
    """Shift images by up to ``most`` pixels each way, reflected at the edges, and mirror some.

    Args:
        images: uint8 ``[B, S, S, 3]``.
        draws: Uniform draws, ``[B, 2]``.
        mirrored: Whether to mirror, ``[B]`` bool.
        most: Largest shift in pixels.

    Returns:
        uint8 ``[B, S, S, 3]``.
    """
    count, size = images.shape[:2]
    shift = (draws * (2 * most + 1)).floor().long() - most  # whole pixels, from -most to most
    # for each image from which row and which column of it a pixel comes, [B, S]
    line = torch.arange(size, device=images.device)
    down = _reflected(line + shift[:, :1], size - 1)
    across = _reflected(line + shift[:, 1:], size - 1)
    across = torch.where(mirrored[:, None], across.flip(1), across)
    number = torch.arange(count, device=images.device)
    return images[number[:, None, None], down[:, :, None], across[:, None, :]]


def _reflected(places: Tensor, last: int) -> Tensor:
    """Return places from 0 to ``last``, those outside reflected at the two edges."""
    return last - (last - places.abs()).abs()


def brightened(images: Tensor, draws: Tensor, *, most: float) -> Tensor:
    """Multiply each image by a random factor from ``1 - most`` to ``1 + most``, clipped at white.

    Args:
        images: uint8 ``[B, H, W, 3]``.
        draws: Uniform draws, ``[B]``.
        most: Largest relative change.
    """
    factor = 1 + most * (2 * draws - 1)
    return images.mul(factor[:, None, None, None]).clamp_(max=255).byte()
