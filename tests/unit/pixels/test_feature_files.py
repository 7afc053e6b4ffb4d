"""Files of stored features: every container gives the same rows, and what is wrong is told in one line."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lw2g.errors import DataError
from lw2g.pixels.feature_files import open_features

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
    """Write an uncompressed archive, whose vectors stay on the disk."""
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
        assert torch.equal(rows.x[:], torch.from_numpy(arrays[f"{split}_x"]))
        assert rows.y.tolist() == arrays[f"{split}_y"].tolist()


def test_vectors_of_an_archive_stay_on_the_disk(tmp_path):
    """What is opened follows the bytes on the disk: nothing was loaded."""
    path = as_npz(tmp_path, entries())
    rows = open_features(path).splits["test"].x
    content = path.read_bytes()
    mark = rows[:1].numpy()[0, 0].tobytes()
    path.write_bytes(content.replace(mark, np.float32(42).tobytes()))
    assert float(rows[:1][0, 0]) == 42.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read(tmp_path, dtype):
    """Rows keep the dtype in which they lie; bfloat16 needs safetensors."""
    tensors = {
        "train_x": torch.ones(2, 3, dtype=dtype),
        "train_y": torch.tensor([0, 1]),
        "test_x": torch.ones(2, 3, dtype=dtype),
        "test_y": torch.tensor([1, 0]),
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
    "class_names but got what is no text": {
        "class_names": np.full(3, 0x110000, dtype=np.uint32).view("U1"),
    },
    "metadata is no text": {"metadata": np.full(1, 2**31, dtype=np.uint32).view("U1").reshape(())},
    "train_id has 2": {"train_id": np.array(["a", "b"])},
    "train_id repeats": {"train_id": np.array(["a"] * 9)},
    "train has domains, and the other": {"train_domain": np.zeros(9, dtype=int)},
    "train_y holds 18446744073709551615": {"train_y": np.full(9, 2**64 - 1, dtype=np.uint64)},
    "test_x holds numbers of up to 3e\\+38, whose squares float32 cannot": {
        "test_x": np.full((6, 4), 3e38, dtype=np.float32)
    },
    "no row of train_y has the label 2 of 1000000001": {
        "train_y": np.array([0, 1, 10**9] * 3),
        "class_names": None,
    },
    "a row is of the domain 100000000, and there are 15 rows": {
        "train_domain": np.array([0] * 8 + [10**8]),
        "test_domain": np.zeros(6, dtype=int),
    },
    "3 in train, 2 in test, in one only \\['fox'\\]": {"test_y": np.arange(6) % 2},
    r"class_names holds 'a\\x00b'; leave control": {"class_names": np.array(["a\0b", "dog", "fox"])},
    r"class_names holds 'a\\nb'": {"class_names": np.array(["a\nb", "dog", "fox"])},
    r"train_id holds '\\x1b\[2J'": {"train_id": np.array(["\x1b[2J", *"abcdefgh"])},
    "expected a string in metadata but got int64": {"metadata": np.array([1])},
    r"metadata names the backbone by 'a\\x1bb'": {
        "metadata": np.array(json.dumps({"backbone": {"timm_name": "a\x1bb"}}))
    },
    "expected a list of strings in class_names but got values of other": {
        "class_names": None,
        "metadata": np.array(json.dumps({"class_names": ["a", 1, []]})),
    },
    "expected a list of strings in class_names but got 'abc'": {
        "class_names": None,
        "metadata": np.array('{"class_names": "abc"}'),
    },
    "expected a list of strings in test_id but got {'a': 1}": {
        "metadata": np.array('{"test_id": {"a": 1}}'),
    },
    "domain_names has an empty name": {
        **{f"{split}_domain": np.arange(rows) % 2 for split, rows in (("train", 9), ("test", 6))},
        "domain_names": np.array(["", "photo"]),
    },
    "class_names has an empty name": {"class_names": np.array(["cat", "", "fox"])},
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


# -- what a file claims, and what it has ---------------------------------------------------------------------


def test_names_of_every_script_are_kept(tmp_path):
    """A wide space or a joined letter is no control character."""
    names = ["\u3000\u732b", "caf\u00e9\u00a0noir", "\U0001f469\u200d\U0001f52c"]
    assert open_features(as_npz(tmp_path, entries(class_names=np.array(names)))).class_names == tuple(names)


def test_an_archive_unpacks_to_no_more_than_vectors_do(tmp_path):
    """Zeros shrink a thousand times: they are refused by the archive's directory, before room is made."""
    zeros = {"train_x": np.zeros((900_000, 4), np.float32), "train_y": np.arange(900_000) % 3}
    path = as_packed(tmp_path, entries(**zeros))
    with pytest.raises(DataError, match=r"and unpacks to 2\d{7}; save it uncompressed"):
        open_features(path)
    assert len(open_features(as_npz(tmp_path, entries(**zeros))).splits["train"]) == 900_000


