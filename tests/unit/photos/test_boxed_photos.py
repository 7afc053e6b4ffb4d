"""A detector's boxes joined with a model: started from, learned, tested, and answered in their own format."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import yaml
from click.testing import CliRunner, Result
from PIL import Image

import lw2g
from boxed_scenes import NAMES, Scene, draw_scenes, write_boxes
from lw2g.cli.main import main

PATHS = [f"{number:02d}.png" for number in range(10)]


def only(names: tuple[str, ...], scenes: list[Scene]) -> list[Scene]:
    """Return the scenes with the boxes of some classes alone."""
    kept = []
    for scene in scenes:
        kept.append(Scene(scene.path, tuple(box for box in scene.boxes if box[0] in names)))
    return kept


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, `all.FORM` and their boxes, and `model`, which knows two of the three classes."""
    root = tmp_path_factory.mktemp("boxed")
    scenes = draw_scenes(root / "images", PATHS)
    for form in ("coco", "yolo", "voc", "csv"):
        write_boxes(form, root / form, scenes)
    write_boxes("coco", root / "two", only(NAMES[:2], scenes))
    write_boxes("yolo", root / "third", only(NAMES[2:], scenes))
    options: dict[str, Any] = {"square": False, "margin": 0.05, "device": "cpu"}
    lw2g.start(root / "images", root / "model", boxes=root / "two" / "boxes.json", **options)
    lw2g.learn(root / "model", root / "images", boxes=root / "third", out=root / "more", **options)
    return root


