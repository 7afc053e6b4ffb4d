"""Boxes as images of the folder benchmark: by class, in train and test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from lw2g.plugin import Crop, DataError, composed, counted
from lw2g_benchmarks.listed_images import ImageFile

__all__ = ["SPLIT_FOLDERS", "UNDRAWN", "ClassFiles", "crops_by_class"]

SPLIT_FOLDERS = ("train", "test")
ClassFiles: TypeAlias = tuple[Path, Mapping[str, tuple[ImageFile, ...]]]
"""The root of a class, and its images by split."""
UNDRAWN = "all"
"""In place of a split: the images of a class from which those that test have yet to be drawn."""


def crops_by_class(
    root: Path, crops: Iterable[tuple[Crop, str | None]], notes: list[str], *, drawn: bool
) -> dict[str, ClassFiles]:
    """Return class name -> crops by split, which the first folder below the root says, or a draw to come.

    Raises:
        DataError: An image lies outside the root, or a class has no image in a split.
    """
    named: dict[str, list[Crop]] = {}
    for crop, name in crops:
        if not crop.path.is_relative_to(root):
            raise DataError(
                f"benchmark.boxes: {str(crop.path)!r} lies outside {str(root)!r}",
                "set benchmark.root to a folder that holds all images",
            )
        named.setdefault(str(name), []).append(crop)
    classes: dict[str, ClassFiles] = {}
    left_out = 0
    for name, of_class in sorted(named.items()):
        of_class.sort(key=lambda crop: (composed(crop.path.as_posix()), crop.number))
        if drawn:
            classes[name] = (root, {UNDRAWN: tuple(of_class)})
            continue
        splits: dict[str, tuple[ImageFile, ...]] = {}
        for split in SPLIT_FOLDERS:
            found = [crop for crop in of_class if crop.path.relative_to(root).parts[0].lower() == split]
            if not found:
                raise DataError(
                    f"benchmark.boxes: no box of class {name!r} is of an image in {str(root / split)!r}",
                    "put the images into train/ and test/, or draw the test images with "
                    "--set benchmark.test_share=0.2",
                )
            splits[split] = tuple(found)
        left_out += len(of_class) - sum(map(len, splits.values()))
        classes[name] = (root, splits)
    if left_out:
        notes.append(f"{root.name}: {counted(left_out, 'box')} of images outside train/ and test/ left out")
    return classes
