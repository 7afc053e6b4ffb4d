"""A loaded model in a program that uses it from many places: threads, other processes, its own log."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lw2g
from lw2g.api.tabular import RunRecord
from other_process import answer_of
from written_images import grey_classes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes of grey."""
    root = tmp_path_factory.mktemp("shared")
    lw2g.start(grey_classes(root / "images"), root / "model", device="cpu", head="lda")
    return root / "model"


def images() -> list[Any]:
    draw = np.random.default_rng(1)
    return [draw.integers(0, 255, (16, 16, 3)).astype(np.uint8) for _ in range(4)]


def test_four_threads_and_120_calls(folder: Path) -> None:
    """None fails, and each gets the answer that it would have got alone, of one image or of several."""
    model = lw2g.load(folder, device="cpu")
    parts = [images()[:count] for count in (1, 2, 3, 4)]
    expected = [model.predict(part, top_k=2, reject=0.2) for part in parts]
    with ThreadPoolExecutor(4) as threads:
        asked = list(range(4)) * 30
        found = list(threads.map(lambda place: model.predict(parts[place], top_k=2, reject=0.2), asked))
    assert found == [expected[place] for place in asked]


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.half(),
        lambda model: model.double(),
        lambda model: model.float(),  # sums are in float64
        lambda model: model.to(torch.bfloat16),
        lambda model: torch.nn.Sequential(model).half(),
    ],
)
def test_a_model_keeps_its_precision(folder: Path, change: Any) -> None:
    """Its next answer would be an error of torch; it moves as ever."""
    model = lw2g.load(folder, device="cpu")
    expected = model.predict(images())
    with pytest.raises(lw2g.ConfigError, match=r"torch\.\w+ cannot become torch\.\w+; .*model\.to\(device\)"):
        change(model)
    assert model.to("cpu").predict(images()) == expected


@pytest.mark.parametrize(
    "move",
    [
        lambda model: model.to("cuda:77"),
        lambda model: model.to(device=torch.device("cuda", 77)),
        lambda model: model.cuda(torch.device("cuda", 77)),
        lambda model: model.to("gpu"),
    ],
)
def test_a_device_that_is_not_there_is_told_as_where_a_model_is_opened(folder: Path, move: Any) -> None:
    """By one line with what to try, and the model stays where it is."""
    model = lw2g.load(folder, device="cpu")
    with pytest.raises(lw2g.ConfigError, match=r"device: '(cuda:77|gpu)' (cannot be used|is no device)"):
        move(model)
    assert model.predict(images())


def test_a_column_of_paths_or_pictures_is_a_list(folder: Path) -> None:
    """An array of texts or objects holds no pixels."""
    model = lw2g.load(folder, device="cpu")
    paths = sorted((folder.parent / "images").rglob("*.png"))[:2]
    expected = model.predict(paths)
    assert model.predict(np.array([str(path) for path in paths])) == expected
    assert model.predict(np.array(paths, dtype=object)) == expected


def test_a_pickle_opens_the_model_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is small, stands for the same task, device and batch, and finds the folder from anywhere."""
    monkeypatch.chdir(folder.parent)
    started, _ = lw2g.start("images", "learned", device="cpu")
    for model in (lw2g.load("model", device="cpu"), lw2g.load("model", device="cpu", batch_size=2), started):
        content = pickle.dumps(model)
        monkeypatch.chdir("/")
        again = pickle.loads(content)
        monkeypatch.chdir(folder.parent)
        assert len(content) < 1000
        assert again.predict(images(), top_k=2) == model.predict(images(), top_k=2)
        assert (again.fills_up, again.batch_size) == (model.fills_up, model.batch_size)
        assert repr(again) == repr(model)
        model.home = None
        with pytest.raises(TypeError, match="lies in no folder"):
            pickle.dumps(model)
        assert copy.deepcopy(model).predict(images()) == model.predict(images())


def test_a_model_prints_itself_in_three_lines(folder: Path) -> None:
    """What it is, what it knows, where it is from; of many classes the first ones. A prompt has one line."""
    model = lw2g.load(folder, device="cpu")
    what = "2 classes, simple-cil with head lda; micro at 32 pixels, on cpu"
    assert repr(model) == f"<model {str(folder)!r}: {what}>"
    record = RunRecord({"metrics": {}}, folder)  # whose text is not its path
    assert repr(lw2g.load(record, device="cpu")) == repr(model)
    assert str(model).splitlines() == [
        "TrainedModel: simple-cil with head lda; micro at 32 pixels, on cpu",
        "  2 classes: dark, light",
        f"  1 task, from {folder}",
    ]
    model.known = tuple(f"class {number}" for number in range(12))
    assert str(model).splitlines()[1].endswith("class 8, class 9, ...")
    assert "<td>12 classes: class 0" in model._repr_html_()


@pytest.mark.slow
def test_a_pool_of_processes_shares_a_model(folder: Path) -> None:
    """Given with each call, it answers there as it does here."""
    model = lw2g.load(folder, device="cpu")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(answer_of, model, images()).result() == answer_of(model, images())
