"""Test images that are training images, too: counted over all tasks, told, and refused when all are."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import lw2g
from lw2g.cli.main import main
from lw2g.errors import DataError
from lw2g.pixels.shared import notes_on, require_unseen_images
from lw2g.pixels.streams import as_one_task, hold_back, joined
from lw2g.registry.catalogue import load_catalogue
from written_images import write_images

SMALL: dict[str, Any] = {
    "baseline": "simple-cil",
    "device": "cpu",
    "progress": False,
    "benchmark.increment": 2,
    "precision": "32-true",
}


def noise(number: int, count: int) -> Any:
    """Return different images, ``[count, 8, 8, 3]``."""
    return np.random.default_rng(number).integers(0, 255, (count, 8, 8, 3), dtype=np.uint8)


def given(train: Any, test: Any, **options: Any) -> Any:
    """Return the stream of arrays with four classes, whose images follow each other."""
    catalogue = load_catalogue()
    component = catalogue.get("benchmark", "given")
    pair = [(images, np.arange(len(images)) % 4) for images in (train, test)]
    config = component.config(increment=2, **options)
    return type(component.build(config))(config, tuple(pair)).stream()


def tree(root: Path, classes: int = 4) -> Path:
    """Write different images of some classes for both splits."""
    for number, split in enumerate(("train", "test")):
        for place in range(classes):
            write_images(root / split / f"c{place}", noise(10 * place + number, 6))
    return root


def test_equal_images_are_counted_wherever_they_are_trained_on() -> None:
    """Of two test images that training images equal, one is of another task and another class."""
    train, test = noise(1, 40), noise(2, 8)
    test[3], test[6] = train[0], train[7]
    shared = require_unseen_images(given(train, test))
    assert shared is not None
    assert (shared.count, shared.tested) == (2, 8)
    # classes 0 and 1 are the first task: of the test images 0, 1, 4, 5 and then 2, 3, 6, 7
    assert shared.named == (("test/3", "train/0"), ("test/6", "train/7"))
    assert str(shared).startswith("2 of 8 test images are training images, too ('test/3' is 'train/0', ")


def test_what_a_stream_becomes_keeps_its_hashes() -> None:
    """Joined with another one, learned as one task, or without images held back."""
    train, test = noise(1, 40), noise(2, 8)
    test[3] = train[0]
    one, other = given(train, test), given(noise(3, 40), train[8:16])
    chosen: Any = type("Chosen", (), {"name": "given"})()
    _, both = joined([chosen, chosen], [one, other])
    for stream, count in ((one, 1), (other, 0), (as_one_task(one), 1), (both, 9)):
        shared = require_unseen_images(stream)
        assert shared is not None
        assert shared.count == count
    left, held = hold_back(one, 4, 0)
    for task, part, before in zip(left.tasks, held, one.tasks, strict=True):
        assert part is not None
        assert len(task.train) + len(part) == len(before.train)
        assert {*task.train.contents, *part.contents} == {*before.train.contents}


def test_the_same_object_for_both_is_refused(tmp_path: Path) -> None:
    """Nothing is learned, and the error says how many and which."""
    images = (noise(1, 40), np.arange(40) % 4)
    with pytest.raises(
        DataError, match=r"40 of 40 test images are training images, too \('test/0' is 'train/0'"
    ):
        lw2g.run(out=tmp_path / "run", benchmark=(images, images), **SMALL)
    assert not (tmp_path / "run").exists()


def test_copied_files_are_told_and_recorded(tmp_path: Path) -> None:
    """By the command while it begins, by reports, `verify` and `submit`, and in the record with hashes."""
    root = tree(tmp_path / "data")
    shutil.copy(root / "train/c0/0.png", root / "test/c1/0.png")
    words = ["run", "--baseline", "simple-cil", "--benchmark", "folder", "--device", "cpu"]
    words += ["--set", f"benchmark.root={root}", "--set", "benchmark.increment=2"]
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    told = "1 of 24 test images is a training image, too ('data/test/c1/0.png' is 'data/train/c0/0.png')"
    assert told in done.stderr
    leak = "1 of 24 test images is a training image, too, so accuracy is not that of unseen images alone\n"
    for command in (["show"], ["show", "--all"], ["report"]):
        assert leak in CliRunner().invoke(main, [*command, str(tmp_path / "run")]).stdout
    verified = CliRunner().invoke(main, ["verify", str(tmp_path / "run")])
    assert (verified.exit_code, f"; but {told}, so accuracy is not" in verified.stdout) == (0, True)
    words = ["--out", str(tmp_path / "pack"), "--who", "me", "--licence", "CC0-1.0", "--tuned-on", "nothing"]
    packed = CliRunner().invoke(main, ["submit", str(tmp_path / "run"), *words, "--runs", "1"])
    assert (packed.exit_code, f"note: {told}; the pack says how many" in packed.stderr) == (0, True)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    pair = ["data/test/c1/0.png", "data/train/c0/0.png"]
    assert record["shared_images"] == {"count": 1, "tested": 24, "named": [pair]}
    names = json.loads((tmp_path / "run" / "samples.json").read_text())
    files = [tmp_path / name for name in names]
    assert record["image_hashes"] == [hashlib.sha256(file.read_bytes()).hexdigest()[:8] for file in files]


def test_a_model_is_not_tested_on_what_it_learns(tmp_path: Path) -> None:
    """`start --test` with the same folder is refused, with some of its images it warns."""
    root = tree(tmp_path / "data", 2)
    with pytest.raises(
        DataError, match=r"all of its images \(12\) are among those that are learned; give others, or"
    ):
        lw2g.start(root / "train", tmp_path / "model", test=root / "train", device="cpu")
    shutil.copy(root / "train/c0/0.png", root / "test/c0/0.png")
    _, report = lw2g.start(root / "train", tmp_path / "model", test=root / "test", device="cpu")
    assert report["warnings"][-1] == "test: shares 1 image with what is learned"
    with Image.open(root / "train/c1/2.png") as image:
        image.save(root / "test/c1/same.bmp")
    _, report = lw2g.start(root / "train", tmp_path / "other", test=root / "test", device="cpu")
    assert report["warnings"][-1] == "test: shares 2 images with what is learned"


def test_an_image_of_two_classes_is_told(tmp_path: Path) -> None:
    """By the run and by `data features`, with both names; the classes are learned as they are."""
    root = tree(tmp_path / "data")
    shutil.copy(root / "train/c0/0.png", root / "train/c2/twin.png")
    told = "1 training image is an image of another class, too ('data/train/c2/twin.png' of class 'c2' is "
    words = ["--benchmark", "folder", "--set", f"benchmark.root={root}", "--set", "benchmark.increment=2"]
    run = ["run", "--baseline", "simple-cil", "--device", "cpu", "--out", str(tmp_path / "run")]
    for command in (run, ["data", "features", "--out", str(tmp_path / "rows.npz")]):
        done = CliRunner().invoke(main, [*command, *words])
        assert done.exit_code == 0, done.output
        assert f"{told}'data/train/c0/0.png' of class 'c0')" in done.stderr
    stored = ["run", "--baseline", "simple-cil", "--benchmark", "features", "--set", "benchmark.increment=2"]
    stored += ["--set", f"benchmark.file={tmp_path / 'rows.npz'}", "--out", str(tmp_path / "stored")]
    assert told in CliRunner().invoke(main, stored).stderr


def test_a_class_that_comes_again_is_one_class() -> None:
    """An image of it is no image of two classes."""
    labels = np.arange(8) % 2
    tasks = [((noise(1, 8), labels), (noise(number, 8), labels)) for number in (2, 3)]
    component = load_catalogue().get("benchmark", "given")
    config = component.config()
    stream = type(component.build(config))(config, tasks).stream()
    assert stream.class_map.targets == (0, 1, 0, 1)
    assert not [note for note in notes_on(stream) if "another class" in note]
