"""Image transforms of the benchmarks, on torchvision's v2 transforms (they draw from torch's CPU generator).

No official baseline feeds the statistics its checkpoint was trained with, so what normalises is an option.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torchvision.transforms import v2

from lw2g.interfaces.stream import ImageTransform
from lw2g_benchmarks.options import Normalisation, TestResize, TrainTransform

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
    *,
    image_size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    normalise: Normalisation = "native",
    train_transform: TrainTransform = "none",
    test_resize: TestResize = "squash",
) -> TransformPair:
    """Return the transforms for one choice of options.

    Args:
        image_size: Side S of the network input in pixels.
        mean: Native channel means of the backbone.
        std: Native channel standard deviations of the backbone.
        normalise: Which statistics to use.
        train_transform: Augmentation of training images.
        test_resize: How test images reach the input size.
    """
    ending = _ending(normalise, mean, std)
    resize = _test_resize(test_resize, image_size)
    test = v2.Compose([*resize, *ending])
    if train_transform == "none":
        return TransformPair(train=test, test=test, train_is_deterministic=True)
    train = v2.Compose([*_augmentation(train_transform, image_size, resize), *ending])
    return TransformPair(train=train, test=test, train_is_deterministic=False)


def _ending(normalise: Normalisation, mean: tuple[float, ...], std: tuple[float, ...]) -> list[Any]:
    steps: list[Any] = [v2.ToDtype(torch.float32, scale=True)]
    if normalise != "unit":
        chosen = (mean, std) if normalise == "native" else _STATISTICS[normalise]
        steps.append(v2.Normalize(list(chosen[0]), list(chosen[1])))
    return steps


def _test_resize(rule: TestResize, size: int) -> list[Any]:
    bicubic = v2.InterpolationMode.BICUBIC
    if rule == "squash":
        return [v2.Resize((size, size), interpolation=bicubic, antialias=True)]
    # 256 for an input of 224.
    return [v2.Resize(size * 8 // 7, interpolation=bicubic, antialias=True), v2.CenterCrop(size)]


def _augmentation(name: TrainTransform, size: int, resize: list[Any]) -> list[Any]:
    flip = v2.RandomHorizontalFlip()
    if name == "light":
        return [*resize, v2.RandomCrop(size, padding=max(1, size // 8), padding_mode="reflect"), flip]
    low = 0.05 if name == "rrc" else 0.08
    crop = v2.RandomResizedCrop(
        size, scale=(low, 1.0), interpolation=v2.InterpolationMode.BICUBIC, antialias=True
    )
    return [crop, flip] if name == "rrc" else [crop, flip, v2.ColorJitter(brightness=63 / 255)]
