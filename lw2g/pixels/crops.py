"""Crops: each box of a file is an image, cut out of its image when that is decoded."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from lw2g.errors import ConfigError, DataError, counted, no_folder
from lw2g.pixels.box_files import read_boxes
from lw2g.pixels.boxes import Box, BoxFile
from lw2g.pixels.image_files import Crop, ImageHeader, examine_images, upright_size

__all__ = ["Crops", "Cutting", "read_crops"]


_WIDEST = 10.0
"""The largest margin: such a crop has 21 times the width of its box."""
_ROUNDING = 0.05
"""Of a pixel, what rounding adds or lacks: YOLO has six decimals of a share of the image."""


@attrs.frozen(kw_only=True)
class Cutting:
    """How a box becomes an image.

    Attributes:
        margin: Share of the box's width that is added at the left and at the right, and of its height above
            and below.
        min_side: Boxes with a side of fewer pixels are left out.
        square: Whether the shorter side is made as long as the longer one. A transform takes the middle of an
            image, which of a long crop is a small part.

    Raises:
        ConfigError: A value is of no use.
    """

    margin: float = 0.0
    min_side: int = 0
    square: bool = True

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.margin <= _WIDEST:  # NaN is not, either
            raise ConfigError(f"--margin: expected 0 to {_WIDEST:g} but got {self.margin!r}", "such as 0.1")
        if self.min_side < 0:
            raise ConfigError(f"--min-side: expected at least 0 but got {self.min_side!r}", "such as 16")

    def require_default(self) -> None:
        """Refuse values where there are no boxes.

        Raises:
            ConfigError: Some were given.
        """
        if self != Cutting():
            raise ConfigError(
                "--margin, --min-side and --square are of boxes", "give boxes, too, or leave them out"
            )

    def corners(
        self, edges: tuple[float, float, float, float], size: tuple[int, int]
    ) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom of what is cut out, in whole pixels of the image.

        Args:
            edges: Left, top, right and bottom of the box.
            size: Width and height of the image.
        """
        left, top, right, bottom = edges
        width = (right - left) * (1 + 2 * self.margin)
        height = (bottom - top) * (1 + 2 * self.margin)
        if self.square:
            width = height = max(width, height)
        first, end = _placed((left + right) / 2, width, size[0], moves=self.square)
        upper, lower = _placed((top + bottom) / 2, height, size[1], moves=self.square)
        return first, upper, end, lower


def _placed(middle: float, length: float, limit: int, *, moves: bool) -> tuple[int, int]:
    """Return start and end in whole pixels, at least one, within an image.

    Args:
        middle: Of the part.
        length: Of the part.
        limit: The length of the image.
        moves: Whether the part is moved into the image where it reaches over its edge, or else cut there.
    """
    length = min(length, limit) if moves else length
    start = middle - length / 2
    if moves:
        start = min(max(start, 0.0), limit - length)
    # outwards to whole pixels, but for what floating numbers add; within the image
    first = min(max(math.floor(start + _ROUNDING), 0), limit - 1)
    end = max(min(math.ceil(start + length - _ROUNDING), limit), first + 1)
    return first, end


@attrs.frozen(kw_only=True)
class Crops:
    """The crops of a file of boxes.

    Attributes:
        file: The boxes as they are written.
        crops: In the order of the file.
        rows: The number of each one's box in ``file.boxes``.
        notes: What a user should know of them.
    """

    file: BoxFile
    crops: tuple[Crop, ...]
    rows: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str | None, ...]:
        """The class of each crop; None of one without."""
        return tuple(self.file.boxes[row].name for row in self.rows)

    def require_images(self, *, takes_vectors: bool) -> None:
        """Refuse a model on stored features, which takes no images.

        Raises:
            DataError: It is one.
        """
        if takes_vectors:
            raise DataError("boxes: the model is on stored features and takes no images", "leave boxes out")


