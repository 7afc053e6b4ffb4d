"""Data that change under a run: it ends in one line that names the file, and what it kept is right."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from coloured_images import images_of
from listening import At
from lw2g.config.resolve import Resolved, resolve
from lw2g.errors import DataError
from lw2g.interfaces.tracker import Event, TaskEvaluated
from lw2g.lifecycle.runner import resume, start
from lw2g.pixels.feature_containers import open_container, read_entry
from lw2g.pixels.stored_arrays import array_of
from lw2g.registry.catalogue import load_catalogue
from lw2g_datasets.writing_features import write_features
from runs import different, tensors, untimed
from vectors import vector_file

CLASSES = 4


def photographs(root: Path) -> Path:
    """Write images of a colour a class as files."""
    for split, count, seed in (("train", 6, 0), ("test", 4, 1)):
        pixels, labels = images_of(list(range(CLASSES)), count, seed)
        for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            folder = root / split / f"class {label}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).resize((16, 16)).save(folder / f"{number}.png")
    return root


def of_folder(root: Path, **options: Any) -> Resolved:
    """Resolve a run on image folders in tasks of two classes."""
    base = {"benchmark.root": str(root), "benchmark.increment": 2, "run.device": "cpu"}
    return resolve(load_catalogue(), overrides={**base, **options}, baseline="simple-cil", benchmark="folder")


def of_features(file: Path) -> Resolved:
    """Resolve a run on stored features in tasks of two classes."""
    options = {"benchmark.file": str(file), "benchmark.increment": 2, "run.device": "cpu"}
    return resolve(load_catalogue(), overrides=options, baseline="simple-cil", benchmark="features")


def require_told(resolved: Resolved, out: Path, change: Callable[[], None], undo: Callable[[], None]) -> str:
    """Change data after the first task and return what is said; on the old data the run goes on as ever."""
    catalogue = load_catalogue()
    whole = start(resolved, catalogue, out / "whole")

    def after_first(event: Event) -> bool:
        return isinstance(event, TaskEvaluated) and event.task == 0

    with pytest.raises(DataError) as caught:
        start(resolved, catalogue, out / "cut", [At(after_first, change)])
    undo()
    record = resume(out / "cut", catalogue)
    assert untimed(record, "files", "record_hash") == untimed(whole, "files", "record_hash")
    assert not different(tensors(out / "whole"), tensors(out / "cut"))
    told = str(caught.value)
    assert len(told.splitlines()) == 1
    return told


def repaint(files: Sequence[Path]) -> None:
    """Put another image in the place of each file."""
    for file in files:
        Image.new("RGB", (16, 16), (7, 7, 7)).save(file)


WAYS: dict[str, dict[str, Any]] = {
    "kept in memory": {},
    "decoded each time": {"run.image_memory": 0},
    "on disk": {"run.image_memory": 0, "run.image_disk": 10},
    "by a worker": {"run.image_memory": 0, "run.workers": 1},
}


@pytest.mark.parametrize(
    "way", [way if way == "kept in memory" else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]
)
def test_replaced_test_images_end_a_run(tmp_path: Path, way: str) -> None:
    """Wherever images are kept, whether or not they are read again."""
    root = photographs(tmp_path / "photos")
    files = sorted((root / "test").rglob("*.png"))
    before = [(file.read_bytes(), file.stat()) for file in files]

    def put_back() -> None:
        for file, (content, status) in zip(files, before, strict=True):
            file.write_bytes(content)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    told = require_told(of_folder(root, **WAYS[way]), tmp_path, lambda: repaint(files), put_back)
    assert f"{str(files[0])!r} has changed since the run read it first, so task 2 is not kept" in told


@pytest.mark.slow
def test_test_images_that_are_replaced_before_the_only_evaluation_end_a_run(tmp_path: Path) -> None:
    """It tests all tasks up to it, so that the images of the first one count, too."""
    root = photographs(tmp_path / "photos")
    files = sorted((root / "test").rglob("*.png"))
    change = At(lambda event: getattr(event, "task", None) == 1, lambda: repaint(files))
    with pytest.raises(DataError, match=r"'.*/test/class 0/0\.png' has changed since .* task 2 is not kept"):
        start(of_folder(root, **{"run.evaluate": 2}), load_catalogue(), tmp_path / "run", [change])


def test_images_of_tasks_that_are_not_read_yet_may_come_later(tmp_path: Path) -> None:
    """A task asks for the files that it has read, and not for all of a data set."""
    root = photographs(tmp_path / "photos")
    last = sorted((root / "test").rglob("*.png"))[-1]

    def touch() -> None:
        os.utime(last)

    seen: list[int] = []
    with pytest.raises(DataError, match="task 2 is not kept"):
        start(
            of_folder(root),
            load_catalogue(),
            tmp_path / "run",
            [
                At(lambda event: not seen, touch),
                At(lambda event: isinstance(event, TaskEvaluated), lambda: seen.append(1)),
            ],
        )
    assert seen == [1]


def as_npz(folder: Path, plain: Path) -> Path:
    """Return the archive as it is."""
    return plain


def as_packed(folder: Path, plain: Path) -> Path:
    """Write it compressed."""
    np.savez_compressed(folder / "packed.npz", **dict(np.load(plain)))
    return folder / "packed.npz"


def as_folder(folder: Path, plain: Path) -> Path:
    """Write a file for each array."""
    (folder / "f").mkdir()
    for name, array in dict(np.load(plain)).items():
        np.save(folder / "f" / f"{name}.npy", array)
    return folder / "f"


def as_safetensors(folder: Path, plain: Path) -> Path:
    """Write tensors; classes are called by their numbers."""
    arrays = dict(np.load(plain))
    del arrays["class_names"]
    save_file(arrays, folder / "f.safetensors")
    return folder / "f.safetensors"


@pytest.mark.parametrize("write", [as_npz, as_packed, as_folder, as_safetensors])
@pytest.mark.parametrize("how", ["overwritten", "cut"])
def test_changed_features_end_a_run(tmp_path: Path, write: Callable[..., Path], how: str) -> None:
    """In every container; a file that is cut ends no process by a signal."""
    file = write(tmp_path, vector_file(tmp_path / "plain.npz"))
    touched = file / "train_x.npy" if file.is_dir() else file
    content, status = touched.read_bytes(), touched.stat()

    def change() -> None:
        if how == "cut":
            os.truncate(touched, 200)
            return
        at = (
            content.index(array_of(read_entry(file, "train_x", open_container(file))).tobytes()[:32])
            if write is not as_packed
            else 60
        )
        with touched.open("r+b") as open_file:
            open_file.seek(at)
            open_file.write(b"\0" * 16)

    def undo() -> None:
        touched.write_bytes(content)
        os.utime(touched, ns=(status.st_atime_ns, status.st_mtime_ns))

    told = require_told(of_features(file), tmp_path, change, undo)
    if how == "cut" and write is not as_packed:  # which is read whole when it is opened
        assert told.startswith(f"{str(touched)!r} is shorter than it was when it was opened; put it back")
    else:
        assert told.startswith(f"{str(touched)!r} has changed since the run read it first, so task 2")
        assert told.endswith(f"and go on: lw2g.resume({str(tmp_path / 'cut')!r})")


def test_images_that_change_while_their_features_are_stored_leave_no_file(tmp_path: Path) -> None:
    """Rows of two states of a data set never meet in one file."""
    root = photographs(tmp_path / "photos")
    first = sorted((root / "train").rglob("*.png"))[0]

    def change(split: str, done: int, total: int) -> None:
        if split == "train":
            os.utime(first)

    config = of_folder(root).config
    with pytest.raises(DataError, match=r"0\.png' has changed since .*; put the data back"):
        write_features(config, load_catalogue(), tmp_path / "f.npz", progress=change)
    assert not (tmp_path / "f.npz").exists()
