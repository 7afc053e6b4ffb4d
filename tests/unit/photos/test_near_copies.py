"""Series of photos: an accuracy of images that have near copies among those learned is told with a note."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

import lw2g
from lw2g.cli.main import main
from lw2g.model.exported import read_export, read_manifest
from lw2g_photos.near_copies import near_copies, near_copies_told
from lw2g_photos.step_words import words_of_near_copies
from written_images import write_images

SERIES = "nearly the same as another of their class (a series of one object?)"


def drawings(folder: Path, objects: int, each: int, seed: int = 0) -> None:
    """Write for each class some objects, coloured tiles, of each so many pictures that differ by a little."""
    draw = np.random.default_rng(seed)
    for name in ("ant", "bee", "cat"):
        images = []
        for _ in range(objects):
            tiles = draw.integers(0, 200, (4, 4, 3))
            thing = np.kron(tiles, np.ones((8, 8, 1), dtype=int))
            images += [thing + draw.integers(0, 8, thing.shape) for _ in range(each)]
        write_images(folder / name, images)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series of few and of many pictures, and distinct ones."""
    root = tmp_path_factory.mktemp("photos")
    drawings(root / "burst", 4, 5)
    drawings(root / "many", 10, 20)
    drawings(root / "distinct", 20, 1)
    drawings(root / "others", 20, 1, seed=1)
    return root


def start(*words: object) -> Any:
    done = CliRunner().invoke(main, ["start", *map(str, words), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize(("name", "checked"), [("burst", 60), ("many", 30)])
def test_a_series_is_told_in_one_line(name: str, checked: int, photos: Path, tmp_path: Path) -> None:
    """Left out in turn, or set apart: with the number, and what tells more."""
    said = start(photos / name, tmp_path / "m").stderr
    (line,) = [line for line in said.splitlines() if SERIES in line]
    assert line.startswith("note: ")
    assert line.endswith(f"check with other photos: lw2g test {tmp_path / 'm'} FOLDER")
    noted = read_manifest(tmp_path / "m").history.steps[-1].checks["near_copies"]
    assert noted["images"] >= checked
    assert noted["near"] > 0.9 * noted["images"]


def test_distinct_images_and_those_of_a_test_are_not_told(photos: Path, tmp_path: Path) -> None:
    """Nothing is wrong with an accuracy of other images, even where those that were learned are series."""
    assert SERIES not in start(photos / "distinct", tmp_path / "m").stderr
    tested = start(photos / "burst", tmp_path / "t", "--test", photos / "others")
    assert SERIES not in tested.stderr
    assert read_manifest(tmp_path / "t").history.steps[-1].checks["near_copies"] is None


def test_it_survives_learning_and_forgetting(photos: Path, tmp_path: Path) -> None:
    """Old images count where they say the accuracy, and those of a forgotten class no longer do."""
    model, report = lw2g.start(photos / "burst", tmp_path / "m", device="cpu")
    assert report["near_copies"] == {"images": 60, "near": 60}
    assert SERIES in report["warnings"][0]
    distinct = tmp_path / "new"
    distinct.mkdir()
    shutil.copytree(photos / "others" / "ant", distinct / "dog")
    grown, report = model.learn(distinct, out=tmp_path / "m2")
    assert (report["near_copies"]["images"], report["near_copies"]["near"]) == (80, 60)
    assert report["warnings"][0].startswith("60 of 80 checked images")
    _, report = grown.unlearn("ant", out=tmp_path / "m3")
    assert report["near_copies"] == {"images": 60, "near": 40}
    done = CliRunner().invoke(main, ["unlearn", str(tmp_path / "m3"), "bee"])
    assert f"note: 20 of 40 checked images are {SERIES}" in done.stderr
    _, report = grown.unlearn(last=True, out=tmp_path / "m4")
    assert report["near_copies"] == {"images": 60, "near": 60}


def rows(*centers: float, noise: float, count: int = 10) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {str(one): one + noise * torch.randn(count, 64, generator=draw) for one in centers}


def test_near_is_a_share_of_the_distance_of_classes() -> None:
    """Whatever the scale of features; images that were set apart are held against the others alone."""
    apart = rows(0.0, 10.0, noise=4)
    near = {name: torch.cat([one, one + 0.01]) for name, one in apart.items()}
    for scale in (1e-4, 1, 1e4):
        assert near_copies({name: scale * one for name, one in apart.items()}, None)["near"] == 0
        assert near_copies({name: scale * one for name, one in near.items()}, None)["near"] == 40
    asked = {"0.0": near["0.0"][:10]}
    assert near_copies(asked, near) == {"images": 10, "near": 10}
    assert near_copies(asked, {"0.0": apart["10.0"], "10.0": apart["10.0"]}) == {"images": 10, "near": 0}
    assert near_copies(asked, {"10.0": near["0.0"]}) == {"images": 10, "near": 0}  # of another class


def test_many_rows_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found does not depend on how many products are held at a time."""
    images = rows(0.0, 10.0, noise=4, count=50)
    images["0.0"][40:] = images["0.0"][:10]
    whole = near_copies(images, None)
    assert whole["near"] == 20
    monkeypatch.setattr("lw2g_photos.near_copies.CELLS", 120)
    assert near_copies(images, None) == whole


@pytest.mark.parametrize(("near", "images", "told"), [(24, 100, False), (25, 100, True), (1, 3, False)])
def test_a_few_copies_say_nothing(near: int, images: int, told: bool) -> None:
    """From a quarter of the images on, and of more than one."""
    assert bool(words_of_near_copies({"images": images, "near": near}, "m")) == told
    assert words_of_near_copies(None, "m") == ""


def test_a_series_among_many_old_images_is_told(photos: Path, tmp_path: Path) -> None:
    """Of a backbone of photos, by the classes of the step; of drawings a whole class may be near."""
    lw2g.start(photos / "distinct", tmp_path / "m", device="cpu")
    series = tmp_path / "series"
    drawings(tmp_path / "some", 1, 9, seed=2)
    shutil.copytree(tmp_path / "some" / "ant", series / "cup")
    grown, report = lw2g.learn(tmp_path / "m", series, tmp_path / "m2", device="cpu")
    assert report["near_copies"] == {"images": 69, "near": 9}
    saved = read_export(tmp_path / "m2", whole=True)
    apart = {"cup": [False] * 9}
    assert near_copies_told(report, saved, grown, apart, drawings=False) == {"images": 9, "near": 9}
