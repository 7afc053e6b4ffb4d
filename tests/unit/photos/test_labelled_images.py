"""Images of a program in place of class folders: the same model, in every usual form, refused in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, TensorDataset

import lw2g
from lw2g.errors import ConfigError, DataError
from lw2g_photos.labelled_images import LabelledImages

COLOURS = {"blue": (30, 30, 200), "red": (200, 30, 30)}


def drawn(colour: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return noisy images of a colour, uint8 ``[count, 16, 16, 3]``."""
    noise = np.random.default_rng(seed).normal(0, 8, (count, 16, 16, 3))
    return np.clip(COLOURS[colour] + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def given() -> tuple[np.ndarray[Any, Any], list[str]]:
    """Six images of each of two classes."""
    images = np.concatenate([drawn(colour, 6, seed) for seed, colour in enumerate(COLOURS)])
    return images, [colour for colour in COLOURS for _ in range(6)]


@pytest.fixture(scope="module")
def model(given: tuple[np.ndarray[Any, Any], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of them."""
    return lw2g.start(given, tmp_path_factory.mktemp("labelled") / "model", head="lda", device="cpu")[0]


def test_arrays_make_the_model_that_their_files_make(
    model: Any, given: tuple[np.ndarray[Any, Any], list[str]], tmp_path: Path
) -> None:
    """To the bit; and they are tested, learned and called unknown as files are."""
    files = []
    for place, (image, label) in enumerate(zip(*given, strict=True)):
        files.append(tmp_path / "photos" / label / f"{place:02}.png")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(files[-1])
    lw2g.start(tmp_path / "photos", tmp_path / "model", head="lda", device="cpu")
    stored = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert stored == (Path(model.home.source) / "model.safetensors").read_bytes()
    scored = model.test((given[0][3:9], ["blue"] * 6), strangers=list(given[0]), reject=0.1)
    assert (scored["accuracy"], scored["images"], scored["strangers"]["images"]) == (50.0, 6, 12)
    assert scored["classes"][0]["taken_for"] == [("red", 3)]
    assert model.test(list(zip(files, given[1], strict=True)))["accuracy"] == 100.0
    green = np.zeros((5, 16, 16, 3), np.uint8) + np.arange(5, dtype=np.uint8)[:, None, None, None] + 60
    grown, report = model.learn((green, ["green"] * 5), out=tmp_path / "grown")
    assert [(entry["class"], entry["images"]) for entry in report["classes"]] == [("green", 5)]
    assert (
        grown.test((green, ["green"] * 5), strangers=tmp_path / "photos" / "red", reject=0.1)["accuracy"]
        == 100.0
    )


class Pairs:
    """A data set with names of classes, as torchvision has them."""

    classes = ("zebra", "ant")

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return Image.fromarray(self.images[index]), index // 6


@pytest.mark.parametrize(
    "form", ["array", "tensor", "floats", "pairs", "data set", "part of a data set", "torch"]
)
def test_every_usual_form_is_the_same_images(
    form: str, given: tuple[np.ndarray[Any, Any], list[str]]
) -> None:
    """Numbers are classes in their order, and a data set's names are its own."""
    images = given[0]
    numbers = [2] * 6 + [10] * 6
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2)
    forms: dict[str, Any] = {
        "array": (images, np.array(numbers)),
        "tensor": (channels_first, torch.tensor(numbers)),
        "floats": (images / 255, numbers),
        "pairs": list(zip(images, numbers, strict=True)),
        "data set": Pairs(images),
        "part of a data set": Subset(Pairs(images), range(12)),
        "torch": TensorDataset(channels_first, torch.tensor(numbers)),
    }
    found = LabelledImages.of(forms[form], "")
    assert found.order == (("zebra", "ant") if "data set" in form else ("2", "10"))
    by_class = found.by_class()
    assert tuple(by_class) == found.order
    stacked = torch.stack([image for of_class in by_class.values() for image in of_class.paths])
    assert torch.equal(stacked, channels_first)


IMAGES = [np.full((4, 4, 3), shade, np.uint8) for shade in range(3)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((IMAGES, ["a", "b"]), "3 images and 2 labels; give one for each"),
        ((IMAGES, [0, 1, np.nan]), "label 2 is nan, and no class"),
        ((IMAGES, np.array([0.0, 1.0, 2.0])), "label 0 is 0.0, and no class"),
        ((IMAGES, [True, False, True]), "label 0 is True, and no class"),
        (
            (IMAGES, np.array([0, 1, -1])),
            "label 2 is -1, and no class; give the name of a class or its number",
        ),
        ((IMAGES, ["a", "b", " "]), "no class can be called ''; rename it"),
        ((IMAGES[:1] * 2, ["a", "b"]), "image 1 of class 'b' is one of class 'a', too; keep it in one"),
        (([np.full((4, 4, 3), np.nan)], ["a"]), "image 0: pixels of float64 that are not finite have no"),
        (
            ([np.zeros((5, 4, 5), np.uint8)], ["a"]),
            "image 0: an array of shape [5, 4, 5] is no image",
        ),
        (
            (IMAGES, "cup"),
            "expected a list of labels but got 'cup'; give the class of each image, as in ['cup'",
        ),
        (("dir", ["a", "b", "c"]), "expected a list of images but got 'dir'; give paths, arrays"),
        (([], []), "no image was given; give at least one of each class"),
        (IMAGES, "item 0 is a ndarray, and no pair (image, label); give a folder of CLASS/IMAGE, (i"),
        (7, "expected a folder or labelled images but got int; give a folder of CLASS/IMAGE, (image"),
        (
            DataLoader(Pairs(IMAGES)),
            "images but got DataLoader; a loader gives batches: give its data",
        ),
        (
            {"image": IMAGES, "label": [0, 1, 2]},
            "expected a folder or labelled images but got dict; give",
        ),
        (([Path("nowhere.png")], ["a"]), "'nowhere.png': there is no such image"),
    ],
)
def test_what_is_no_labelled_images_is_told_in_a_line(wrong: Any, message: str, tmp_path: Path) -> None:
    """By the argument, before anything is written."""
    with pytest.raises(DataError) as told:
        lw2g.start(wrong, tmp_path / "model", backbone="micro", device="cpu")
    assert message in str(told.value)
    assert "folder:" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_prompt_shows_a_report_in_a_line(model: Any, given: Any, tmp_path: Path) -> None:
    """Where it is, how much, and how good by the images of the command line; it is a dict all the same."""
    learned, report = model.learn((drawn("blue", 3, 7), ["green"] * 3), out=tmp_path / "more")
    assert repr(report).startswith(f"<report {str(tmp_path / 'more')!r}: 3 images of 1 class, accuracy ")
    assert "images, each left out in turn" in repr(report)
    assert dict(report) == report
    told = "of a test: accuracy 100.0 % of 12 images, of which it has learned all"
    assert repr(model.test(given)) == f"<report {told}>"
    _, report = learned.unlearn("green", out=tmp_path / "less")
    assert repr(report) == f"<report {str(tmp_path / 'less')!r}: without 'green'; 2 classes>"


def test_what_labelled_images_cannot_do_is_told(model: Any, tmp_path: Path) -> None:
    """A class that the model does not know; numbers for names; photos without a backbone; boxes."""
    with pytest.raises(DataError, match=r"labels are numbers, and .* have names, such as 'blue'; give"):
        model.learn(([IMAGES[0]], [1]))
    with pytest.raises(DataError, match=r"labels: the model knows no class 'reds' \(did you mean 'red'\?\)"):
        model.test(([IMAGES[0]], ["reds"]))
    with pytest.raises(ConfigError, match="image 0 has 64 x 40 pixels, and the embedded backbone knows"):
        lw2g.start((np.zeros((1, 40, 64, 3), np.uint8), ["a"]), tmp_path / "model")
    rows = {f"{split}_x": np.eye(4, dtype=np.float32) for split in ("train", "test")}
    labels = {f"{split}_y": np.array([0, 0, 1, 1]) for split in ("train", "test")}
    np.savez(tmp_path / "rows.npz", class_names=np.array(["a", "b"]), **rows, **labels)
    on_rows, report = lw2g.start(tmp_path / "rows.npz", tmp_path / "rows", head="cosine", device="cpu")
    assert any("test rows are not read: given as --test" in warning for warning in report["warnings"])
    for ask in (on_rows.learn, on_rows.test):
        with pytest.raises(
            DataError, match="the model is on stored features and takes no images; give a file"
        ):
            ask((IMAGES, ["a", "b", "a"]))
    with pytest.raises(DataError, match="boxes: they are of images in a folder"):
        model.learn((IMAGES, ["a", "b", "c"]), boxes="boxes.csv")
