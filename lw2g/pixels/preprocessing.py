"""The usual test transform, from a decoded image to network input, as a plain value.

An exported model can store such a value; a transform made of functions stays with its benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal

import attrs
import torch
from torch import Tensor

from lw2g.interfaces.stream import ImageTransform, StagedTransform
from lw2g.pixels.resampling import Interpolation, center_crop, channels_last, resize

__all__ = ["AsStored", "Preprocessing"]


class _Finish:
    """Normalisation of bytes to floats: the bits of v2's ``ToDtype`` and ``Normalize``, in one tensor."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._statistics = torch.tensor([mean, std])[..., None, None]
        self._on: dict[torch.device, Tensor] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """Map uint8 [..., 3, S, S] to float32."""
        if images.device not in self._on:
            self._on[images.device] = self._statistics.to(images.device)
        mean, std = self._on[images.device]
        result = torch.empty(images.shape, device=images.device)
        pairs: Iterable[tuple[Tensor, Tensor]] = [(result, images)]
        if images.ndim == 4 and result.is_cpu:
            # one by one, so that each image stays in the CPU's cache
            pairs = zip(result, images, strict=True)
        for out, image in pairs:
            out.copy_(image).mul_(1 / 255).sub_(mean).div_(std)  # bytes to numbers from 0 to 1 first
        return result


@attrs.frozen(kw_only=True, eq=False)
class Preprocessing(StagedTransform):
    """A deterministic transform of resizing, cropping and normalising.

    Attributes:
        size: Side S of the network input in pixels.
        resize: ``"squash"`` resizes to S x S; ``"crop"`` resizes the shorter side to 8/7 of S (256 for 224)
            and crops the centre.
        interpolation: The filter of the resize.
        mean: Mean of each channel, of values from 0 to 1.
        std: Standard deviation of each channel.
    """

    size: int
    resize: Literal["squash", "crop"] = "squash"
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pixels: ImageTransform = attrs.field(init=False, repr=False)
    finish: ImageTransform = attrs.field(init=False, repr=False)

    @property
    def before_crop(self) -> int:
        """The shorter side from which the centre is cropped, in pixels."""
        return self.size * 8 // 7

    @pixels.default
    def _resampled(self) -> ImageTransform:
        resized_to: int | tuple[int, int] = (self.size, self.size)
        if self.resize == "crop":
            resized_to = self.before_crop  # of the shorter side: the image keeps its shape
        return partial(_resampled, resized_to=resized_to, size=self.size, interpolation=self.interpolation)

    @finish.default
    def _normalised(self) -> ImageTransform:
        return _Finish(self.mean, self.std)


def _resampled(
    image: Tensor, *, resized_to: int | tuple[int, int], size: int, interpolation: Interpolation
) -> Tensor:
    """Map uint8 [3, H, W] to uint8 [3, S, S]: the centre of the resized image."""
    return center_crop(resize(channels_last(image), resized_to, interpolation), size)


@attrs.frozen
class AsStored:
    """The transform of stored features: a vector is taken as it is.

    Attributes:
        size: Side of an image in pixels, 0 because there is none. A protocol knows a transform with a size by
            its numbers, and not by the module that it lies in.
    """

    size: int = 0

    def __call__(self, vector: Tensor) -> Tensor:
        """Return the vector ``[dim]``."""
        return vector
