"""The folder of a new model: kept for one process, and cleared of what killed processes left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lw2g
from lw2g.disk.lock import BusyError, locked
from lw2g.errors import ConfigError, DataError
from lw2g.model.places import free_folder, part_of, reserved
from lw2g_photos import step_taking as learning
from written_images import write_images


def pictures(root: Path, classes: int, each: int) -> Path:
    """Write noisy images of some classes, ``ROOT/cN/I.png``, and return the root."""
    draw = np.random.default_rng(classes)
    for number in range(classes):
        images = (draw.integers(0, 255, (16, 16, 3), dtype=np.uint8) for _ in range(each))
        write_images(root / f"c{number}", images)
    return root


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_free_name_is_given_once(tmp_path: Path) -> None:
    """Two steps on one model at once get two folders, and no lock is left."""
    (tmp_path / "model").mkdir()
    with reserved(None, tmp_path / "model") as one, reserved(None, tmp_path / "model") as other:
        assert (one.name, other.name) == ("model-2", "model-3")
        one.mkdir()
    assert free_folder(tmp_path / "model").name == "model-3"
    assert names(tmp_path) == ["model", "model-2"]


def test_a_chosen_name_is_refused_before_the_work(tmp_path: Path) -> None:
    """While another process makes it, and once it is there; a refusal leaves no folder behind."""
    out = tmp_path / "new" / "model"
    with (
        reserved(out),
        pytest.raises(BusyError, match=r"is being made by process .*; wait for it, or choose"),
    ):
        reserved(out).__enter__()
    assert names(tmp_path) == []
    (out / "file").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is there already; choose another folder"):
        reserved(out).__enter__()


def test_leftovers_of_killed_steps_are_removed(tmp_path: Path) -> None:
    """Those whose lock nobody holds, and nothing else that lies there."""
    dead, own, alive = (part_of(tmp_path / name) for name in ("model-7", "model-2", "other"))
    for part in (dead, own, alive):
        part.mkdir()
        (part / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".notes.lw2g-part").mkdir()
    (tmp_path / ".model-7.lw2g-lock").write_text("")
    with locked(tmp_path / ".other.lw2g-lock"), reserved(None, tmp_path / "model"):
        pass
    assert names(tmp_path) == sorted([alive.name, ".notes.lw2g-part"])


def test_two_steps_at_once_are_both_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that ends while another one writes: each has a folder of its own."""
    images = pictures(tmp_path / "first", 2, 6)
    model = tmp_path / "model"
    lw2g.start(images, model, device="cpu")
    shutil.move(pictures(tmp_path / "more", 3, 5) / "c2", tmp_path / "new" / "c2")
    write, others = learning.write_export, []

    def meanwhile(*arguments: Any, **options: Any) -> int:
        if not others:
            others.append(None)
            others.append(lw2g.learn(model, tmp_path / "new", device="cpu")[1]["out"])
        return write(*arguments, **options)

    monkeypatch.setattr(learning, "write_export", meanwhile)
    _, report = lw2g.learn(model, tmp_path / "new", device="cpu")
    assert [Path(report["out"]).name, Path(others[1]).name] == ["model-2", "model-3"]
    assert lw2g.load(report["out"]).classes == lw2g.load(others[1]).classes == ("c0", "c1", "c2")


@pytest.mark.parametrize("head", ["lda", "cosine", "mahalanobis"])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_classes_of_one_image_make_a_model(head: str, classes: int, tmp_path: Path) -> None:
    """It finds each of the images that it was made of."""
    images = pictures(tmp_path / "images", classes, 1)
    model, report = lw2g.start(images, tmp_path / "model", head=head, device="cpu")
    found = [row["class"] for row in model.predict(sorted(images.rglob("*.png")))]
    assert found == [entry["class"] for entry in report["classes"]] == [f"c{n}" for n in range(classes)]


def test_a_model_that_cannot_answer_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is opened and asked before anybody is told that it is there."""
    images = pictures(tmp_path / "images", 2, 3)
    whole = learning.lasting_tensors

    def spoilt(parts: Any) -> dict[str, torch.Tensor]:
        return {
            name: value * float("nan") if "mean" in name else value for name, value in whole(parts).items()
        }

    monkeypatch.setattr(learning, "lasting_tensors", spoilt)
    with pytest.raises(DataError, match=r"nothing was written: the model cannot be used: .*not finite"):
        lw2g.start(images, tmp_path / "model", device="cpu")
    assert names(tmp_path) == ["images"]


@pytest.mark.parametrize("place", ["model/in", "images/in", "test/a/in", "model"])
def test_a_model_is_not_written_into_what_it_is_made_of(tmp_path, place):
    """Neither into the model before it nor among the images, which the next reader would take for a class."""
    for name in ("model", "images", "test"):
        (tmp_path / name).mkdir()
    with (
        pytest.raises(ConfigError, match=r"is read; choose (a folder outside of it|another folder)"),
        reserved(tmp_path / place, tmp_path / "model", inputs=(tmp_path / "images", tmp_path / "test", None)),
    ):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["images", "model", "test"]
