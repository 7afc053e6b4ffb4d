"""Boxes of many images in one file: COCO, and tables as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lw2g.errors import DataError, first_line, shown
from lw2g.pixels.boxes import Box, BoxFile, class_name, image_at, placed, size_of, text_within, wrong

__all__ = ["coco_of", "read_coco", "read_csv", "rows_of_csv"]

COLUMNS = ("path", "x", "y", "w", "h")
"""Columns that a CSV of boxes must have; ``class`` may follow, and any other."""


def coco_of(path: Path) -> dict[str, Any]:
    """Return the content of a COCO file, with its three lists of objects.

    Raises:
        DataError: It is none.
    """
    text = text_within(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, or a number of too many digits
        raise DataError(f"boxes: {str(path)!r} is no JSON ({first_line(error)})", "write it anew") from error
    except MemoryError as error:  # a forged file may hold a hundred million empty lists
        what = f"boxes: {str(path)!r} takes more memory than there is"
        raise DataError(what, "divide it into several") from error
    if isinstance(content, list):
        wrong(path, "a list of results names no image file", "give a COCO file with 'images', too")
    if not isinstance(content, dict):
        wrong(path, "it is no COCO file", "write 'images', 'annotations' and 'categories'")
    for key in ("images", "annotations", "categories"):
        entries = content.get(key)
        if not isinstance(entries, list):
            wrong(path, f"it has no list {key!r}", "write 'images', 'annotations' and 'categories'")
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, dict):
                wrong(path, f"{key} {number} is a {type(entry).__name__}", "write an object")
    return content


def read_coco(path: Path, folder: Path) -> BoxFile:
    """Return the boxes of a COCO file; as :func:`~lw2g.pixels.box_files.read_boxes`."""
    content = coco_of(path)
    names = {}
    for number, entry in enumerate(content["categories"], 1):
        where = f"category {number}"
        names[_id_in(entry, "id", path, where)] = class_name(entry.get("name", ""), path, where)
    images = {}
    for number, entry in enumerate(content["images"], 1):
        where = f"image {number}"
        at = image_at(entry.get("file_name"), path, folder, where)
        images[_id_in(entry, "id", path, where)] = (at, size_of(entry.get("width"), entry.get("height")))
    boxes = []
    crowds = 0
    count = Counter[Path]()
    for number, entry in enumerate(content["annotations"], 1):
        where = f"annotation {number}"
        if entry.get("iscrowd"):
            crowds += 1
            continue
        image = _id_in(entry, "image_id", path, where)
        if image not in images:
            wrong(path, f"{where} is of the image {shown(image)}, which is not in 'images'", "add it")
        box = entry.get("bbox")
        place = placed(box) if isinstance(box, list) else None
        if place is None:
            wrong(path, f"{where} has no box", "write bbox: [x, y, width, height]")
        at, size = images[image]
        count[at] += 1
        name = names.get(entry["category_id"]) if _is_id(entry.get("category_id")) else None
        boxes.append(Box(image=at, number=count[at], place=place, name=name, size=size))
    return BoxFile(path=path, form="coco", boxes=tuple(boxes), crowds=crowds)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _id_in(entry: Mapping[str, Any], key: str, path: Path, where: str) -> str | int:
    value = entry.get(key)
    if not isinstance(value, str | int) or isinstance(value, bool):
        wrong(path, f"{where} has no {key!r}", "write a number")
    return value


def rows_of_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and the rows of a CSV of boxes.

    Raises:
        DataError: A column is missing, or a row has more cells than there are columns.
    """
    reader = csv.DictReader(io.StringIO(text_within(path), newline=""))
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = columns
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"boxes: {str(path)!r} is no CSV ({first_line(error)})", "write it anew") from error
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        wrong(path, f"there is no column {missing[0]!r}", f"begin with the line {','.join(COLUMNS)},class")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():  # more cells than columns, or fewer
            wrong(path, f"row {number} has not the {len(columns)} cells of the first line", "mend it")
    return columns, rows


def read_csv(path: Path, folder: Path) -> BoxFile:
    """Return the boxes of a CSV; as :func:`~lw2g.pixels.box_files.read_boxes`."""
    _, rows = rows_of_csv(path)
    boxes = []
    images: dict[str, Path] = {}  # each is looked for once, whatever the number of its boxes
    count = Counter[Path]()
    for number, row in enumerate(rows, 1):
        where = f"row {number}"
        if row["path"] not in images:
            images[row["path"]] = image_at(row["path"], path, folder, where)
        at = images[row["path"]]
        place = placed([row[name] for name in COLUMNS[1:]])
        if place is None:
            wrong(path, f"{where} has no box", "write x, y, w and h in pixels")
        count[at] += 1
        name = class_name(row.get("class", ""), path, where)
        boxes.append(Box(image=at, number=count[at], place=place, name=name))
    return BoxFile(path=path, form="csv", boxes=tuple(boxes))
