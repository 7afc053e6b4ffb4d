"""Files of boxes, as detectors and people who annotate write them: COCO, YOLO, Pascal VOC, and CSV.

A file is text from somewhere: it is read under a bound on its size, XML without a document type (which can
hold entities), and what a box needs is looked at here; whether a box fits its image is not.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import attrs
import yaml

from lw2g.errors import DataError, first_line, shown
from lw2g.ground.spelling import composed, is_name
from lw2g.ground.texts import text_of
from lw2g.pixels.found_images import files_below, find_images

__all__ = ["COLUMNS", "Box", "BoxFile", "coco_of", "parsed_xml", "read_boxes", "rows_of_csv", "text_within"]

COLUMNS = ("path", "x", "y", "w", "h")
"""Columns that a CSV of boxes must have; ``class`` may follow, and any other."""
_MOST_BYTES = 512 * 2**20
"""Of a file for many images: the 860,000 boxes of COCO's training images take 448 MB."""
_MOST_OF_ONE = 16 * 2**20
"""Bytes of a file for one image, or of names, at most."""
_LEVELS = 3
"""Folders, from that of the labels upwards, in which the names of YOLO's classes are looked for."""
_NAME_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt")
_FORMATS = (
    "a COCO .json, a .csv, a Pascal VOC .xml or a folder of these, a YOLO data.yaml or folder of labels"
)


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


def read_boxes(path: Path, folder: Path) -> BoxFile:
    """Return the boxes of a file or a folder.

    Args:
        path: The file or the folder.
        folder: The images lie in and below it, unless they lie beside the file.

    Raises:
        DataError: It cannot be read, or something in it is no box; an image may still be missing.
    """
    if not path.exists():
        raise DataError(f"boxes: there is nothing at {str(path)!r}", f"give {_FORMATS}")
    found = _read_folder(path, folder) if path.is_dir() else _read_file(path, folder)
    if not found.boxes:
        raise DataError(f"boxes: {str(path)!r} holds no box", "give a file with boxes")
    return found


def _read_file(path: Path, folder: Path) -> BoxFile:
    ending = path.suffix.lower()
    if ending == ".json":
        return _read_coco(path, folder)
    if ending == ".csv":
        return _read_csv(path, folder)
    if ending == ".xml":
        return _read_voc(path, [path], folder)
    if ending in (".yaml", ".yml"):
        return _read_yolo(path.parent, folder, names_file=path)
    raise DataError(f"boxes: {str(path)!r} is of no known format", f"give {_FORMATS}")


def _read_folder(path: Path, folder: Path) -> BoxFile:
    files = sorted(files_below(path))
    xml = [file for file in files if file.suffix.lower() == ".xml"]
    # texts beside XML are notes, unless they lie where labels do
    if xml and not any(_is_in_labels(file, path) for file in files):
        return _read_voc(path, xml, folder)
    return _read_yolo(path, folder)


# -- what all formats share ----------------------------------------------------------------------------------


def text_within(path: Path, most: int = _MOST_BYTES) -> str:
    """Return the text of a file that is no larger than a bound.

    Raises:
        DataError: It is larger, no file, or no text.
    """
    try:
        if not path.is_file():  # a pipe would wait for whoever writes into it
            raise DataError(f"boxes: {str(path)!r} is no file", f"give {_FORMATS}")
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


def _wrong(path: Path, what: str, remedy: str) -> NoReturn:
    raise DataError(f"boxes: {str(path)!r}: {what}", remedy)


def _number(value: Any) -> float:
    """Return a finite number; NaN for anything else."""
    if isinstance(value, bool):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _placed(values: Sequence[Any]) -> tuple[float, float, float, float] | None:
    """Return four finite numbers; None for anything else."""
    numbers = [_number(value) for value in values]
    if len(numbers) != 4 or any(map(math.isnan, numbers)):
        return None
    left, top, width, height = numbers
    return left, top, width, height


def _class_name(value: Any, path: Path, where: str) -> str | None:
    """Return the name of a class; None for an empty one.

    Raises:
        DataError: It can name nothing.
    """
    if not isinstance(value, str | int | float):
        _wrong(path, f"{where}: the name of a class is a {type(value).__name__}", "write a text")
    name = composed(str(value).strip())
    if not is_name(name):
        _wrong(path, f"{where}: no class can be called {shown(name)}", "rename it")
    return name or None


