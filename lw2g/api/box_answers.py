"""Boxes as images, and the answers for them in the format in which the boxes came."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import yaml

from lw2g.disk.sealed import write_atomically
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expands_paths
from lw2g.pixels.box_tables import coco_of, rows_of_csv
from lw2g.pixels.boxes import BoxFile, text_within
from lw2g.pixels.crops import Crops, Cutting, read_crops
from lw2g.pixels.voc_boxes import parsed_xml

__all__ = ["crops_of", "require_place", "write_answers"]

UNKNOWN = "unknown"
"""The class of a box that is like no class."""


@attrs.frozen(kw_only=True)
class _Answers:
    """What is written of boxes.

    Attributes:
        by_row: Class and probability by the number of the box; boxes without an answer are missing.
        classes: Names of the classes that the model knows; they are numbered in this order.
    """

    by_row: Mapping[int, tuple[str, float]]
    classes: Sequence[str]


@expands_paths
def crops_of(
    folder: str | Path,
    boxes: str | Path | None,
    *,
    margin: float,
    min_side: int,
    square: bool,
    named: bool = True,
) -> Crops | None:
    """Return the crops of a file of boxes, and tell the notes on them; None without a file.

    Args:
        folder: The folder of the images.
        boxes: The file.
        margin: As :class:`~lw2g.pixels.crops.Cutting` has it.
        min_side: Likewise.
        square: Likewise.
        named: Whether each box must have a class.

    Raises:
        DataError: As :func:`~lw2g.pixels.crops.read_crops`.
        ConfigError: A value is of no use, or there is one and no file.
    """
    cutting = Cutting(margin=margin, min_side=min_side, square=square)
    if boxes is None:
        cutting.require_default()
        return None
    crops = read_crops(boxes, folder, cutting, named=named)
    for text in crops.notes:
        tell_note(text)
    return crops


@expands_paths
def require_place(images: Sequence[str | Path], boxes: str | Path | None, out: str | Path | None) -> None:
    """Refuse several folders of boxes, and a place for answers that is taken or called as another format.

    Raises:
        ConfigError: There are such.
    """
    if boxes is not None and len(images) != 1:
        raise ConfigError(
            f"boxes: expected one folder of images but got {len(images)} paths", "give it alone"
        )
    if out is None:
        return
    if boxes is None:
        raise ConfigError("out: answers are written in the format of --boxes", "give --boxes, too")
    out = Path(out)
    boxes = Path(boxes)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"out: {str(out)!r} is there already", "name another")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"out: there is no folder {str(out.absolute().parent)!r}", "make it")
    folder = boxes.is_dir() or boxes.suffix.lower() in (".yaml", ".yml")
    ending = "" if folder else boxes.suffix.lower()
    if out.suffix.lower() != ending:
        remedy = "name a folder, without an ending" if folder else f"let it end in {ending}, as the boxes do"
        raise ConfigError(f"out: {str(out)!r} would have the format of {str(boxes)!r}", remedy)


def write_answers(
    crops: Crops, entries: Sequence[Mapping[str, Any]], classes: Sequence[str], out: Path
) -> None:
    """Write the answers for crops in the format of their file; boxes without an answer are left out.

    Args:
        crops: The crops.
        entries: What a model says of each, as its ``predict`` returns it.
        classes: Names of the classes that it knows.
        out: The new file or folder.

    Raises:
        DataError: The file of boxes has changed since it was read.
    """
    by_row = {}
    for row, entry in zip(crops.rows, entries, strict=True):
        if "error" not in entry:
            by_row[row] = (entry["class"] or UNKNOWN, entry["probability"])
    names = list(classes)
    if UNKNOWN not in names and any(name == UNKNOWN for name, _ in by_row.values()):
        names.append(UNKNOWN)
    answers = _Answers(by_row=by_row, classes=names)
    write = {"coco": _as_coco, "csv": _as_csv, "voc": _as_voc, "yolo": _as_yolo}[crops.file.form]
    for name, text in write(crops.file, answers):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())


def _require_same(file: BoxFile, count: int) -> None:
    """Refuse a file that has another number of boxes than when it was read.

    Raises:
        DataError: It has.
    """
    if count != len(file.boxes):
        raise DataError(f"boxes: {str(file.path)!r} has changed since it was read", "predict again")


def _as_coco(file: BoxFile, answers: _Answers) -> Iterator[tuple[str, str]]:
    """Yield the file with the model's classes as categories, and a ``score`` of each annotation."""
    content = coco_of(file.path)
    entries = [entry for entry in content["annotations"] if not entry.get("iscrowd")]
    _require_same(file, len(entries))
    number_of = {name: number for number, name in enumerate(answers.classes, 1)}
    answered = []
    for row, (name, probability) in sorted(answers.by_row.items()):
        answered.append({**entries[row], "category_id": number_of[name], "score": probability})
    categories = [{"id": number, "name": name} for name, number in number_of.items()]
    yield "", json.dumps({**content, "annotations": answered, "categories": categories})


def _as_csv(file: BoxFile, answers: _Answers) -> Iterator[tuple[str, str]]:
    """Yield the rows with ``class`` and ``probability``; further columns stay."""
    columns, rows = rows_of_csv(file.path)
    _require_same(file, len(rows))
    columns += [name for name in ("class", "probability") if name not in columns]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row, (name, probability) in sorted(answers.by_row.items()):
        writer.writerow({**rows[row], "class": name, "probability": f"{probability:.6f}"})
    yield "", text.getvalue()


def _as_voc(file: BoxFile, answers: _Answers) -> Iterator[tuple[str, str]]:
    """Yield each file with ``<name>`` and ``<confidence>`` of its objects."""
    row = 0
    for path, count in file.files:
        root = parsed_xml(path)
        objects = root.findall("object")
        if len(objects) != count:
            _require_same(file, -1)
        for entry in objects:
            answer = answers.by_row.get(row)
            row += 1
            if answer is None:
                root.remove(entry)
                continue
            for tag, value in (("name", answer[0]), ("confidence", f"{answer[1]:.6f}")):
                element = entry.find(tag)
                if element is None:
                    element = ElementTree.SubElement(entry, tag)
                element.text = value
        name = path.relative_to(file.path).as_posix() if file.path.is_dir() else ""
        yield name, ElementTree.tostring(root, encoding="unicode") + "\n"


def _as_yolo(file: BoxFile, answers: _Answers) -> Iterator[tuple[str, str]]:
    """Yield each file of labels with numbers of classes and a probability, and their names."""
    number_of = {name: number for number, name in enumerate(answers.classes)}
    row = 0
    for path, count in file.files:
        lines = [line.split() for line in text_within(path).splitlines() if line.strip()]
        if len(lines) != count:
            _require_same(file, -1)
        written = []
        for cells in lines:
            answer = answers.by_row.get(row)
            row += 1
            if answer is not None:
                written.append(f"{number_of[answer[0]]} {' '.join(cells[1:5])} {answer[1]:.6f}\n")
        yield path.relative_to(file.path).as_posix(), "".join(written)
    names = dict(enumerate(answers.classes))
    yield "data.yaml", yaml.safe_dump({"names": names}, allow_unicode=True, sort_keys=False)
