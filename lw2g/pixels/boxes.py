"""Boxes as files have them, and what readers of all formats share.

A file is text from somewhere: it is read under a bound on its size, and its reader looks at what a box needs.
Whether the box fits its image is seen later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

from lw2g.errors import DataError, shown
from lw2g.ground.spelling import composed, is_name
from lw2g.ground.texts import text_of

__all__ = [
    "FORMATS_OF_BOXES",
    "MOST_OF_ONE",
    "Box",
    "BoxFile",
    "class_name",
    "image_at",
    "number_of",
    "placed",
    "size_of",
    "text_within",
    "wrong",
]

_MOST_BYTES = 512 * 2**20
"""Of a file for many images: the 860,000 boxes of COCO's training images take 448 MB."""
MOST_OF_ONE = 16 * 2**20
"""Bytes of a file for one image, or of names, at most."""
FORMATS_OF_BOXES = (
    "a COCO .json, a .csv, a Pascal VOC .xml or a folder of these, a YOLO data.yaml or folder of labels"
)
"""What a user may give."""


@attrs.frozen(kw_only=True)
class Box:
    """A box as a file has it.

    Attributes:
        image: The image, as the file names it or where it was found.
        number: Of the box among those of its image, from 1.
        place: Left, top, width and height, in pixels, or in shares of the image.
        shares: Whether they are shares.
        name: The class; None where the file has none, or a number that has no name.
        size: Width and height of the image in pixels, as the file says; None where it does not.
    """

    image: Path
    number: int
    place: tuple[float, float, float, float]
    shares: bool = False
    name: str | None
    size: tuple[int, int] | None = None


@attrs.frozen(kw_only=True)
class BoxFile:
    """The boxes of a file or a folder.

    Attributes:
        path: The file or the folder.
        form: ``coco``, ``yolo``, ``voc`` or ``csv``.
        boxes: In the order of the file.
        files: Of folders, each file with the number of its boxes, in order; empty of a single file.
        crowds: Boxes of COCO that hold several objects, and were passed over.
    """

    path: Path
    form: str
    boxes: tuple[Box, ...]
    files: tuple[tuple[Path, int], ...] = ()
    crowds: int = 0


def text_within(path: Path, most: int = _MOST_BYTES) -> str:
    """Return the text of a file that is no larger than a bound.

    Raises:
        DataError: It is larger, no file, or no text.
    """
    try:
        if not path.is_file():  # a pipe would wait for whoever writes into it
            raise DataError(f"boxes: {str(path)!r} is no file", f"give {FORMATS_OF_BOXES}")
        if path.stat().st_size > most:
            raise DataError(
                f"boxes: {str(path)!r} has {path.stat().st_size} bytes, and {most} is the most",
                "divide it into several",
            )
        return text_of(path)
    except OSError as error:
        raise DataError(f"boxes: {str(path)!r} cannot be read ({error.strerror})", "check it") from error
    except UnicodeDecodeError as error:
        raise DataError(f"boxes: {str(path)!r} is no text in UTF-8", "write it anew") from error


def wrong(path: Path, what: str, remedy: str) -> NoReturn:
    """Refuse a file of boxes.

    Raises:
        DataError: Always.
    """
    raise DataError(f"boxes: {str(path)!r}: {what}", remedy)


def number_of(value: Any) -> float:
    """Return a finite number; NaN for anything else."""
    if isinstance(value, bool):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def placed(values: Sequence[Any]) -> tuple[float, float, float, float] | None:
    """Return four finite numbers; None for anything else."""
    numbers = [number_of(value) for value in values]
    if len(numbers) != 4 or any(map(math.isnan, numbers)):
        return None
    left, top, width, height = numbers
    return left, top, width, height


def class_name(value: Any, path: Path, where: str) -> str | None:
    """Return the name of a class; None for an empty one.

    Raises:
        DataError: It can name nothing.
    """
    if not isinstance(value, str | int | float):
        wrong(path, f"{where}: the name of a class is a {type(value).__name__}", "write a text")
    name = composed(str(value).strip())
    if not is_name(name):
        wrong(path, f"{where}: no class can be called {shown(name)}", "rename it")
    return name or None


def image_at(name: Any, path: Path, folder: Path, where: str) -> Path:
    """Return where an image is: below the folder, or beside the file that names it."""
    if not isinstance(name, str) or not name:
        wrong(path, f"{where} names no image", "write the path of its image")
    beside = path.parent / name
    # isfile: a forged name may be longer than a system allows, or hold a NUL
    return beside if not os.path.isfile(folder / name) and os.path.isfile(beside) else folder / name


def size_of(width: Any, height: Any) -> tuple[int, int] | None:
    """Return the size of an image; None where a file does not say it, as a width of 0 does not."""
    wide, high = number_of(width), number_of(height)
    return (int(wide), int(high)) if wide >= 1 and high >= 1 else None