def _image_at(name: Any, path: Path, folder: Path, where: str) -> Path:
    """Return where an image is: below the folder, or beside the file that names it."""
    if not isinstance(name, str) or not name:
        _wrong(path, f"{where} names no image", "write the path of its image")
    beside = path.parent / name
    # isfile: a forged name may be longer than a system allows, or hold a NUL
    return beside if not os.path.isfile(folder / name) and os.path.isfile(beside) else folder / name


# -- COCO ----------------------------------------------------------------------------------------------------


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
    if isinstance(content, list):
        _wrong(path, "a list of results names no image file", "give a COCO file with 'images', too")
    if not isinstance(content, dict):
        _wrong(path, "it is no COCO file", "write 'images', 'annotations' and 'categories'")
    for key in ("images", "annotations", "categories"):
        entries = content.get(key)
        if not isinstance(entries, list):
            _wrong(path, f"it has no list {key!r}", "write 'images', 'annotations' and 'categories'")
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, dict):
                _wrong(path, f"{key} {number} is a {type(entry).__name__}", "write an object")
    return content


def _read_coco(path: Path, folder: Path) -> BoxFile:
    content = coco_of(path)
    names = {}
    for number, entry in enumerate(content["categories"], 1):
        where = f"category {number}"
        names[_id_in(entry, "id", path, where)] = _class_name(entry.get("name", ""), path, where)
    images = {}
    for number, entry in enumerate(content["images"], 1):
        where = f"image {number}"
        at = _image_at(entry.get("file_name"), path, folder, where)
        images[_id_in(entry, "id", path, where)] = (at, _size_of(entry.get("width"), entry.get("height")))
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
            _wrong(path, f"{where} is of the image {shown(image)}, which is not in 'images'", "add it")
        box = entry.get("bbox")
        place = _placed(box) if isinstance(box, list) else None
        if place is None:
            _wrong(path, f"{where} has no box", "write bbox: [x, y, width, height]")
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
        _wrong(path, f"{where} has no {key!r}", "write a number")
    return value


def _size_of(width: Any, height: Any) -> tuple[int, int] | None:
    """Return the size of an image; None where a file does not say it, as a width of 0 does not."""
    wide, high = _number(width), _number(height)
    return (int(wide), int(high)) if wide >= 1 and high >= 1 else None


# -- CSV -----------------------------------------------------------------------------------------------------


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
        _wrong(path, f"there is no column {missing[0]!r}", f"begin with the line {','.join(COLUMNS)},class")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():  # more cells than columns, or fewer
            _wrong(path, f"row {number} has not the {len(columns)} cells of the first line", "mend it")
    return columns, rows


def _read_csv(path: Path, folder: Path) -> BoxFile:
    _, rows = rows_of_csv(path)
    boxes = []
    images: dict[str, Path] = {}  # each is looked for once, whatever the number of its boxes
    count = Counter[Path]()
    for number, row in enumerate(rows, 1):
        where = f"row {number}"
        if row["path"] not in images:
            images[row["path"]] = _image_at(row["path"], path, folder, where)
        at = images[row["path"]]
        place = _placed([row[name] for name in COLUMNS[1:]])
        if place is None:
            _wrong(path, f"{where} has no box", "write x, y, w and h in pixels")
        count[at] += 1
        name = _class_name(row.get("class", ""), path, where)
        boxes.append(Box(image=at, number=count[at], place=place, name=name))
    return BoxFile(path=path, form="csv", boxes=tuple(boxes))


# -- Pascal VOC ----------------------------------------------------------------------------------------------


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Builds a tree, and refuses a document type before any of its entities is read."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        raise ValueError("it has a document type, which a file of boxes does not need")


def parsed_xml(path: Path) -> ElementTree.Element:
    """Return the root of a Pascal VOC file.

    Raises:
        DataError: It is none.
    """
    text = text_within(path, _MOST_OF_ONE)
    parser = ElementTree.XMLParser(target=_WithoutDoctype())
    try:
        parser.feed(text)
        root: ElementTree.Element = parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"boxes: {str(path)!r} is no XML ({first_line(error)})", "write it anew") from error
    if root.tag != "annotation":
        _wrong(path, f"its root is {shown(root.tag)}", "give Pascal VOC: <annotation> with <object>")
    return root


def _read_voc(path: Path, files: Sequence[Path], folder: Path) -> BoxFile:
    base = path if path.is_dir() else path.parent
    boxes: list[Box] = []
    counts = []
    for file in files:
        of_file = list(_boxes_of_voc(file, folder / file.parent.relative_to(base), folder))
        boxes += of_file
        counts.append((file, len(of_file)))
    return BoxFile(path=path, form="voc", boxes=tuple(boxes), files=tuple(counts))


