"""What is told of class folders before anything is learned from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from lw2g.errors import ConfigError, DataError
from lw2g_photos.class_folders import notes_of, read_class_folders
from lw2g_photos.folder_checks import require_classes, require_photos


def _written(root: Path, *names: str) -> Path:
    for place, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (place, 0, 0)).save(path)
    return root


def test_a_root_above_the_class_folders_is_told(tmp_path: Path) -> None:
    """The folders in the only class may be the classes: they are named, and the folder to give."""
    root = _written(tmp_path, *(f"photos/{name}/1.png" for name in ("ant", "bee", "cat", "dog")))
    (note,) = notes_of(read_class_folders(root))
    photos = str(tmp_path / "photos")
    assert f"{photos!r} is the only class" in note
    assert "('ant', 'bee', 'cat', ...)" in note
    assert note.endswith(f"give {photos}")


@pytest.mark.parametrize(
    ("cwd", "given", "remedy"),
    [
        (
            ".",
            "photos/ant",
            "photos/ant/CLASS/IMAGE; or, if 'ant' is a class, give 'photos' (then 'bee' is a class, too)",
        ),
        (
            "photos",
            "ant",
            "ant/CLASS/IMAGE; or, if 'ant' is a class, give '{root}/photos' (then 'bee' is a class, too)",
        ),
        (".", "alone/ant", "alone/ant/CLASS/IMAGE; or, if 'ant' is a class, give 'alone'"),
        ("alone/ant", ".", "CLASS/IMAGE; or, if 'ant' is a class, give '{root}/alone'"),
        (".", "some/loose", "some/loose/CLASS/IMAGE"),
        (".", "mixed/ant", "mixed/ant/CLASS/IMAGE"),
    ],
)
def test_a_class_in_place_of_its_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cwd: str, given: str, remedy: str
) -> None:
    """First come folders for classes; then the folder above, where all folders in that hold images."""
    names = ["photos/ant", "photos/bee", "alone/ant", "some/loose", "some/other/ant", "mixed", "mixed/ant"]
    root = _written(tmp_path, *(f"{name}/1.png" for name in names))
    monkeypatch.chdir(root / cwd)
    with pytest.raises(DataError) as told:
        read_class_folders(Path(given))
    assert told.value.remedy == f"make a folder for each class: {remedy.format(root=root)}"


@pytest.mark.parametrize(
    ("stray", "told"),
    [
        (["1.png"], "the image '1.png' lies in no class; move it into a class folder, or out of {root}"),
        (
            ["1.png", "2.png"],
            "2 images lie in no class, first '1.png'; move each into a class folder, or out ",
        ),
    ],
)
def test_a_stray_photo_is_named(tmp_path: Path, stray: list[str], told: str) -> None:
    """Beside class folders it was meant for one of them, and no new folder is needed."""
    root = _written(tmp_path, *stray, "ant/1.png", "bee/1.png")
    with pytest.raises(DataError) as error:
        require_classes(root)
    assert told.format(root=root) in str(error.value)


def test_what_start_cannot_begin_with_has_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapped arguments, a model in place of the new one, classes one level deeper, no image that is read."""
    monkeypatch.chdir(_written(tmp_path, *(f"above/photos/{name}/1.png" for name in ("ant", "bee"))))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{}")
    (tmp_path / "phone" / "ant").mkdir(parents=True)
    (tmp_path / "phone" / "ant" / "1.avif").write_bytes(b"")
    photos = "above/photos"
    for folder, out, told in (
        (
            "new",
            photos,
            f"no folder 'new'; the photos come first: lw2g start {photos} new --backbone vit-tiny",
        ),
        (photos, "model", f"'model' is there already; teach that model more: lw2g learn model {photos}; or"),
        (
            "above",
            "new",
            "'above' holds one folder and no classes; "
            f"the class folders are in {photos}: lw2g start {photos} new --backbone vit-tiny",
        ),
        (
            "phone",
            "new",
            "1 of 1 class in 'phone' holds no image, first 'ant' (files of no known image format",
        ),
        ("nowhere", "new", "no folder 'nowhere'; give a folder that holds CLASS/IMAGE"),
    ):
        with pytest.raises((ConfigError, DataError)) as error:
            require_photos(Path(folder), Path(out), "--backbone vit-tiny")
        assert f"{error.value.what}; {error.value.remedy}".startswith(told)
    require_photos(Path(photos), Path("new"), "")


