"""Files of boxes, as detectors and people who annotate write them: COCO, YOLO, Pascal VOC, and CSV."""

from __future__ import annotations

from pathlib import Path

from lw2g.errors import DataError
from lw2g.pixels.box_tables import read_coco, read_csv
from lw2g.pixels.boxes import FORMATS_OF_BOXES, BoxFile
from lw2g.pixels.found_images import files_below
from lw2g.pixels.voc_boxes import read_voc
from lw2g.pixels.yolo_boxes import is_in_labels, read_yolo

__all__ = ["read_boxes"]


def read_boxes(path: Path, folder: Path) -> BoxFile:
    """Return the boxes of a file or a folder.

    Args:
        path: The file or the folder.
        folder: The images lie in and below it, unless they lie beside the file.

    Raises:
        DataError: It cannot be read, or something in it is no box; an image may still be missing.
    """
    if not path.exists():
        raise DataError(f"boxes: there is nothing at {str(path)!r}", f"give {FORMATS_OF_BOXES}")
    found = _read_folder(path, folder) if path.is_dir() else _read_file(path, folder)
    if not found.boxes:
        raise DataError(f"boxes: {str(path)!r} holds no box", "give a file with boxes")
    return found


def _read_file(path: Path, folder: Path) -> BoxFile:
    ending = path.suffix.lower()
    if ending == ".json":
        return read_coco(path, folder)
    if ending == ".csv":
        return read_csv(path, folder)
    if ending == ".xml":
        return read_voc(path, [path], folder)
    if ending in (".yaml", ".yml"):
        return read_yolo(path.parent, folder, names_file=path)
    raise DataError(f"boxes: {str(path)!r} is of no known format", f"give {FORMATS_OF_BOXES}")


def _read_folder(path: Path, folder: Path) -> BoxFile:
    files = sorted(files_below(path))
    xml = [file for file in files if file.suffix.lower() == ".xml"]
    # texts beside XML are notes, unless they lie where labels do
    if xml and not any(is_in_labels(file, path) for file in files):
        return read_voc(path, xml, folder)
    return read_yolo(path, folder)
