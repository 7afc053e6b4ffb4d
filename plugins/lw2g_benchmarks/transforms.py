"""Image transforms of the benchmarks.

Those of the training by the image are torchvision's v2 transforms, which draw from torch's CPU generator.

No official baseline feeds the statistics its checkpoint was trained with, so what normalises is an option,
as are crop, filter and jitter: no two families of methods share them all.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.plugin import (
    CROP_DRAWS,
    ImageTransform,
    Preprocessing,
    RandomTransform,
    StagedTransform,
    brightened,
    channels_last,
    crop_boxes,
    resampled,
    resize,
    shifted,
)
from lw2g_benchmarks.options import Normalisation, TransformOptions

__all__ = ["ConfiguredTransforms", "TransformPair", "make_transforms"]


# means and standard deviations of the channels
_STATISTICS = {
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


@attrs.frozen(kw_only=True, eq=False)
class TransformPair:
    """A training and a test transform, uint8 [3, H, W] to float32 [3, S, S]."""

    train: ImageTransform
    test: ImageTransform
    train_is_deterministic: bool


class ConfiguredTransforms:
    """What benchmarks have in common whose options say what is done to images."""

    __slots__ = ()

    config: TransformOptions

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return the configured transforms."""
        return make_transforms(self.config, image_size=image_size, mean=mean, std=std)


def make_transforms(
    options: TransformOptions, *, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> TransformPair:
    """Return the transforms for one choice of options.

    Args:
        options: What to do.
        image_size: Side S of the network input in pixels.
        mean: Native channel means of the backbone.
        std: Native channel standard deviations of the backbone.
    """
    mean, std = _statistics(options.normalise, mean, std)
    test = Preprocessing(
        size=image_size,
        resize=options.test_resize,
        interpolation=options.test_interpolation,
        mean=mean,
        std=std,
    )
    if options.train_transform == "none":
        # features of an image are then the same in every epoch, and can be kept
        return TransformPair(train=test, test=test, train_is_deterministic=True)
    one = StagedTransform(pixels=_ByImage(options, test), finish=test.finish)
    train = RandomTransform(image=one, batch=_Batches(options, test))
    return TransformPair(train=train, test=test, train_is_deterministic=False)


def _statistics(
    normalise: Normalisation, mean: tuple[float, ...], std: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of the channels: none, the backbone's own, or published ones."""
    match normalise:
        case "unit":
            return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        case "native":
            return mean, std
        case _:
            return _STATISTICS[normalise]


class _ByImage:
    """The training transforms by the image, put together when the first image comes."""

    def __init__(self, options: TransformOptions, test: Preprocessing) -> None:
        self._options = options
        self._test = test

    def __call__(self, image: Tensor) -> Tensor:
        """Map uint8 [3, H, W] to uint8 [3, S, S]."""
        transformed: Tensor = self._composed(image)
        return transformed

    @cached_property
    def _composed(self) -> Any:
        return _augmentation(self._options, self._test)


class _Batches:
    """The training transforms by the batch; a sample draws its crop, mirroring and brightness."""

    draws = CROP_DRAWS + 2

    def __init__(self, options: TransformOptions, test: Preprocessing) -> None:
        self._options = options
        self._test = test

    def pixels(self, image: Tensor) -> Tensor:
        """Return the kept pixels: at most as many as the test transform reads, channels last."""
        if self._options.train_transform == "light":
            return self._test.pixels(image).permute(1, 2, 0)
        # random crops: each side is scaled for itself, as boxes are, so the image's shape need not be kept
        most = self._test.before_crop
        height = min(image.shape[1], most)
        width = min(image.shape[2], most)
        kept = resize(channels_last(image), (height, width), self._options.train_interpolation)
        return kept.permute(1, 2, 0)

    def __call__(self, images: Tensor, shapes: Tensor, draws: Tensor) -> Tensor:
        """Map uint8 [B, h, w, 3] to float32 [B, 3, S, S]."""
        options = self._options
        size = self._test.size
        # a sample has the same numbers whatever is switched on: an option changes what it does alone
        share = 0.5 if options.flip else 0.0
        mirrored = draws[:, CROP_DRAWS] < share
        brightness = draws[:, CROP_DRAWS + 1]
        if options.jitter and options.jitter_first:
            images = brightened(images, brightness, most=options.jitter)
        if options.train_transform == "light":
            batch = shifted(images, draws[:, :2], mirrored, most=_largest_shift(size))
        else:
            # boxes are drawn on the image as it was, so that their areas are shares of the whole image
            boxes = crop_boxes(draws[:, :CROP_DRAWS], shapes[:, 2:], least=options.train_scale)
            boxes = _scaled(boxes, shapes)
            batch = resampled(images, boxes, mirrored, size=size, interpolation=options.train_interpolation)
        if options.jitter and not options.jitter_first:
            batch = brightened(batch, brightness, most=options.jitter)
        return self._test.finish(batch.permute(0, 3, 1, 2))


def _scaled(boxes: Tensor, shapes: Tensor) -> Tensor:
    """Return boxes [B, 4] of images of size H, W as boxes of their kept pixels, of size h, w."""
    kept = shapes[:, :2]
    factor = kept / shapes[:, 2:]
    lengths = (boxes[:, 2:] * factor).round().long().clamp(min=1)
    corners = (boxes[:, :2] * factor).round().long()
    # corner and length are rounded apart, and together may lead one pixel out of the image
    corners = torch.minimum(corners, kept - lengths)
    return torch.cat([corners, lengths], dim=1)


def _largest_shift(size: int) -> int:
    return max(1, size // 8)


def _augmentation(options: TransformOptions, test: Preprocessing) -> Any:
    """Return the steps of the training transforms as one, of torchvision."""
    from torchvision.transforms import v2  # slow to import, and batches need it not

    size = test.size
    flip = []
    if options.flip:
        flip = [v2.RandomHorizontalFlip()]
    jitter = []
    if options.jitter:
        jitter = [v2.ColorJitter(brightness=options.jitter)]
    if options.train_transform == "light":
        shift = v2.RandomCrop(size, padding=_largest_shift(size), padding_mode="reflect")
        return v2.Compose([test.pixels, shift, *flip, *jitter])
    # random crops, of any part of the image as it was
    crop = v2.RandomResizedCrop(
        size,
        scale=(options.train_scale, 1.0),
        interpolation=v2.InterpolationMode(options.train_interpolation),
        antialias=True,
    )
    if options.jitter_first:
        # as CPrompt does: crops are cut from an image that has been made smaller, and brighter, before
        before = partial(resize, size=test.before_crop, interpolation=options.train_interpolation)
        return v2.Compose([channels_last, before, *jitter, crop, *flip])
    return v2.Compose([channels_last, crop, *flip, *jitter])
