"""Images with several objects each, and their boxes in the four formats."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
from PIL import Image, ImageDraw

__all__ = ["NAMES", "Scene", "draw_scenes", "write_boxes"]

NAMES = ("bars", "cross", "ring")
SIZE = (96, 64)
_SIDE = 24


@attrs.frozen
class Scene:
    """An image: its path below the root, and class, left, top, width and height of its objects."""

    path: str
    boxes: tuple[tuple[str, int, int, int, int], ...]


def draw_scenes(root: Path, paths: list[str]) -> list[Scene]:
    """Draw an object of each class into each image, at places that differ, and return what is where."""
    scenes = []
    for number, path in enumerate(paths):
        image = Image.new("RGB", SIZE, "white")
        draw = ImageDraw.Draw(image)
        boxes = []
        for place, name in enumerate(NAMES):
            left, top = 3 + 31 * place, 4 + (5 * number + 7 * place) % 32
            right, bottom = left + _SIDE - 1, top + _SIDE - 1
            width = 2 + number % 3
            shade = 4 * number  # no two drawings are equal
            grey = (shade, shade, shade)
            if name == "bars":
                for offset in range(2, _SIDE, 7):
                    draw.line((left + offset, top, left + offset, bottom), fill=grey, width=width)
            elif name == "cross":
                draw.line((left, top, right, bottom), fill=(0, 0, 128 + shade), width=width)
                draw.line((left, bottom, right, top), fill=(0, 0, 128 + shade), width=width)
            else:
                draw.ellipse((left, top, right, bottom), outline=(128 + shade, 0, 0), width=width)
            boxes.append((name, left, top, _SIDE, _SIDE))
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        image.save(file)
        scenes.append(Scene(path, tuple(boxes)))
    return scenes


def write_boxes(form: str, place: Path, scenes: list[Scene]) -> Path:
    """Write the boxes of scenes in a format into a new folder, and return what ``--boxes`` takes."""
    place.mkdir(parents=True)
    if form == "coco":
        images = []
        annotations = []
        for number, scene in enumerate(scenes):
            images.append({"id": number, "file_name": scene.path, "width": SIZE[0], "height": SIZE[1]})
            for name, *box in scene.boxes:
                category = 10 + NAMES.index(name)
                annotations.append(
                    {"id": len(annotations), "image_id": number, "category_id": category, "bbox": box}
                )
        categories = [{"id": 10 + number, "name": name} for number, name in enumerate(NAMES)]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (place / "boxes.json").write_text(json.dumps(content), encoding="utf-8")
        return place / "boxes.json"
    if form == "csv":
        lines = ["path,x,y,w,h,class,camera"]
        for scene in scenes:
            lines += [f"{scene.path},{x},{y},{w},{h},{name},north" for name, x, y, w, h in scene.boxes]
        (place / "boxes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return place / "boxes.csv"
    if form == "voc":
        for scene in scenes:
            objects = "".join(
                f"<object><name>{name}</name><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>"
                f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
                for name, x, y, w, h in scene.boxes
            )
            file = (place / scene.path).with_suffix(".xml")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(
                f"<annotation><filename>{Path(scene.path).name}</filename><size><width>{SIZE[0]}</width>"
                f"<height>{SIZE[1]}</height></size>{objects}</annotation>",
                encoding="utf-8",
            )
        return place
    for scene in scenes:
        lines = [
            f"{NAMES.index(name)} {(x + w / 2) / SIZE[0]:.6f} {(y + h / 2) / SIZE[1]:.6f} "
            f"{w / SIZE[0]:.6f} {h / SIZE[1]:.6f}"
            for name, x, y, w, h in scene.boxes
        ]
        file = (place / "labels" / scene.path).with_suffix(".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (place / "data.yaml").write_text(f"names: {list(NAMES)}\n", encoding="utf-8")
    return place