def _boxes_of_voc(file: Path, near: Path, folder: Path) -> Iterator[Box]:
    root = parsed_xml(file)
    name = (root.findtext("filename") or "").strip()
    image = _image_at(name, file, near, "the file")
    if not os.path.isfile(image):
        image = _image_at(name, file, folder, "the file")
    size = _size_of(root.findtext("size/width"), root.findtext("size/height"))
    for number, entry in enumerate(root.findall("object"), 1):
        where = f"object {number}"
        edges = [_number(entry.findtext(f"bndbox/{edge}")) for edge in ("xmin", "ymin", "xmax", "ymax")]
        if any(map(math.isnan, edges)):
            _wrong(file, f"{where} has no box", "write <bndbox> with xmin, ymin, xmax and ymax")
        # pixels are counted from 1, and the last one belongs to the box; some programs count from 0
        left, top = max(edges[0] - 1, 0.0), max(edges[1] - 1, 0.0)
        place = (left, top, edges[2] - left, edges[3] - top)
        called = _class_name(entry.findtext("name") or "", file, where)
        yield Box(image=image, number=number, place=place, name=called, size=size)


# -- YOLO ----------------------------------------------------------------------------------------------------


def _label_files(base: Path) -> list[Path]:
    """Return the files of labels below a folder: those in folders called so, where there are such."""
    every = []
    for file in sorted(files_below(base)):
        if file.suffix.lower() == ".txt" and file.name not in _NAME_FILES:
            every.append(file)
    return [file for file in every if _is_in_labels(file, base)] or every


def _is_in_labels(file: Path, base: Path) -> bool:
    """Return whether a file lies in a folder called ``labels`` below another."""
    return "labels" in file.relative_to(base).parts[:-1]


def _read_yolo(base: Path, folder: Path, names_file: Path | None = None) -> BoxFile:
    files = _label_files(base)
    if not files:
        raise DataError(f"boxes: no file of labels in {str(base)!r}", f"give {_FORMATS}")
    name_of = _yolo_names(base, names_file)
    images: dict[tuple[str, ...], Path] = {}
    for image in find_images(folder).paths:
        images.setdefault(image.relative_to(folder).with_suffix("").parts, image)
    boxes: list[Box] = []
    counts = []
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
        for number, (label, place) in enumerate(places, 1):
            boxes.append(Box(image=found[0], number=number, place=place, shares=True, name=name_of(label)))
    return BoxFile(path=base, form="yolo", boxes=tuple(boxes), files=tuple(counts))


def _ways(stem: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield where the image of a file of labels may lie: likewise, in ``images``, or without either."""
    yield stem
    yield tuple("images" if part == "labels" else part for part in stem)
    yield tuple(part for part in stem if part != "labels")
    yield ("images", *stem)


def _lines_of(file: Path) -> Iterator[tuple[int, tuple[float, float, float, float]]]:
    """Yield class and place of each box of a file of labels."""
    for number, line in enumerate(text_within(file, _MOST_OF_ONE).splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) not in (5, 6):
            _wrong(
                file,
                f"line {number} has {len(cells)} numbers, and a box has 5, or 6 with how sure a detector is",
                "write class, x and y of the middle, width and height",
            )
        place = _placed(cells[1:5])
        if place is None or not cells[0].isascii() or not cells[0].isdecimal() or len(cells[0]) > 9:
            _wrong(file, f"line {number} has no box", "write class, x and y of the middle, width and height")
        middle, centre, width, height = place
        yield int(cells[0]), (middle - width / 2, centre - height / 2, width, height)


def _yolo_names(base: Path, names_file: Path | None) -> Callable[[int], str | None]:
    """Return what gives the name of a number, None for none; names are looked for from the labels upwards."""
    listed: dict[int, str | None] = {}
    file = names_file or _found_names(base)
    if file is not None:
        text = text_within(file, _MOST_OF_ONE)
        if file.suffix == ".txt":
            entries: Any = dict(enumerate(text.splitlines()))
        else:
            entries = _names_in_yaml(file, text)
        for number, entry in entries.items():
            if not isinstance(number, int):
                _wrong(file, f"names: {shown(number)} is no number of a class", "write 0: NAME")
            listed[number] = _class_name(entry, file, f"class {number}")
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
        _wrong(file, "it has no 'names'", "write names: [CLASS, ...]")
    return names