@pytest.mark.parametrize(
    "shape", ["(9999999999, 4)", "(9, 4, 1)" + " " * 5, "(9, 5)", "(-9, -4)", "(True, 36)"]
)
@pytest.mark.parametrize("write", [as_npz, as_packed, as_folder])
def test_a_shape_is_compared_with_the_bytes(tmp_path, write, shape):
    """An array that claims other rows than there are is refused as damaged, and nothing is read for it."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    rows = entries()["train_x"].tobytes()
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + rows
    path = write(tmp_path, entries())
    if path.is_dir():
        (path / "train_x.npy").write_bytes(array)
    else:
        kind = zipfile.ZIP_STORED if write is as_npz else zipfile.ZIP_DEFLATED
        _replaced(path, "train_x.npy", array, kind)
    with pytest.raises(DataError, match=r"is not what \d+ bytes hold|\[9, 4, 1\]"):
        open_features(path)


def _replaced(path: Path, member: str, content: bytes, kind: int) -> None:
    """Write an archive anew with other bytes in one member."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, known in {**members, member: content}.items():
            archive.writestr(name, known)


@pytest.mark.parametrize("name", ["f.npz", "f.safetensors", "f/train_x.npy", "f/features.json"])
def test_a_pipe_is_no_file_of_features(tmp_path, name):
    """Whoever opened it would wait for ever for somebody who writes."""
    (tmp_path / "f").mkdir()
    path = as_folder(tmp_path / "f", entries()) if name.startswith("f/") else tmp_path / name
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is no plain file"):
        open_features(path)


def test_what_a_mac_leaves_is_passed_over(tmp_path):
    """Neither ``._train_x.npy`` in a folder nor ``__MACOSX/`` in an archive is an entry."""
    folder = as_folder(tmp_path, entries())
    (folder / "._train_x.npy").write_bytes(b"\x00\x05\x16\x07")
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX" / "._train_y.npy").write_bytes(b"\x00\x05\x16\x07")
    assert open_features(folder).dim == 4
    archive = as_npz(tmp_path, entries())
    with zipfile.ZipFile(archive, "a") as members:
        members.writestr("__MACOSX/._train_x.npy", b"\x00\x05\x16\x07")
    assert open_features(archive).dim == 4


@pytest.mark.parametrize("write", [as_npz, as_folder, as_safetensors])
def test_a_file_that_is_cut_while_it_is_read_is_told(tmp_path, write):
    """Mapped into memory, it would end the process without a word (SIGBUS)."""
    path = write(tmp_path, entries())
    rows = open_features(path).splits["test"]
    cut = path / "test_x.npy" if path.is_dir() else path
    os.truncate(cut, 64)
    with pytest.raises(DataError, match="is shorter than it was when it was opened; put it back"):
        list(rows.chunks())


def test_a_change_of_what_is_read_is_seen_and_no_other(tmp_path):
    """A note in the folder may be written on, and plots be put there, without an end of the run."""
    (tmp_path / "notes.txt").touch()
    (tmp_path / "plots").mkdir()
    file = open_features(as_folder(tmp_path, entries()))
    for name in ("notes.txt", "plots"):
        os.utime(tmp_path / name, ns=(0, 0))
    assert file.changed() is None
    os.utime(tmp_path / "test_y.npy", ns=(0, 0))
    assert file.changed() == tmp_path / "test_y.npy"


def test_a_change_of_a_hidden_file_is_seen(tmp_path):
    """Hidden files in a folder are passed over, and not one that was named."""
    path = as_npz(tmp_path, entries()).rename(tmp_path / ".f.npz")
    file = open_features(path)
    os.utime(path, ns=(0, 0))
    assert file.changed() == path


@pytest.mark.parametrize("write", [as_npz, as_packed, as_folder, as_safetensors])
def test_rows_are_taken_in_any_order(tmp_path, write):
    """By slice and by number, repeated ones and none too; arrays that lie column by column are turned."""
    arrays = entries()
    x = open_features(write(tmp_path, arrays)).splits["train"].x
    for numbers in (slice(2, 5), [8, 0, 1, 2, 2, 7], []):
        assert torch.equal(x[numbers], torch.from_numpy(arrays["train_x"][numbers]))
    if write is as_safetensors:  # which holds no such arrays
        return
    turned = np.asfortranarray(arrays["test_x"])
    (tmp_path / "turned").mkdir()
    found = open_features(write(tmp_path / "turned", entries(test_x=turned))).splits["test"].x
    assert torch.equal(found[:], torch.from_numpy(arrays["test_x"]))
