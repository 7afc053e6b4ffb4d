"""What is told of class folders before anything is learned from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from lw2g.errors import DataError
from lw2g_photos.class_folders import notes_of, read_class_folders, require_classes


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
        (".", "photos/ant", "if 'ant' is a class, {alone}, or photos for 'bee', too; else "),
        ("photos", "ant", "if 'ant' is a class, {alone}, or {root}/photos for 'bee', too; else "),
        (".", "alone/ant", "if 'ant' is a class, give alone; else "),
        ("alone/ant", ".", "if 'ant' is a class, give {root}/alone; else "),
        (".", "some/loose", "if 'loose' is a class, {alone}; else "),
        (".", "mixed", ""),
    ],
)
def test_a_class_in_place_of_its_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cwd: str, given: str, remedy: str
) -> None:
    """The folder above it is the one to give where it holds nothing else; other classes there are named."""
    names = ["photos/ant", "photos/bee", "alone/ant", "some/loose", "some/other/ant", "mixed", "mixed/ant"]
    root = _written(tmp_path, *(f"{name}/1.png" for name in names))
    monkeypatch.chdir(root / cwd)
    with pytest.raises(DataError) as told:
        read_class_folders(Path(given))
    remedy = remedy.format(alone="move it into a folder of its own and give that", root=root)
    assert told.value.remedy == f"{remedy}make a folder for each class: FOLDER/CLASS/IMAGE"


def test_the_neighbours_of_a_class_are_looked_at_until_some_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be opened is none; of many, those behind the named ones are not read."""
    names = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")
    root = _written(tmp_path, *(f"{name}/1.png" for name in names))
    listed = []
    list_folder = Path.iterdir

    def closed(folder: Path) -> Iterator[Path]:
        listed.append(folder.name)
        if folder.name == "bee":
            raise PermissionError(folder)
        return list_folder(folder)

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(DataError) as told:
        require_classes(root / "ant")
    assert f"or {root} for 'cat', 'dog', 'eel', ..., too; else " in str(told.value.remedy)
    assert "fox" in listed
    assert "gnu" not in listed


def test_domains_with_splits_are_no_classes(tmp_path: Path) -> None:
    """What to give is told, and a run on all of them with the options that were typed; none of a model."""
    names = [f"my {domain}/{split}/ant/1.png" for domain in ("Art", "Real") for split in ("test", "train")]
    root = _written(tmp_path, *names)
    with pytest.raises(DataError, match=r"holds domains with splits .* and no classes") as told:
        require_classes(root, "--backbone vit-tiny --weights w.pt")
    one = f"give '{root}/my Art/train' for one domain"
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
