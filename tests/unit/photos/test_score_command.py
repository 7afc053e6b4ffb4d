"""``lw2g test``, and the totals that ``start`` and ``learn`` print."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from lw2g.cli.main import main


def write_images(folder: Path, colour: tuple[int, int, int], count: int, seed: int) -> None:
    """Write noisy images of a colour."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.clip(np.array(colour) + draw.normal(0, 8, (32, 32, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model of red and blue images, and what `start` printed."""
    place = tmp_path_factory.mktemp("score")
    write_images(place / "photos" / "red", (200, 30, 30), 10, 0)
    write_images(place / "photos" / "blue", (30, 30, 200), 10, 1)
    arguments = ["start", str(place / "photos"), str(place / "model"), "--backbone", "micro"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return place / "model", done.stdout


def test_start_prints_a_total(model: tuple[Path, str]) -> None:
    """Of the images that were held out, two of each class."""
    assert "accuracy: 100.0 % of 4 images not learned from" in model[1]
    assert "old classes" not in model[1]  # a first model has none


def test_right_answers_are_counted(model: tuple[Path, str], tmp_path: Path) -> None:
    """Over images, not over classes: a folder of three reds and one blue that is called red."""
    write_images(tmp_path / "more" / "red", (200, 30, 30), 3, 2)
    Image.new("RGB", (32, 32), (30, 30, 200)).save(tmp_path / "more" / "red" / "blue.png")
    write_images(tmp_path / "more" / "blue", (30, 30, 200), 1, 3)
    done = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more")])
    assert done.exit_code == 0, done.output
    assert "80.0 % of 5 images named rightly" in done.stdout
    assert "blue (1)" in done.stdout
    told = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more"), "--json"])
    scored = json.loads(told.stdout)
    assert (scored["accuracy"], scored["images"]) == (80.0, 5)
    assert [(row["class"], row["images"], row["recall"]) for row in scored["classes"]] == [
        ("blue", 1, 100.0),
        ("red", 4, 75.0),
    ]
    assert scored["classes"][1]["taken_for"] == [["blue", 1]]


def test_a_class_that_the_model_does_not_know_is_refused(model: tuple[Path, str], tmp_path: Path) -> None:
    """With the nearest name; it would count as wrong without a word."""
    write_images(tmp_path / "more" / "rad", (200, 30, 30), 1, 2)
    done = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more")])
    assert done.exit_code == 2
    assert "the model knows no class 'rad' (did you mean 'red'?)" in done.stderr
