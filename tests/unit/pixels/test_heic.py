"""Photographs of phones: HEIC is read where pillow-heif is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lw2g.errors import DataError
from lw2g.pixels.found_images import find_images, image_ending, passed_over
from lw2g.pixels.heic import register_heic
from lw2g.pixels.image_files import examine_image, read_image, upright_size

pytest.importorskip("pillow_heif", reason="HEIC needs pillow-heif (extra heic)")


def written(path: Path) -> np.ndarray:
    """Write a picture with a red left half, and return its pixels."""
    pixels = np.zeros((48, 64, 3), dtype=np.uint8)
    pixels[:, :32, 0] = 200
    register_heic()
    Image.fromarray(pixels).save(path, format="HEIF", quality=95)
    return pixels


@pytest.mark.parametrize("name", ["photo.HEIC", "photo.heif", "renamed.jpg"])
def test_heic_is_an_image_like_others(tmp_path: Path, name: str) -> None:
    """It is found, examined and decoded by its content, whatever it is called."""
    pixels = written(tmp_path / name)
    found = find_images(tmp_path)
    assert found.paths == (tmp_path / name,)
    assert passed_over([found]) == ""
    assert image_ending(name) == Path(name).suffix.lower()
    assert examine_image(tmp_path / name).size == upright_size(tmp_path / name) == (64, 48)
    read = read_image(tmp_path / name).permute(1, 2, 0).numpy()
    assert np.abs(read.astype(int) - pixels).mean() < 4


def test_a_broken_heic_is_one_line(tmp_path: Path) -> None:
    """A file that was cut off is refused when it is examined, and named."""
    written(tmp_path / "x.heic")
    content = (tmp_path / "x.heic").read_bytes()
    for end in (16, 200, len(content) - 40):
        (tmp_path / "x.heic").write_bytes(content[:end])
        with pytest.raises(DataError, match=r"x\.heic"):
            examine_image(tmp_path / "x.heic")