def read_crops(
    path: str | Path, folder: str | Path, cutting: Cutting = Cutting(), *, named: bool = True
) -> Crops:
    """Return the crops of a file of boxes; every image is looked at, and none is decoded for it.

    Args:
        path: The file, or the folder of YOLO or Pascal VOC.
        folder: The images lie in and below it.
        cutting: How a box becomes an image.
        named: Whether each box must have a class.

    Raises:
        DataError: The file cannot be read; an image is missing or cannot be used; a box lies outside its
            image, has no area, or no class.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(no_folder(folder), "give the folder of the images of the boxes")
    file = read_boxes(Path(path), folder)
    if named:
        _require_names(file)
    headers = _examined(file)
    sizes = {image: upright_size(image) for image in headers}
    bad: list[str] = []
    crops: list[Crop] = []
    rows: list[int] = []
    num_cut = 0
    for row, box in enumerate(file.boxes):
        size = sizes[box.image]
        edges = _edges(box, size)
        problem = _problem(box, edges, size)
        if problem:
            bad.append(f"{str(box.image)!r}#{box.number} {problem}")
            continue
        left, top, right, bottom = edges
        inside = (max(left, 0.0), max(top, 0.0), min(right, size[0]), min(bottom, size[1]))
        # a pixel more or less comes from rounding
        num_cut += max(abs(new - old) for new, old in zip(inside, edges, strict=True)) > 1
        if min(inside[2] - inside[0], inside[3] - inside[1]) < cutting.min_side - _ROUNDING:
            continue
        corners = cutting.corners(inside, size)
        crops.append(Crop(path=box.image, number=box.number, box=corners, file=headers[box.image]))
        rows.append(row)
    if bad:
        raise DataError(
            f"boxes: {str(path)!r}: {counted(len(bad), 'box')} cannot be used, first {bad[0]}",
            "mend the file, or leave them out",
        )
    if not crops:
        raise DataError(
            f"boxes: {str(path)!r}: no box has sides of {cutting.min_side} pixels", "lower min-side"
        )
    notes = tuple(_notes(file, len(crops), num_cut, cutting))
    return Crops(file=file, crops=tuple(crops), rows=tuple(rows), notes=notes)


def _require_names(file: BoxFile) -> None:
    """Refuse boxes without a class.

    Raises:
        DataError: There are some.
    """
    nameless = [box for box in file.boxes if box.name is None]
    if not nameless:
        return
    where = {
        "coco": "list its category in 'categories'",
        "yolo": "name its number in data.yaml or classes.txt beside the labels",
        "voc": "write <name>",
        "csv": "fill the column 'class'",
    }
    first = nameless[0]
    raise DataError(
        f"boxes: {str(file.path)!r}: {counted(len(nameless), 'box')} of a class without a name, first "
        f"{str(first.image)!r}#{first.number}",
        where[file.form],
    )


def _examined(file: BoxFile) -> dict[Path, ImageHeader]:
    """Return the headers of all images with boxes.

    Raises:
        DataError: One is missing, or is no usable image.
    """
    images = list(dict.fromkeys(box.image for box in file.boxes))
    missing = [image for image in images if not os.path.isfile(image)]
    if missing:
        raise DataError(
            f"boxes: {str(file.path)!r}: {len(missing)} of {counted(len(images), 'image')} missing, first "
            f"{str(missing[0])!r}",
            "give the folder that holds the images",
        )
    return examine_images(images)


def _edges(box: Box, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a box in pixels."""
    left, top, width, height = box.place
    if box.shares:
        left, width = left * size[0], width * size[0]
        top, height = top * size[1], height * size[1]
    return left, top, left + width, top + height


def _problem(box: Box, edges: Sequence[float], size: tuple[int, int]) -> str:
    """Return why a box cannot be cut out of its image; empty where it can."""
    left, top, right, bottom = edges
    if box.size is not None and box.size != size:
        named = " x ".join(map(str, box.size))
        return f"is of an image of {named} pixels, and this one has {size[0]} x {size[1]} (upright)"
    if box.place[2] <= 0 or box.place[3] <= 0:
        return "has no area"
    wide = min(right, size[0]) - max(left, 0.0)
    high = min(bottom, size[1]) - max(top, 0.0)
    # side by side, as products of forged numbers may be infinite
    if wide <= 0 or high <= 0 or (wide / (right - left)) * (high / (bottom - top)) < 0.5:
        place = ", ".join(f"{edge:g}" for edge in edges)
        return f"lies outside its image of {size[0]} x {size[1]} pixels (left, top, right, bottom: {place})"
    return ""


def _notes(file: BoxFile, count: int, num_cut: int, cutting: Cutting) -> Iterator[str]:
    """Yield what a user should know of the crops of a file."""
    small = len(file.boxes) - count
    told = {
        "cut at the edge of the image": num_cut,
        f"left out for a side below {cutting.min_side} pixels": small,
        "passed over as crowds": file.crowds,
    }
    for words, number in told.items():
        if number:
            yield f"{str(file.path)!r}: {words}: {counted(number, 'box')}"