def test_the_neighbours_of_a_class_are_looked_at_until_one_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be opened is none: the folder above is not offered, and no other one is read."""
    names = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")
    root = _written(tmp_path, *(f"{name}/1.png" for name in names))
    listed = []
    list_folder = Path.iterdir

    def closed(folder: Path) -> Iterator[Path]:
        listed.append(folder.name)
        if folder.name == "cat":
            raise PermissionError(folder)
        return list_folder(folder)

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(DataError) as told:
        require_classes(root / "ant")
    assert told.value.remedy == f"make a folder for each class: {root / 'ant' / 'CLASS' / 'IMAGE'}"
    assert {"bee", "cat"} <= set(listed)
    assert "dog" not in listed
    monkeypatch.undo()
    with pytest.raises(DataError) as told:
        require_classes(root / "ant")
    above = f"give {str(root)!r} (then 'bee', 'cat', 'dog', ... are classes, too)"
    assert told.value.remedy.endswith(f"; or, if 'ant' is a class, {above}")


@pytest.mark.parametrize(
    "splits", [("train", "test"), ("TRAIN", "TEST"), ("Train", "Val"), ("training", "valid")]
)
def test_splits_are_no_classes(tmp_path: Path, splits: tuple[str, str]) -> None:
    """However they are called: the folder to give is named, by every command that reads class folders."""
    root = _written(tmp_path, *(f"{split}/{name}/1.png" for split in splits for name in ("ant", "bee")))
    train, test = splits
    for read in (require_classes, read_class_folders):
        with pytest.raises(DataError, match=f"holds {train}/ and {test}/ and no classes") as told:
            read(root)
        assert told.value.remedy == f"the class folders are in {root / train}: give that"


@pytest.mark.parametrize("train", ["train", "Train"])
def test_domains_with_splits_are_no_classes(tmp_path: Path, train: str) -> None:
    """What to give is told, and a run on all of them with the options that were typed; none of a model."""
    names = [f"my {domain}/{split}/ant/1.png" for domain in ("Art", "Real") for split in ("test", train)]
    root = _written(tmp_path, *names)
    with pytest.raises(DataError, match=r"holds domains with splits .* and no classes") as told:
        require_classes(root, "--backbone vit-tiny --weights w.pt")
    one = f"give '{root}/my Art/{train}' for one domain"
    run = "lw2g run --recommended --backbone vit-tiny --weights w.pt --benchmark folder"
    every = f"{run} --set benchmark.root={root} --set benchmark.stream=domains"
    assert told.value.remedy == f"{one}, or for all of them: {every}"
    with pytest.raises(DataError) as told:
        read_class_folders(root)
    assert told.value.remedy == one


@pytest.mark.parametrize(
    "names",
    [
        ["ant/1.png", "ant/2.png"],
        ["ant/images/1.png", "ant/images/2.png"],
        ["ant/1.png", "ant/new/2.png", "ant/old/3.png"],
        ["ant/images/1.png", "bee/2.png"],
        ["ant/train/1.png", "ant/train/.seen/2.png", "bee/train/3.png", "bee/train/.seen/4.png"],
    ],
)
def test_other_folders_are_classes_without_a_word(tmp_path: Path, names: list[str]) -> None:
    """A class may hold images, one folder of them, or both."""
    assert list(notes_of(read_class_folders(_written(tmp_path, *names)))) == []


def test_several_folders_in_a_class_are_told_as_one_class(tmp_path: Path) -> None:
    """Whoever meant them as classes sees that they were merged; images beside a folder are merged, too."""
    names = ["ant/new/1.png", "ant/old/2.png", "bee/3.png", "bee/wild/4.png", "cat/images/5.png"]
    (note,) = notes_of(read_class_folders(_written(tmp_path, *names)))
    where = "'ant/new', 'ant/old', 'bee/wild'"
    assert note == f"images of subfolders count to the class folder above them: {where}"
