"""Files of stored features: every container gives the same rows, and what is wrong is told in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lw2g.errors import DataError
from lw2g.inputs.feature_files import open_features

METADATA = {"format": "lw2g-features/1", "backbone": {"timm_name": "some_vit", "sha256": "ab" * 32}}


def entries(**changes: Any) -> dict[str, Any]:
    """Return the arrays of a file of three classes, some of them changed; None leaves one out."""
    draw = np.random.default_rng(0)
    arrays = {
        "train_x": draw.normal(size=(9, 4)).astype(np.float32),
        "train_y": np.arange(9) % 3,
        "test_x": draw.normal(size=(6, 4)).astype(np.float32),
        "test_y": np.arange(6) % 3,
        "class_names": np.array(["cat", "dog", "fox"]),
        "metadata": np.array(json.dumps(METADATA)),
    }
    return {name: value for name, value in {**arrays, **changes}.items() if value is not None}


def as_npz(folder: Path, arrays: dict[str, Any]) -> Path:
    """Write an uncompressed archive, whose vectors can be mapped."""
    np.savez(folder / "f.npz", **arrays)
    return folder / "f.npz"


def as_packed(folder: Path, arrays: dict[str, Any]) -> Path:
    """Write a compressed archive, which is read into memory."""
    np.savez_compressed(folder / "f.npz", **arrays)
    return folder / "f.npz"


def as_folder(folder: Path, arrays: dict[str, Any]) -> Path:
    """Write a file for each array, and the JSON object beside them."""
    for name, value in arrays.items():
        if name != "metadata":
            np.save(folder / f"{name}.npy", value)
    (folder / "features.json").write_text(str(arrays["metadata"]))
    return folder


def as_safetensors(folder: Path, arrays: dict[str, Any]) -> Path:
    """Write tensors, and strings into the JSON object of the header."""
    strings = {
        name: value.tolist() for name, value in arrays.items() if value.dtype.kind == "U" and value.ndim
    }
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items() if value.dtype.kind not in "U"}
    described = json.dumps({**json.loads(str(arrays["metadata"])), **strings})
    save_file(tensors, folder / "f.safetensors", metadata={"metadata": described})
    return folder / "f.safetensors"


@pytest.mark.parametrize("write", [as_npz, as_packed, as_folder, as_safetensors])
def test_every_container_gives_the_same(tmp_path, write):
    """Vectors, labels, names and metadata do not depend on the kind of file."""
    arrays = entries()
    file = open_features(write(tmp_path, arrays))
    assert (file.dim, file.dtype, file.class_names) == (4, "float32", ("cat", "dog", "fox"))
    assert file.metadata == METADATA
    assert {split: rows.ids[0] for split, rows in file.splits.items()} == {
        "train": "train/0",
        "test": "test/0",
    }
    for split, rows in file.splits.items():
        assert torch.equal(rows.x, torch.from_numpy(arrays[f"{split}_x"]))
        assert rows.y.tolist() == arrays[f"{split}_y"].tolist()


def test_vectors_of_an_archive_are_mapped(tmp_path):
    """What is opened follows the bytes on the disk: nothing was loaded."""
    path = as_npz(tmp_path, entries())
    rows = open_features(path).splits["test"].x
    content = path.read_bytes()
    mark = np.float32(rows[0, 0]).tobytes()
    path.write_bytes(content.replace(mark, np.float32(42).tobytes()))
    assert float(rows[0, 0]) == 42.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read(tmp_path, dtype):
    """Rows keep the dtype in which they lie; bfloat16 needs safetensors."""
    tensors = {
        "train_x": torch.ones(2, 3, dtype=dtype),
        "train_y": torch.tensor([0, 1]),
        "test_x": torch.ones(1, 3, dtype=dtype),
        "test_y": torch.tensor([1]),
    }
    save_file(tensors, tmp_path / "f.safetensors")
    file = open_features(tmp_path / "f.safetensors")
    assert file.splits["train"].x.dtype == dtype
    assert (file.class_names, file.metadata) == (("0", "1"), {})


def test_a_split_alone_can_be_asked_for(tmp_path):
    """Vectors to predict need no training rows."""
    arrays = entries(train_x=None, train_y=None)
    file = open_features(as_npz(tmp_path, arrays), ("test",))
    assert list(file.splits) == ["test"]
    with pytest.raises(DataError, match="has no entry 'train_x'"):
        open_features(tmp_path / "f.npz")


def nan() -> np.ndarray:
    rows = np.ones((9, 4), dtype=np.float32)
    rows[5, 2] = np.nan
    return rows


WRONG = {
    "train_x holds NaN or infinity, first in row 5": {"train_x": nan()},
    "test_x holds NaN or infinity, first in row 0": {"test_x": np.full((6, 4), np.inf, dtype=np.float16)}
    | {"train_x": np.ones((9, 4), dtype=np.float16)},
    "rows of train_x have 4 numbers and rows of test_x 5": {"test_x": np.ones((6, 5), dtype=np.float32)},
    "differ in dtype": {"test_x": np.ones((6, 4), dtype=np.float16)},
    "expected float16 or float32 in train_x but got float64": {"train_x": np.ones((9, 4))},
    r"expected train_x \[rows, numbers\] but got \[9, 2, 2\]": {"train_x": np.ones((9, 2, 2), np.float32)},
    r"train_x has 9 rows, and train_y has the shape \[8\]": {"train_y": np.zeros(8, dtype=int)},
    "expected integers in train_y but got float64": {"train_y": np.zeros(9)},
    "train_y holds -1": {"train_y": np.arange(9) - 1},
    "test_y holds the label 3, of which class_names": {"test_y": np.arange(6) % 4},
    "no row of train_y has the label 2 of 3": {"train_y": np.arange(9) % 2},
    "holds the label 2, of which train_y": {"train_y": np.arange(9) % 2, "class_names": None},
    "no row of train_y has the label 1 of 3": {"train_y": 2 * (np.arange(9) % 2), "class_names": None},
    "class_names repeats": {"class_names": np.array(["a", "a", "b"])},
    "class_names holds Python objects, which are never": {"class_names": np.array(["a", "b", "c"], object)},
    "train_x holds Python objects, which are never": {"train_x": np.array([[1, 2]] * 9, object)},
    "no entry can be called 'train_z' \\(did you mean": {"train_z": np.ones(3)},
    "train_id has 2": {"train_id": np.array(["a", "b"])},
    "train_id repeats": {"train_id": np.array(["a"] * 9)},
    "train has domains, and the other": {"train_domain": np.zeros(9, dtype=int)},
    "metadata is no JSON ": {"metadata": np.array("{")},
    "metadata is no JSON object": {"metadata": np.array("[]")},
    "has the format 'lw2g-features/9'": {"metadata": np.array('{"format": "lw2g-features/9"}')},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_told(tmp_path, message):
    """Each mistake has its line, and a remedy."""
    path = as_npz(tmp_path, entries(**WRONG[message]))
    with pytest.raises(DataError, match=message) as caught:
        open_features(path)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("write", [as_npz, as_packed, as_safetensors])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
def test_a_cut_file_is_told(tmp_path, write, share):
    """A download that stopped is no file of fewer rows."""
    path = write(tmp_path, entries())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError, match="cannot be read"):
        open_features(path)


def test_a_cut_array_of_a_folder_is_told(tmp_path):
    """Of a folder, each array is checked against its own header."""
    as_folder(tmp_path, entries())
    content = (tmp_path / "train_x.npy").read_bytes()
    (tmp_path / "train_x.npy").write_bytes(content[:-8])
    with pytest.raises(DataError, match="train_x cannot be read"):
        open_features(tmp_path)


@pytest.mark.parametrize(
    ("name", "remedy"), [("a.npy", "give the folder"), ("a.tar.gz", "extract it"), ("a.pt", "docs/howto")]
)
def test_other_files_are_told_what_to_do(tmp_path, name, remedy):
    """What is not the layout says how to come to it."""
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"is no file of stored features; .*{remedy}"):
        open_features(tmp_path / name)
