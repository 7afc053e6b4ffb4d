"""Image transforms of the benchmarks, on torchvision's v2 transforms (they draw from torch's CPU generator).

No official baseline feeds the statistics its checkpoint was trained with, so what normalises is an option,
as are crop, filter and jitter: no two families of methods share them all.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor
from torchvision.transforms import v2

from lw2g.blocks.augmentation import CROP_DRAWS, brightened, crop_boxes, resampled, shifted
from lw2g.interfaces.stream import ImageTransform, RandomTransform, StagedTransform
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
    finish = _Finish(*_statistics(options.normalise, mean, std))
    test = StagedTransform(
        pixels=v2.Compose([_channels_last, *_test_resize(options, image_size)]), finish=finish
    )
    if options.train_transform == "none":
        return TransformPair(train=test, test=test, train_is_deterministic=True)
    train = RandomTransform(
        image=v2.Compose([*_augmentation(options, image_size), finish]),
        batch=_Batches(options, image_size, test.pixels, finish),
    )
    return TransformPair(train=train, test=test, train_is_deterministic=False)


def _statistics(
    normalise: Normalisation, mean: tuple[float, ...], std: tuple[float, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    match normalise:
        case "unit":
            return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        case "native":
            return mean, std
        case _:
            return _STATISTICS[normalise]


class _Finish:
    """From bytes to normalised floats: the bits of v2's ``ToDtype`` and ``Normalize``, in one new tensor."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._statistics = torch.tensor([mean, std])[..., None, None]
        self._on: dict[torch.device, Tensor] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """Map uint8 [..., 3, S, S] to float32."""
        if images.device not in self._on:
            self._on[images.device] = self._statistics.to(images.device)
        mean, std = self._on[images.device]
        made = torch.empty(images.shape, device=images.device)
        one_by_one = images.ndim == 4 and made.is_cpu  # what is computed then stays in the cache
        for out, image in zip(made, images, strict=True) if one_by_one else [(made, images)]:
            out.copy_(image).mul_(1 / 255).sub_(mean).div_(std)
        return made


def _channels_last(image: Tensor) -> Tensor:
    """Return the same image as the resampling of bytes reads it fastest."""
    return image.permute(1, 2, 0).contiguous().permute(2, 0, 1)


class _Batches:
    """The training transforms by the batch; a sample draws its crop, mirroring and brightness."""

    draws = CROP_DRAWS + 2

    def __init__(
        self, options: TransformOptions, size: int, still: ImageTransform, finish: ImageTransform
    ) -> None:
        self._options, self._size, self._still, self._finish = options, size, still, finish

    def pixels(self, image: Tensor) -> Tensor:
        """Return what is kept of an image: at most as large as the test transform reads it, channels last."""
        if self._options.train_transform == "light":
            return self._still(image).permute(1, 2, 0)
        most = _before_crop(self._size)
        size = [min(side, most) for side in image.shape[1:]]
        image = _channels_last(image)
        if size != list(image.shape[1:]):
            image = v2.functional.resize(
                image, size, v2.InterpolationMode(self._options.train_interpolation), antialias=True
            )
        return image.permute(1, 2, 0)

    def __call__(self, images: Tensor, shapes: Tensor, draws: Tensor) -> Tensor:
        """Map uint8 [B, h, w, 3] to float32 [B, 3, S, S]."""
        options, size = self._options, self._size
        mirrored = draws[:, CROP_DRAWS] < (0.5 if options.flip else 0.0)
        brightness = draws[:, CROP_DRAWS + 1]
        if options.jitter and options.jitter_first:
            images = brightened(images, brightness, most=options.jitter)
        if options.train_transform == "light":
            made = shifted(images, draws[:, :2], mirrored, most=_largest_shift(size))
        else:
            boxes = _scaled(
                crop_boxes(draws[:, :CROP_DRAWS], shapes[:, 2:], least=options.train_scale), shapes
            )
            made = resampled(images, boxes, mirrored, size=size, interpolation=options.train_interpolation)
        if options.jitter and not options.jitter_first:
            made = brightened(made, brightness, most=options.jitter)
        return self._finish(made.permute(0, 3, 1, 2))


def _scaled(boxes: Tensor, shapes: Tensor) -> Tensor:
    """Return boxes [B, 4] of images of size H, W as boxes of what is kept of them, h, w."""
    kept, whole = shapes[:, :2], shapes[:, 2:]
    factor = kept / whole
    lengths = (boxes[:, 2:] * factor).round().long().clamp(min=1)
    return torch.cat([torch.minimum((boxes[:, :2] * factor).round().long(), kept - lengths), lengths], dim=1)


def _resize(size: int | tuple[int, int], interpolation: Interpolation) -> Any:
    return v2.Resize(size, interpolation=v2.InterpolationMode(interpolation), antialias=True)


def _before_crop(size: int) -> int:
    """256 for an input of 224."""
    return size * 8 // 7


def _largest_shift(size: int) -> int:
    return max(1, size // 8)


def _test_resize(options: TransformOptions, size: int) -> list[Any]:
    if options.test_resize == "squash":
        return [_resize((size, size), options.test_interpolation)]
    return [_resize(_before_crop(size), options.test_interpolation), v2.CenterCrop(size)]


def _augmentation(options: TransformOptions, size: int) -> list[Any]:
    flip = [v2.RandomHorizontalFlip()] if options.flip else []
    jitter = [v2.ColorJitter(brightness=options.jitter)] if options.jitter else []
    if options.train_transform == "light":
        shift = v2.RandomCrop(size, padding=_largest_shift(size), padding_mode="reflect")
        return [_channels_last, *_test_resize(options, size), shift, *flip, *jitter]
    crop = v2.RandomResizedCrop(
        size,
        scale=(options.train_scale, 1.0),
        interpolation=v2.InterpolationMode(options.train_interpolation),
        antialias=True,
    )
    if options.jitter_first:
        before = _resize(_before_crop(size), options.train_interpolation)
        return [_channels_last, before, *jitter, crop, *flip]
    return [_channels_last, crop, *flip, *jitter]
