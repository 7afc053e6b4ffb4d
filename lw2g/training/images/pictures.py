"""A user's images (files, PIL images, tensors) as decoded pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from PIL import Image
from torch import Tensor

from lw2g.blocks.image_files import read_image, to_rgb
from lw2g.errors import DataError

__all__ = ["ImageLike", "as_list", "pixels_of"]

ImageLike: TypeAlias = "Tensor | Image.Image | str | Path"


def as_list(images: ImageLike | Sequence[ImageLike]) -> Sequence[ImageLike]:
    """Return images one by one: a batch ``[B, 3, H, W]`` cut into its rows, a single image alone in a list.

    Raises:
        DataError: There is none, or something is no image.
    """
    if isinstance(images, Tensor):
        images = list(images) if images.ndim == 4 else [images]
    elif isinstance(images, str | Path | Image.Image) or not isinstance(images, Sequence):
        images = [images]
    if not len(images):
        raise DataError("no image was given", "give at least one")
    for image in images:
        if not isinstance(image, Tensor | Image.Image | str | Path):
            raise DataError(
                f"a {type(image).__name__} is no image",
                "give paths, PIL images, or tensors [3, H, W] (from an array: PIL.Image.fromarray)",
            )
    return images


def pixels_of(image: str | Path | Image.Image) -> Tensor:
    """Return decoded pixels as RGB, uint8 ``[3, H, W]``.

    Raises:
        DataError: A file cannot be read as an image, or holds numbers of unknown range.
    """
    if isinstance(image, Image.Image):
        return to_rgb(image)
    return read_image(Path(image))
