"""Checkpoints of others are opened by what they hold, and tensors alone are read from them."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import json
import os
import pathlib
import re
import types

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lw2g.errors import DataError
from lw2g.vit.opened_checkpoint import read_weights
from lw2g.vit.weights import file_sha256, weights_sha256

TRAINED = {"norm.bias": torch.zeros(3), "cls_token": torch.zeros(1, 1, 3)}
AVERAGED = {name: tensor + 1 for name, tensor in TRAINED.items()}
BOTH = "several sets of weights"


def _prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


def _read(tmp_path, content, **settings):
    path = tmp_path / "checkpoint.pth"
    torch.save(content, path, **settings)
    return read_weights(path)


def _is(state, expected):
    return state.keys() == expected.keys() and all(torch.equal(state[key], expected[key]) for key in state)


@pytest.mark.parametrize(
    ("trained", "averaged"),
    [("state_dict", "state_dict_ema"), ("model", "model_ema")],
)
def test_averaged_weights_are_taken_and_told(tmp_path, caplog, trained, averaged):
    """Of trained and averaged weights the averaged ones are read, as by timm, and one line says so."""
    state = _read(tmp_path, {"epoch": 3, trained: TRAINED, averaged: AVERAGED})
    assert _is(state, AVERAGED)
    assert [
        BOTH in line and f"{averaged!r} is read, and not {trained!r}" in line for line in caplog.messages
    ] == [True]


@pytest.mark.parametrize("key", ["state_dict_ema", "model_ema", "ema", "ema_state_dict"])
def test_averaged_weights_alone_are_read_without_a_word(tmp_path, caplog, key):
    """A file of averaged weights alone leaves no choice to tell of."""
    state = _read(tmp_path, {key: AVERAGED, "optimizer": {"state": {0: {"exp_avg": torch.zeros(1)}}}})
    assert _is(state, AVERAGED)
    assert caplog.messages == []


def test_what_timm_does_not_take_for_averaged_weights_is_not_taken_but_told(tmp_path, caplog):
    """Weights under another word for the average stay unread beside trained ones, and a line says so."""
    state = _read(tmp_path, {"ema": AVERAGED, "model": TRAINED})
    assert _is(state, TRAINED)
    assert "'model' is read, and not 'ema'" in caplog.text


@pytest.mark.parametrize("inner", ["state_dict", "module"])
def test_averaged_weights_may_stand_beside_how_they_are_averaged(tmp_path, caplog, inner):
    """Averaged weights in a table of their own are read as those that stand alone, and told as unread."""
    averaged = {inner: AVERAGED, "decay": 0.99}
    taken = _read(tmp_path, {"model": TRAINED, "model_ema": averaged})
    left = _read(tmp_path, {"model": TRAINED, "ema": averaged})
    assert _is(taken, AVERAGED)
    assert _is(left, TRAINED)
    assert "'model_ema' is read, and not 'model'" in caplog.text
    assert "'model' is read, and not 'ema'" in caplog.text


def test_an_empty_container_holds_no_weights(tmp_path):
    """Where no average was kept, the trained weights are read."""
    assert _is(_read(tmp_path, {"state_dict": TRAINED, "state_dict_ema": {}, "ema": None}), TRAINED)


@pytest.mark.parametrize(
    "prefix",
    ["_orig_mod.", "module.", "model.", "module._orig_mod.", "_orig_mod.module.", "model.module.backbone."],
)
def test_what_wraps_a_model_is_cut_off_its_names(tmp_path, prefix):
    """Compilers, data parallelism and trainers may stand before a name in any order."""
    assert _is(_read(tmp_path, {"state_dict": _prefixed(TRAINED, prefix)}), TRAINED)


def test_a_name_of_the_model_is_left_alone(tmp_path):
    """A model may have a part that is called like a wrapper."""
    path = tmp_path / "own.pth"
    torch.save(_prefixed(TRAINED, "model."), path)
    assert read_weights(path, own=_prefixed(TRAINED, "model.")).keys() == _prefixed(TRAINED, "model.").keys()


def _arguments():
    return {
        "metric": np.float64(0.7),
        "best": np.float32(0.7),
        "array": np.arange(3),
        "output": pathlib.PurePosixPath("runs/1"),
        "windows": pathlib.PureWindowsPath("c:/runs/1"),
        "args": argparse.Namespace(lr=np.float32(0.1), out=pathlib.PurePosixPath("x")),
        "name space": types.SimpleNamespace(a=1),
        "time": datetime.timedelta(days=1),
        "loss": decimal.Decimal("0.1"),
        "generator": np.random.RandomState(0),
    }


@pytest.mark.parametrize("as_zip", [True, False])
def test_arguments_of_any_kind_are_passed_over(tmp_path, as_zip):
    """Numbers of numpy, paths and other objects beside the tensors do not keep a file from being read."""
    content = {"state_dict": TRAINED, **_arguments()}
    assert _is(_read(tmp_path, content, _use_new_zipfile_serialization=as_zip), TRAINED)


class _Calls:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("as_zip", [True, False])
def test_nothing_in_a_file_is_run(tmp_path, as_zip):
    """A call of a builtin is a stand-in, and one of a blocked module is refused by its name."""
    mark = tmp_path / "was_run"
    payload = _Calls(eval, f"open({str(mark)!r}, 'w')")
    content = {"state_dict": TRAINED, "payload": payload}
    assert _is(_read(tmp_path, content, _use_new_zipfile_serialization=as_zip), TRAINED)
    with pytest.raises(DataError, match=rf"cannot be read \(it holds '{os.name}\.mkdir', which is not read"):
        _read(tmp_path, {"x": _Calls(os.mkdir, str(mark))}, _use_new_zipfile_serialization=as_zip)
    assert not mark.exists()


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchs_advice_is_not_passed_on(tmp_path):
    """What torch does not read is told without escape codes and without advice to read it all the same."""
    script = tmp_path / "script.pt"
    torch.jit.script(torch.nn.Linear(2, 2)).save(script)
    new = tmp_path / "new.pth"
    torch.save(TRAINED, new, pickle_protocol=4)
    listed = tmp_path / "listed.pth"
    torch.save({"state": collections.defaultdict(dict, a=1)}, listed)
    for path, reason in (
        (script, "it is a TorchScript archive"),
        (new, "it is damaged, or nothing that torch reads without running code of it"),
        # torch before 2.6 does not say where the class comes from
        (listed, r"it holds '(collections\.)?defaultdict', which is not read from a file"),
    ):
        with pytest.raises(DataError) as error:
            read_weights(path)
        remedy = "download it again, or export its state dict as safetensors"
        said = rf"weights file {re.escape(repr(str(path)))} cannot be read \({reason}\); {remedy}"
        assert re.fullmatch(said, str(error.value)), error.value


@pytest.mark.parametrize("name", ["a.pth", "a.bin", "a.ckpt", "a.safetensors", "noend"])
def test_content_tells_the_format(tmp_path, name):
    """A suffix that says something else, or nothing, does not matter."""
    path = tmp_path / name
    save_file(TRAINED, path)
    assert _is(read_weights(path), TRAINED)
    torch.save(TRAINED, path)
    assert _is(read_weights(path), TRAINED)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.npz"])
def test_what_stands_in_place_of_a_download_is_named(tmp_path, name):
    """A pointer of Git LFS and a web page are told as such, whatever they are called."""
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 22883456\n")
    with pytest.raises(DataError, match="pointer of Git LFS and not the file itself; fetch it: git lfs pull"):
        read_weights(path)
    path.write_text("\n<!DOCTYPE html><html></html>")
    with pytest.raises(DataError, match="is a web page"):
        read_weights(path)


def test_weights_in_several_files_are_one(tmp_path):
    """A folder with an index is read whole, and its hash is that of all files."""
    names = dict(zip(TRAINED, ("model-1.safetensors", "model-2.safetensors"), strict=True))
    for key, name in names.items():
        save_file({key: TRAINED[key]}, tmp_path / name)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert _is(read_weights(tmp_path), TRAINED)
    whole = weights_sha256(tmp_path)
    save_file({"cls_token": TRAINED["cls_token"] + 1}, tmp_path / names["cls_token"])
    assert weights_sha256(tmp_path) != whole
    (tmp_path / names["cls_token"]).unlink()
    with pytest.raises(DataError, match=r"names 'model-2.safetensors', which is missing"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["../outside.safetensors", 3, None, ["a"]])
def test_an_index_names_files_beside_it_alone(tmp_path, name):
    """A stranger's index leads nowhere else."""
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"norm.bias": name}}))
    with pytest.raises(DataError, match="names no files beside it"):
        read_weights(tmp_path)


def test_a_folder_with_one_file_is_that_file(tmp_path):
    """A folder and the file in it have one hash; of several files none is guessed."""
    file = tmp_path / "best.pth"
    torch.save(TRAINED, file)
    assert _is(read_weights(tmp_path), TRAINED)
    assert weights_sha256(tmp_path) == weights_sha256(file) == file_sha256(file)
    torch.save(TRAINED, tmp_path / "last.pth")
    with pytest.raises(
        DataError, match=r"several weights files and no 'model.safetensors': 'best.pth', 'last.pth'"
    ):
        read_weights(tmp_path)
    save_file(AVERAGED, tmp_path / "model.safetensors")
    assert _is(read_weights(tmp_path), AVERAGED)


def test_a_folder_without_weights_is_refused(tmp_path):
    """Nothing is taken from a folder of other files."""
    (tmp_path / "caplog.txt").write_text("none")
    with pytest.raises(DataError, match="holds no weights"):
        read_weights(tmp_path)
