"""Boxes of YOLO: a file of labels for each image, and a file with the names of the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from lw2g.errors import DataError, first_line, shown
from lw2g.pixels.boxes import (
    FORMATS_OF_BOXES,
    MOST_OF_ONE,
    Box,
    BoxFile,
    class_name,
    placed,
    text_within,
    wrong,
)
from lw2g.pixels.found_images import files_below, find_images

__all__ = ["is_in_labels", "read_yolo"]

_LEVELS = 3
"""Folders, from that of the labels upwards, in which the names of YOLO's classes are looked for."""
_NAME_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt")


def _label_files(base: Path) -> list[Path]:
    """Return the files of labels below a folder: those in folders called so, where there are such."""
    every = []
    for file in sorted(files_below(base)):
        if file.suffix.lower() == ".txt" and file.name not in _NAME_FILES:
            every.append(file)
    return [file for file in every if is_in_labels(file, base)] or every


def is_in_labels(file: Path, base: Path) -> bool:
    """Return whether a file lies in a folder called ``labels`` below another."""
    return "labels" in file.relative_to(base).parts[:-1]


def read_yolo(base: Path, folder: Path, names_file: Path | None = None) -> BoxFile:
    """Return the boxes of a folder of labels; as :func:`~lw2g.pixels.box_files.read_boxes`.

    Args:
        base: The folder of the labels, or one above it.
        folder: The images lie in and below it.
        names_file: What names the classes; None where it is looked for.
    """
    files = _label_files(base)
    if not files:
        raise DataError(f"boxes: no file of labels in {str(base)!r}", f"give {FORMATS_OF_BOXES}")
    name_of = _yolo_names(base, names_file)
    images: dict[tuple[str, ...], Path] = {}
    for image in find_images(folder).paths:
        images.setdefault(image.relative_to(folder).with_suffix("").parts, image)
    boxes: list[Box] = []
    counts = []
    numbers = Counter[Path]()
    for file in files:
        places = list(_lines_of(file))
        counts.append((file, len(places)))
        if not places:  # an image without objects
            continue
        stem = file.relative_to(base).with_suffix("").parts
        found = [images[way] for way in _ways(stem) if way in images]
        if not found:
            raise DataError(
                f"boxes: {str(folder)!r} holds no image for {str(file)!r}",
                "give the folder of the images that these labels are of",
            )
        for label, place in places:
            numbers[found[0]] += 1  # several files may be of one image
            boxes.append(
                Box(image=found[0], number=numbers[found[0]], place=place, shares=True, name=name_of(label))
            )
    return BoxFile(path=base, form="yolo", boxes=tuple(boxes), files=tuple(counts))


def _ways(stem: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield where the image of a file of labels may lie: likewise, in ``images``, or without either."""
    yield stem
    yield tuple("images" if part == "labels" else part for part in stem)
    yield tuple(part for part in stem if part != "labels")
    yield ("images", *stem)


def _lines_of(file: Path) -> Iterator[tuple[int, tuple[float, float, float, float]]]:
    """Yield class and place of each box of a file of labels."""
    for number, line in enumerate(text_within(file, MOST_OF_ONE).splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) not in (5, 6):
            wrong(
                file,
                f"line {number} has {len(cells)} numbers, and a box has 5, or 6 with how sure a detector is",
                "write class, x and y of the middle, width and height",
            )
        place = placed(cells[1:5])
        if place is None or not cells[0].isascii() or not cells[0].isdecimal() or len(cells[0]) > 9:
            wrong(file, f"line {number} has no box", "write class, x and y of the middle, width and height")
        middle, centre, width, height = place
        yield int(cells[0]), (middle - width / 2, centre - height / 2, width, height)


def _yolo_names(base: Path, names_file: Path | None) -> Callable[[int], str | None]:
    """Return what gives the name of a number, None for none; names are looked for from the labels upwards."""
    listed: dict[int, str | None] = {}
    file = names_file or _found_names(base)
    if file is not None:
        text = text_within(file, MOST_OF_ONE)
        if file.suffix == ".txt":
            entries: Any = dict(enumerate(text.splitlines()))
        else:
            entries = _names_in_yaml(file, text)
        for number, entry in entries.items():
            if not isinstance(number, int):
                wrong(file, f"names: {shown(number)} is no number of a class", "write 0: NAME")
            listed[number] = class_name(entry, file, f"class {number}")
    return listed.get


def _found_names(base: Path) -> Path | None:
    folder = base.absolute()
    for place in [folder, *folder.parents][:_LEVELS]:
        for name in _NAME_FILES:
            if (place / name).is_file():
                return place / name
    return None


def _names_in_yaml(file: Path, text: str) -> dict[Any, Any]:
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"boxes: {str(file)!r} is no YAML ({first_line(error)})", "write it anew") from error
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        return dict(enumerate(names))
    if not isinstance(names, dict):
        wrong(file, "it has no 'names'", "write names: [CLASS, ...]")
    return names
