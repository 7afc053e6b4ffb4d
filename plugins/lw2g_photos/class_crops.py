"""Crops to learn from: the boxes of a file, by their classes."""

from __future__ import annotations

from lw2g.errors import DataError
from lw2g.pixels.crops import Crops
from lw2g.pixels.image_files import Crop
from lw2g_photos.class_folders import ClassImages

__all__ = ["class_crops"]

_HALF = 32
"""Letters of a SHA-256 that are half of it."""


def class_crops(crops: Crops) -> dict[str, ClassImages]:
    """Return the crops of each class, by sorted class name; each has one.

    Raises:
        DataError: Equal boxes of equal images are of two classes.
    """
    by_class: dict[str, dict[str, Crop]] = {}
    num_found: dict[str, int] = {}
    owner: dict[str, str] = {}
    for crop, name in zip(crops.crops, crops.names, strict=True):
        assert name is not None  # refused before
        digest = _digest_of(crop)
        if owner.setdefault(digest, name) != name:
            raise DataError(
                f"{str(crop)!r} of class {name!r} is a box of class {owner[digest]!r}, too",
                "keep it in one of the two",
            )
        by_class.setdefault(name, {}).setdefault(digest, crop)
        num_found[name] = num_found.get(name, 0) + 1
    images = {}
    for name, found in sorted(by_class.items()):
        images[name] = ClassImages(
            paths=tuple(found.values()), digests=tuple(found), copies=num_found[name] - len(found)
        )
    return images


def _digest_of(crop: Crop) -> str:
    """Return a hash that begins with that of the file: crops of one photo are set apart together.

    Those of which some check the model while others are learned would make it look better than it is.
    """
    return crop.file.digest.hex()[:_HALF] + crop.header.digest.hex()[:_HALF]
