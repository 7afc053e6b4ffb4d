"""Boxes of four formats as images: where they are cut, and what is refused in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from boxed_scenes import NAMES, draw_scenes, write_boxes
from lw2g.errors import ConfigError, DataError
from lw2g.pixels import image_files
from lw2g.pixels.crops import Cutting, read_crops
from lw2g.pixels.image_files import CropReader, read_image

PATHS = ["a.png", "b/c.png"]
FORMS = ("coco", "yolo", "voc", "csv")


@pytest.mark.parametrize("form", FORMS)
def test_all_formats_give_the_same_crops(tmp_path: Path, form: str) -> None:
    """A box is the same pixels, class and number in its image, whichever format it comes in."""
    scenes = draw_scenes(tmp_path / "images", PATHS)
    crops = read_crops(write_boxes(form, tmp_path / form, scenes), tmp_path / "images")
    expected = []
    for scene in scenes:
        for number, (name, x, y, w, h) in enumerate(scene.boxes, 1):
            expected.append((f"{tmp_path}/images/{scene.path}#{number}", name, (x, y, x + w, y + h)))
    found = [(str(crop), name, crop.box) for crop, name in zip(crops.crops, crops.names, strict=True)]
    assert sorted(found) == sorted(expected)
    assert crops.notes == ()
    crop = crops.crops[1]
    left, top, right, bottom = crop.box
    whole = read_image(crop.path)
    assert torch.equal(read_image(crop), whole[:, top:bottom, left:right])


@given(
    left=st.floats(0, 90),
    top=st.floats(0, 50),
    width=st.floats(0.01, 200),
    height=st.floats(0.01, 200),
    margin=st.floats(0, 2),
    square=st.booleans(),
)
def test_a_crop_holds_its_box_and_lies_in_its_image(
    left: float, top: float, width: float, height: float, margin: float, square: bool
) -> None:
    """Whatever the options, a crop has pixels, lies in the image, and holds all of the box."""
    edges = (left, top, min(left + width, 96.0), min(top + height, 64.0))
    first, upper, end, lower = Cutting(margin=margin, square=square).corners(edges, (96, 64))
    assert 0 <= first < end <= 96
    assert 0 <= upper < lower <= 64
    assert first <= edges[0] + 0.06
    assert upper <= edges[1] + 0.06
    assert end >= edges[2] - 0.06
    assert lower >= edges[3] - 0.06


def test_margin_square_and_least_side(tmp_path: Path) -> None:
    """A margin is a share of the sides, a square is moved into the image, and small boxes are left out."""
    Image.new("RGB", (100, 50)).save(tmp_path / "a.png")
    file = tmp_path / "boxes.csv"
    file.write_text("path,x,y,w,h,class\na.png,40,20,20,10,p\na.png,0,0,10,20,q\na.png,5,5,3,30,r\n")

    def boxes(**options: Any) -> list[tuple[int, ...]]:
        return [crop.box for crop in read_crops(file, tmp_path, Cutting(**options)).crops]

    assert boxes(square=False) == [(40, 20, 60, 30), (0, 0, 10, 20), (5, 5, 8, 35)]
    assert boxes(square=False, margin=0.1) == [(38, 19, 62, 31), (0, 0, 11, 22), (4, 2, 9, 38)]
    assert boxes(min_side=10) == [(40, 15, 60, 35), (0, 0, 20, 20)]
    crops = read_crops(file, tmp_path, Cutting(min_side=4))
    assert [str(crop)[-2:] for crop in crops.crops] == ["#1", "#2"]
    assert crops.notes == (f"{str(file)!r}: left out for a side below 4 pixels: 1 box",)
    with pytest.raises(ConfigError, match="margin: expected 0 to 10 but got nan"):
        Cutting(margin=float("nan"))


def test_a_turned_photo_is_cut_as_it_is_looked_at(tmp_path: Path) -> None:
    """Boxes are of the upright image; a size for the pixels as they are stored is refused."""
    pixels = np.zeros((20, 40, 3), dtype=np.uint8)
    pixels[:, 20:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: upright it is 20 wide and 40 high, black above white
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    file = tmp_path / "boxes.json"
    content: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 40}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [2, 22, 10, 10]}],
        "categories": [{"id": 1, "name": "white"}],
    }
    file.write_text(json.dumps(content))
    (crop,) = read_crops(file, tmp_path).crops
    assert crop.box == (2, 22, 12, 32)
    assert read_image(crop).unique().tolist() == [255]
    content["images"][0] |= {"width": 40, "height": 20}
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"of an image of 40 x 20 pixels, and this one has 20 x 40"):
        read_crops(file, tmp_path)


def test_a_file_is_decoded_once_for_its_crops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crops of one image that follow each other cost one decoding, and keep none of the whole image."""
    scenes = draw_scenes(tmp_path, PATHS)
    crops = read_crops(write_boxes("csv", tmp_path / "csv", scenes), tmp_path).crops
    decoded = []
    original = image_files.read_image

    def counting(path: Path) -> torch.Tensor:
        decoded.append(path)
        return original(path)

    monkeypatch.setattr(image_files, "read_image", counting)
    cut = CropReader()
    rows = [cut(crop) for crop in crops]
    assert decoded == [tmp_path / path for path in PATHS]
    assert [row.untyped_storage().nbytes() for row in rows] == [3 * 24 * 24] * 6


