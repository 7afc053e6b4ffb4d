"""Folders of images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["grey_classes", "write_images"]


def write_images(folder: Path, images: Iterable[npt.NDArray[Any]]) -> None:
    """Write images as ``FOLDER/0.png`` and so on; values that are no bytes are cut off."""
    folder.mkdir(parents=True)
    for number, pixels in enumerate(images):
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.png")


def grey_classes(root: Path) -> Path:
    """Write eight noisy images of each of the classes dark and light, and return the root."""
    draw = np.random.default_rng(0)
    for name, shade in (("dark", 0), ("light", 150)):
        write_images(root / name, (draw.integers(0, 80, (16, 16, 3)) + shade for _ in range(8)))
    return root
