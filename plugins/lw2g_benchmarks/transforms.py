"""Image transforms of the benchmarks, on torchvision's v2 transforms (they draw from torch's CPU generator).

No official baseline feeds the statistics its checkpoint was trained with, so what normalises is an option,
as are crop, filter and jitter: no two families of methods share them all.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torchvision.transforms import v2

from lw2g.interfaces.stream import ImageTransform, StagedTransform
from lw2g_benchmarks.options import Interpolation, Normalisation, TransformOptions

__all__ = [
    "TransformPair",
    "make_transforms",
]


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
    ending = _ending(options.normalise, mean, std)
    test = StagedTransform(pixels=v2.Compose(_test_resize(options, image_size)), finish=v2.Compose(ending))
    if options.train_transform == "none":
        return TransformPair(train=test, test=test, train_is_deterministic=True)
    train = v2.Compose([*_augmentation(options, image_size), *ending])
    return TransformPair(train=train, test=test, train_is_deterministic=False)


def _ending(normalise: Normalisation, mean: tuple[float, ...], std: tuple[float, ...]) -> list[Any]:
    steps: list[Any] = [v2.ToDtype(torch.float32, scale=True)]
    if normalise != "unit":
        chosen = (mean, std) if normalise == "native" else _STATISTICS[normalise]
        steps.append(v2.Normalize(list(chosen[0]), list(chosen[1])))
    return steps


def _resize(size: int | tuple[int, int], interpolation: Interpolation) -> Any:
    return v2.Resize(size, interpolation=v2.InterpolationMode(interpolation), antialias=True)


def _before_crop(size: int) -> int:
    """256 for an input of 224."""
    return size * 8 // 7


def _test_resize(options: TransformOptions, size: int) -> list[Any]:
    if options.test_resize == "squash":
        return [_resize((size, size), options.test_interpolation)]
    return [_resize(_before_crop(size), options.test_interpolation), v2.CenterCrop(size)]


def _augmentation(options: TransformOptions, size: int) -> list[Any]:
    flip = [v2.RandomHorizontalFlip()] if options.flip else []
    jitter = [v2.ColorJitter(brightness=options.jitter)] if options.jitter else []
    if options.train_transform == "light":
        shift = v2.RandomCrop(size, padding=max(1, size // 8), padding_mode="reflect")
        return [*_test_resize(options, size), shift, *flip, *jitter]
    crop = v2.RandomResizedCrop(
        size,
        scale=(options.train_scale, 1.0),
        interpolation=v2.InterpolationMode(options.train_interpolation),
        antialias=True,
    )
    if options.jitter_first:
        return [_resize(_before_crop(size), options.train_interpolation), *jitter, crop, *flip]
    return [crop, *flip, *jitter]
