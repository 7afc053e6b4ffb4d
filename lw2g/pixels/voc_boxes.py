"""Boxes of Pascal VOC: a file of XML for each image."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

from lw2g.errors import DataError, first_line, shown
from lw2g.pixels.boxes import (
    MOST_OF_ONE,
    Box,
    BoxFile,
    class_name,
    image_at,
    number_of,
    size_of,
    text_within,
    wrong,
)

__all__ = ["parsed_xml", "read_voc"]


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Builds a tree, and refuses a document type before any of its entities is read."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> NoReturn:
        raise ValueError("it has a document type, which a file of boxes does not need")


def parsed_xml(path: Path) -> ElementTree.Element:
    """Return the root of a Pascal VOC file.

    Raises:
        DataError: It is none.
    """
    text = text_within(path, MOST_OF_ONE)
    parser = ElementTree.XMLParser(target=_WithoutDoctype())
    try:
        parser.feed(text)
        root: ElementTree.Element = parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"boxes: {str(path)!r} is no XML ({first_line(error)})", "write it anew") from error
    if root.tag != "annotation":
        wrong(path, f"its root is {shown(root.tag)}", "give Pascal VOC: <annotation> with <object>")
    return root


def read_voc(path: Path, files: Sequence[Path], folder: Path) -> BoxFile:
    """Return the boxes of some files; as :func:`~lw2g.pixels.box_files.read_boxes`.

    Args:
        path: The folder that they lie in, or the only one.
        files: The files.
        folder: The images lie in and below it.
    """
    base = path if path.is_dir() else path.parent
    boxes: list[Box] = []
    counts = []
    numbers = Counter[Path]()  # several files may name one image
    for file in files:
        of_file = list(_boxes_of_voc(file, folder / file.parent.relative_to(base), folder, numbers))
        boxes += of_file
        counts.append((file, len(of_file)))
    return BoxFile(path=path, form="voc", boxes=tuple(boxes), files=tuple(counts))


def _boxes_of_voc(file: Path, near: Path, folder: Path, numbers: Counter[Path]) -> Iterator[Box]:
    root = parsed_xml(file)
    name = (root.findtext("filename") or "").strip()
    image = image_at(name, file, near, "the file")
    if not os.path.isfile(image):
        image = image_at(name, file, folder, "the file")
    size = size_of(root.findtext("size/width"), root.findtext("size/height"))
    for number, entry in enumerate(root.findall("object"), 1):
        where = f"object {number}"
        edges = [number_of(entry.findtext(f"bndbox/{edge}")) for edge in ("xmin", "ymin", "xmax", "ymax")]
        if any(map(math.isnan, edges)):
            wrong(file, f"{where} has no box", "write <bndbox> with xmin, ymin, xmax and ymax")
        # pixels are counted from 1, and the last one belongs to the box; some programs count from 0
        left, top = max(edges[0] - 1, 0.0), max(edges[1] - 1, 0.0)
        place = (left, top, edges[2] - left, edges[3] - top)
        called = class_name(entry.findtext("name") or "", file, where)
        numbers[image] += 1
        yield Box(image=image, number=numbers[image], place=place, name=called, size=size)