def called(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def given(form: str, place: Path) -> Path:
    """Return what ``--boxes`` takes of a format."""
    return place / form / {"coco": "boxes.json", "csv": "boxes.csv"}.get(form, "")


def test_a_model_learns_crops_as_it_would_learn_them_as_files(place: Path, tmp_path: Path) -> None:
    """Cutting while decoding gives the head that the same crops give as class folders."""
    scenes = draw_scenes(tmp_path / "images", PATHS)
    for scene in scenes:
        image = Image.open(tmp_path / "images" / scene.path)
        for name, x, y, w, h in scene.boxes[:2]:
            folder = tmp_path / "cut" / name
            folder.mkdir(parents=True, exist_ok=True)
            image.crop((x - 2, y - 2, x + w + 2, y + h + 2)).save(folder / scene.path)
    expected, _ = lw2g.start(tmp_path / "cut", tmp_path / "model", device="cpu")
    boxes = place / "two" / "boxes.json"
    model, report = lw2g.start(
        place / "images", tmp_path / "boxed", boxes=boxes, square=False, margin=1 / 12, device="cpu"
    )
    assert [entry["images"] for entry in report["classes"]] == [10, 10]
    head, other = model.baseline.closed_form, expected.baseline.closed_form
    assert head is not None
    assert other is not None
    assert torch.equal(head.count, other.count)
    probe = torch.randn(4, 3, 32, 32)
    assert torch.allclose(model(probe), expected(probe), atol=1e-6)


@pytest.mark.parametrize("form", ["coco", "yolo", "voc", "csv"])
def test_answers_come_in_the_format_of_the_boxes(place: Path, tmp_path: Path, form: str) -> None:
    """The file that predict writes has each box with the answer of the table, and is read as boxes again."""
    boxes = given(form, place)
    out = tmp_path / f"answers{boxes.suffix}"
    shown = called("predict", place / "more", place / "images", "--boxes", boxes, "--out", out, "--json")
    assert shown.exit_code == 0, shown.output
    entries = json.loads(shown.stdout)
    assert len(entries) == 30
    assert [entry["path"] for entry in entries][:2] == [f"{place}/images/00.png#{k}" for k in (1, 2)]
    answers = {entry["path"]: (entry["class"], entry["probability"]) for entry in entries}
    assert sum(answers[path][0] == NAMES[int(path[-1]) - 1] for path in answers) >= 27
    written = dict(_read(form, out, place / "images"))
    assert {path: name for path, (name, _) in written.items()} == {
        path: name for path, (name, _) in answers.items()
    }
    for path, (_, probability) in written.items():
        assert probability == pytest.approx(answers[path][1], abs=1e-6)
    again = called("test", place / "more", place / "images", "--boxes", out, "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["accuracy"] == 100.0
    assert json.loads(again.stdout)["images"] == 30


@pytest.mark.parametrize("form", ["coco", "yolo"])
def test_a_forgotten_class_is_no_category(place: Path, tmp_path: Path, form: str) -> None:
    """The classes of a written file are those that the model knows, numbered without a gap."""
    less = tmp_path / "less"
    lw2g.unlearn(place / "more", NAMES[0], out=less, device="cpu")
    boxes = given(form, place)
    out = tmp_path / f"answers{boxes.suffix}"
    written = called("predict", less, place / "images", "--boxes", boxes, "--out", out)
    assert written.exit_code == 0, written.output
    if form == "coco":
        listed = {entry["id"] - 1: entry["name"] for entry in json.loads(out.read_text())["categories"]}
    else:
        listed = yaml.safe_load((out / "data.yaml").read_text())["names"]
    assert listed == dict(enumerate(NAMES[1:]))
    assert {name for _, (name, _) in _read(form, out, place / "images")} <= set(NAMES[1:])


def _read(form: str, out: Path, images: Path) -> list[tuple[str, tuple[str, float]]]:
    """Return path, class and probability of each answer, by a reader of this test."""
    rows: list[tuple[str, tuple[str, float]]] = []
    if form == "coco":
        content = json.loads(out.read_text())
        names = {entry["id"]: entry["name"] for entry in content["categories"]}
        files = {entry["id"]: entry["file_name"] for entry in content["images"]}
        for entry in content["annotations"]:
            answer = (names[entry["category_id"]], entry["score"])
            rows.append((f"{images / files[entry['image_id']]}#{entry['id'] % 3 + 1}", answer))
        return rows
    if form == "csv":
        with out.open() as file:
            for number, row in enumerate(csv.DictReader(file)):
                assert row["camera"] == "north"
                answer = (row["class"], float(row["probability"]))
                rows.append((f"{images / row['path']}#{number % 3 + 1}", answer))
        return rows
    if form == "voc":
        for path in sorted(out.glob("*.xml")):
            for number, entry in enumerate(ElementTree.parse(path).getroot().iter("object"), 1):
                answer = (entry.findtext("name") or "", float(entry.findtext("confidence") or "nan"))
                rows.append((f"{images / path.with_suffix('.png').name}#{number}", answer))
        return rows
    listed = (out / "data.yaml").read_text().splitlines()[1:]
    names = {int(line.split(":")[0]): line.split(":")[1].strip() for line in listed}
    for path in sorted((out / "labels").glob("*.txt")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            cells = line.split()
            answer = (names[int(cells[0])], float(cells[5]))
            rows.append((f"{images / path.with_suffix('.png').name}#{number}", answer))
    return rows


def test_a_box_that_is_like_no_class_is_written_as_unknown(place: Path, tmp_path: Path) -> None:
    """With ``--reject`` strange boxes get a category of their own; the file need not name its classes."""
    Image.effect_noise((96, 64), 200).convert("RGB").save(tmp_path / "noise.png")
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("path,x,y,w,h\nnoise.png,0,0,60,60\n")
    out = tmp_path / "out.csv"
    shown = called("predict", place / "more", tmp_path, "--boxes", boxes, "--out", out, "--reject", "0.05")
    assert shown.exit_code == 0, shown.output
    head, row = out.read_text().splitlines()
    assert head == "path,x,y,w,h,class,probability"
    assert row.startswith("noise.png,0,0,60,60,unknown,0.")


REFUSED: dict[str, tuple[list[str], str]] = {
    "a table for COCO": (["--boxes", "coco/boxes.json", "--out", "new.csv"], "let it end in .json"),
    "a taken file": (["--boxes", "csv/boxes.csv", "--out", "csv/boxes.csv"], "is there already"),
    "no folder": (["--boxes", "csv/boxes.csv", "--out", "no/new.csv"], "there is no folder"),
    "no boxes": (["--out", "new.csv"], "give --boxes, too"),
    "no boxes to cut": (["--margin", "0.2"], "give boxes, too, or leave them out"),
    "several folders": (["model", "--boxes", "csv/boxes.csv"], "expected one folder of images but got 2"),
    "nothing there": (["--boxes", "no.json"], "there is nothing at"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_mistakes_with_boxes_are_one_line(place: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """What cannot be is refused in a line with exit code 2 before the model is opened."""
    words, expected = REFUSED[case]
    monkeypatch.chdir(place)
    shown = called("predict", "more", "images", *words)
    assert shown.exit_code == 2, shown.output
    (line,) = shown.stderr.splitlines()
    assert expected in line
    assert not (place / "new.csv").exists()


def test_one_box_of_two_classes_is_refused_and_copies_count_once(place: Path, tmp_path: Path) -> None:
    """An equal box of an equal image is a copy, and as another class an error that names it."""
    images = tmp_path / "images"
    draw_scenes(images, ["a.png"])
    (images / "b.png").write_bytes((images / "a.png").read_bytes())
    boxes = tmp_path / "boxes.csv"
    rows = ["path,x,y,w,h,class", "a.png,3,4,24,24,bars", "b.png,3,4,24,24,bars", "a.png,34,11,24,24,cross"]
    boxes.write_text("\n".join(rows))
    shown = called("start", images, tmp_path / "model", "--boxes", boxes, "--device", "cpu")
    assert shown.exit_code == 0, shown.output
    assert "1 copy of other images, counted once, in bars" in shown.stderr
    boxes.write_text("\n".join([*rows, "b.png,34,11,24,24,bars"]))
    shown = called("start", images, tmp_path / "other", "--boxes", boxes)
    assert shown.exit_code == 2
    assert f"'{images}/b.png#2' of class 'bars' is a box of class 'cross', too" in shown.stderr