def _coco(**changes: Any) -> str:
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 10, 10]}],
        "categories": [{"id": 1, "name": "ant"}],
    }
    return json.dumps(content | changes)


def _box(*box: Any, **changes: Any) -> str:
    return _coco(annotations=[{"image_id": 1, "category_id": 1, "bbox": list(box), **changes}])


ENTITIES = '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><annotation>&c;</annotation>'
BAD: dict[str, tuple[str, str, str]] = {
    "outside": ("b.json", _box(95, 2, 10, 10), "a.png'#1 lies outside its image of 96 x 64 pixels"),
    "far": ("b.json", _box(1e308, 2, 1e308, 10), "lies outside its image"),
    "no area": ("b.json", _box(1, 2, 0, 10), "a.png'#1 has no area"),
    "negative": ("b.json", _box(5, 5, 4, -3), "a.png'#1 has no area"),
    "not finite": ("b.json", _box(1, 2, 3, 4).replace("4]", "NaN]"), "annotation 1 has no box"),
    "texts": ("b.json", _box(1, 2, 3, [4]), "annotation 1 has no box"),
    "no name": ("b.json", _box(1, 2, 3, 4, category_id=7), "1 box of a class without a name"),
    "no image": ("b.json", _coco(images=[{"id": 1, "file_name": "no.png"}]), "1 of 1 image missing"),
    "NUL": ("b.json", _coco(images=[{"id": 1, "file_name": "a\0.png"}]), "1 of 1 image missing"),
    "long": ("b.json", _coco(images=[{"id": 1, "file_name": "a" * 9999}]), "1 of 1 image missing"),
    "unknown image": ("b.json", _box(1, 2, 3, 4, image_id="x"), "annotation 1 is of the image 'x'"),
    "results": ("b.json", "[]", "a list of results names no image file"),
    "deep": ("b.json", "[" * 200_000, "is no JSON"),
    "digits": ("b.json", "9" * 5_000, "is no JSON"),
    "no lists": ("b.json", '{"images": {}}', "it has no list 'images'"),
    "no dict": ("b.json", _coco(categories=[1]), "categories 1 is a int"),
    "no box": ("b.json", _coco(annotations=[]), "holds no box"),
    "control": ("b.json", _coco(categories=[{"id": 1, "name": "a\x1b[31m"}]), "no class can be called"),
    "columns": ("b.csv", "path,x,y,w\na.png,1,2,3\n", "there is no column 'h'"),
    "cells": ("b.csv", "path,x,y,w,h,class\na.png,1,2,3\n", "row 1 has not the 6 cells"),
    "words": ("b.csv", "path,x,y,w,h,class\na.png,1,2,x,4,p\n", "row 1 has no box"),
    "nameless": ("b.csv", "path,x,y,w,h\na.png,1,2,3,4\n", "1 box of a class without a name"),
    "binary": ("b.csv", "\udcc0\udcff", "is no text in UTF-8"),
    "entities": ("b.xml", ENTITIES, "it has a document type"),
    "no xml": ("b.xml", "<annotation>", "is no XML"),
    "other root": ("b.xml", "<a/>", "its root is 'a'"),
    "polygon": ("labels/a.txt", "0 0.1 0.1 0.2 0.2 0.3 0.3\n", "line 1 has 7 numbers, and a box has 5"),
    "class": ("labels/a.txt", "-1 0.1 0.1 0.2 0.2\n", "line 1 has no box"),
    "numberless": ("labels/a.txt", "0 0.5 0.5 0.2 0.2\n", "1 box of a class without a name"),
    "imageless": ("labels/z.txt", "0 0.5 0.5 0.2 0.2\n", "holds no image for"),
    "format": ("b.doc", "", "is of no known format"),
    "yaml": ("data.yaml", "names: {x: &a [1], y: [*a, *a]}", "no file of labels"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_boxes_are_one_line(tmp_path: Path, case: str) -> None:
    """Whatever is wrong with a file of boxes is said in one line with a remedy, and read under a bound."""
    name, text, expected = BAD[case]
    draw_scenes(tmp_path / "images", ["a.png"])
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, errors="surrogateescape")
    given = file.parent if file.suffix == ".txt" else file
    with pytest.raises(DataError) as raised:
        read_crops(given, tmp_path / "images")
    assert expected in str(raised.value)
    assert raised.value.remedy
    assert "\n" not in str(raised.value)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


@pytest.mark.parametrize("make", [os.mkfifo, _sparse], ids=["pipe", "huge"])
@pytest.mark.parametrize("name", ["b.json", "b.csv", "b.xml"])
def test_pipes_and_huge_files_are_not_read(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    """A pipe, which would wait, and a file of a terabyte are refused by what the system says of them."""
    make(tmp_path / name)
    with pytest.raises(DataError, match=r"is no file|is the most"):
        read_crops(tmp_path / name, tmp_path)


def test_boxes_over_the_edge_are_cut_and_told(tmp_path: Path) -> None:
    """A detector's box may reach a little over the edge; a note says so, but not of a rounded pixel."""
    draw_scenes(tmp_path, ["a.png"])
    file = tmp_path / "b.csv"
    file.write_text("path,x,y,w,h,class\na.png,-8,0,20,20,p\na.png,90,0,6.5,6,p\n")
    crops = read_crops(file, tmp_path, Cutting(square=False))
    assert [crop.box for crop in crops.crops] == [(0, 0, 12, 20), (90, 0, 96, 6)]
    assert crops.notes == (f"{str(file)!r}: cut at the edge of the image: 1 box",)


def test_names_of_yolo_are_looked_for_above_the_labels(tmp_path: Path) -> None:
    """``classes.txt`` beside the labels, or ``data.yaml`` with a table above them, name the numbers."""
    scenes = draw_scenes(tmp_path / "images", ["a.png"])
    place = write_boxes("yolo", tmp_path / "set", scenes)
    (place / "data.yaml").write_text("names: {0: bars, 1: cross, 2: ring}\n")
    assert read_crops(place / "labels", tmp_path / "images").names == NAMES
    (place / "data.yaml").unlink()
    (place / "labels" / "classes.txt").write_text("x\ny\nz\n")
    assert read_crops(place / "labels", tmp_path / "images").names == ("x", "y", "z")


def test_boxes_of_one_image_in_several_files_have_names_of_their_own(tmp_path: Path) -> None:
    """PATH#NUMBER names one box, also where two files are of the same image."""
    scenes = draw_scenes(tmp_path / "images", ["a.png"])
    place = write_boxes("voc", tmp_path / "voc", scenes)
    (place / "b.xml").write_bytes((place / "a.xml").read_bytes())
    (place / "README.txt").write_text("beside XML this is a note, and no file of labels")
    assert [crop.number for crop in read_crops(place, tmp_path / "images").crops] == [1, 2, 3, 4, 5, 6]


def test_a_file_that_does_not_fit_into_memory_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be held is the fault of the file, and not of the size of a batch."""
    draw_scenes(tmp_path, ["a.png"])
    (tmp_path / "b.json").write_text(_coco())
    monkeypatch.setattr(json, "loads", MagicMock(side_effect=MemoryError))
    with pytest.raises(DataError, match=r"b\.json' takes more memory than there is; divide it into several"):
        read_crops(tmp_path / "b.json", tmp_path)
