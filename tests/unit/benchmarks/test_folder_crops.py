"""The folder benchmark on the boxes of a file: splits, names of images, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from boxed_scenes import NAMES, draw_scenes, write_boxes
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.stream import TaskStream
from lw2g_benchmarks.folder import FolderBenchmark
from lw2g_benchmarks.options import FolderConfig


def stream(root: Path, boxes: Path, **options: Any) -> TaskStream:
    return FolderBenchmark(FolderConfig(root=root, boxes=boxes, increment=1, **options)).stream()


def ids(of: TaskStream, split: str) -> set[str]:
    found = set()
    for task in of.tasks:
        data = getattr(task, split)
        found |= {data.source.ids[index] for index in data.indices}
    return found


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("Train", "TEST")])
def test_boxes_of_train_and_test_are_the_classes(tmp_path: Path, train: str, test: str) -> None:
    """Images below train/ and test/ give the splits; a crop is named by image and number."""
    root = tmp_path / "root"
    scenes = draw_scenes(root, [f"{train}/a.png", f"{train}/b.png", f"{test}/c.png", "val/d.png"])
    found = stream(root, write_boxes("yolo", tmp_path / "set", scenes))
    assert found.class_names == NAMES
    assert ids(found, "train") == {f"root/{train}/{name}.png#{k}" for name in "ab" for k in (1, 2, 3)}
    assert ids(found, "test") == {f"root/{test}/c.png#{k}" for k in (1, 2, 3)}
    assert found.notes == ("root: 3 boxes of images outside train/ and test/ left out",)
    data = found.tasks[1].train
    image = data.source.image(int(data.indices[0]))
    assert image.shape == (3, 24, 24)
    navy = torch.tensor([0, 0, 128], dtype=torch.uint8)[:, None, None]
    assert bool((image == navy).all(0).any())
    data.source._paths[0].path.touch()  # type: ignore[attr-defined]
    assert data.source.changed(data.indices) == f"{root}/{train}/a.png"  # type: ignore[attr-defined]


def test_boxes_of_one_image_are_drawn_into_one_split(tmp_path: Path) -> None:
    """A share is drawn by image: what a model is tested on is of no image that it learns of that class."""
    root = tmp_path / "root"
    scenes = draw_scenes(root, [f"{number}.png" for number in range(8)])
    boxes = tmp_path / "b.csv"
    rows = ["path,x,y,w,h,class"]
    for scene in scenes:
        rows += [f"{scene.path},{x + k},{y},20,20,{name}" for name, x, y, _, _ in scene.boxes for k in (0, 2)]
    boxes.write_text("\n".join(rows))
    found = stream(root, boxes, test_share=0.25)
    for task in found.tasks:
        files = {}
        for split in ("train", "test"):
            data = getattr(task, split)
            files[split] = {data.source.ids[index].partition("#")[0] for index in data.indices}
        assert not files["train"] & files["test"]
        assert (len(files["train"]), len(files["test"])) == (6, 2)


def test_equal_crops_of_train_and_test_have_equal_contents(tmp_path: Path) -> None:
    """The check for repeated images sees the same box of a copied image, and no other box of it."""
    root = tmp_path / "root"
    scenes = draw_scenes(root, ["train/a.png", "test/b.png"])
    (root / "test/b.png").write_bytes((root / "train/a.png").read_bytes())
    file = write_boxes("csv", tmp_path / "csv", scenes)
    text = file.read_text().splitlines()
    file.write_text(
        "\n".join([*text[:4], *(line.replace("test/b.png,3,9", "test/b.png,3,4") for line in text[4:])])
    )
    found = stream(root, file)
    train = [task.train.contents[0] for task in found.tasks]
    test = [task.test.contents[0] for task in found.tasks]
    assert [a == b for a, b in zip(train, test, strict=True)] == [True, False, False]
    assert len(set(train)) == 3


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "domains": ({"stream": "domains"}, "boxes have classes and no domains"),
    "roots": ({"more_roots": (Path("x"),)}, "boxes are of images below one root"),
    "no split": ({}, "no box of class 'bars' is of an image in"),
    "no boxes": ({"boxes": None, "margin": 0.5}, "give boxes, too"),
    "nothing": ({"boxes": Path("no.json")}, "there is nothing at 'no.json'"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_boxes_cannot_be_is_refused(tmp_path: Path, case: str) -> None:
    """Domains, several roots, and images outside the splits are one line each."""
    options, expected = REFUSED[case]
    root = tmp_path / "root"
    boxes = write_boxes("coco", tmp_path / "coco", draw_scenes(root, ["a.png", "b.png"]))
    with pytest.raises((ConfigError, DataError), match=expected):
        stream(**{"root": root, "boxes": boxes, **options})
