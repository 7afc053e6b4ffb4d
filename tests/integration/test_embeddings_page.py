"""docs/howto/embeddings.md: its programs write what lw2g reads, and its commands run on it."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import lw2g
from lw2g.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "embeddings.md"
if not PAGE.exists():
    pytest.skip("needs the source tree", allow_module_level=True)

TEXT = PAGE.read_text(encoding="utf-8")
TEXTS, SOUNDS, CLASSIFIER = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.S | re.M)
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for line in re.findall(r"^    (lw2g .*)$", TEXT.replace("\\\n", ""), flags=re.M)
]
NAMES = ["bark", "clap", "meow", "rain", "saw", "siren"]
LATER = ["drill", "whistle"]
WIDTH = 24


def drawn(names: list[str], count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows near a centre of each name, and the place of its name for each."""
    rows = []
    for name in names:
        centre = np.random.default_rng([9, *map(ord, name)]).normal(size=WIDTH)
        noise = np.random.default_rng([seed, *map(ord, name)]).normal(size=(count, WIDTH))
        rows.append(centre + 0.5 * noise)
    return np.concatenate(rows).astype(np.float32), np.repeat(np.arange(len(names)), count)


def write(path: Path, names: list[str]) -> None:
    train, train_labels = drawn(names, 20, seed=0)
    test, test_labels = drawn(names, 6, seed=1)
    np.savez(
        path,
        train_x=train,
        train_y=train_labels,
        test_x=test,
        test_y=test_labels,
        class_names=np.array(names),
    )


def test_the_commands_run_on_small_arrays(tmp_path, monkeypatch):
    """All six, one after another: the model hears the class that it has learned later, and forgets one."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "sounds.npz", NAMES)
    write(tmp_path / "more.npz", LATER)
    np.save("heard.npy", drawn(["drill", "bark"], 2, seed=2)[0])
    printed = {}
    for words in COMMANDS:
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        printed[words[0]] = done.output
    assert list(printed) == ["run", "report", "start", "learn", "predict", "unlearn"]
    assert "final accuracy 100.0 %" in printed["run"]
    heard = re.findall(r"heard\.npy/\d +(\w+)", printed["predict"])
    assert heard == ["drill", "drill", "bark", "bark"]
    assert lw2g.load("model-3").known == ("bark", "clap", "meow", "rain", "saw", *LATER)
    answers = lw2g.load("model-3").predict(drawn(["siren"], 2, seed=2)[0])
    assert "siren" not in {answer["class"] for answer in answers}


def test_the_classifier_runs_on_the_same_rows():
    """Five lines: a class that comes later is found, and one that is forgotten is not there any more."""
    rows, places = drawn(NAMES, 20, seed=0)
    heard, _ = drawn(["drill"], 3, seed=2)
    values: dict[str, Any] = {
        "rows": rows,
        "labels": np.array(NAMES)[places],
        "new_rows": drawn(["drill"], 20, seed=0)[0],
        "heard": heard,
    }
    exec(CLASSIFIER, values)
    classifier = values["classifier"]
    assert classifier.predict(heard).tolist() == ["drill"] * 3
    assert classifier.classes_.tolist() == ["bark", "clap", "drill", "meow", "rain", "saw"]


def test_the_programs_write_what_is_read(tmp_path, monkeypatch):
    """With encoders that give rows of the real form: a file that a model starts from, and one row."""
    monkeypatch.chdir(tmp_path)
    texts = ModuleType("sentence_transformers")
    texts.SentenceTransformer = lambda name: SimpleNamespace(
        encode=lambda sentences: drawn(sentences, 1, seed=0)[0]
    )
    sounds = ModuleType("torchaudio")
    sounds.load = lambda path: (torch.ones(2, 800), 8000)
    sounds.functional = SimpleNamespace(resample=lambda sound, rate, wanted: sound.repeat(1, wanted // rate))
    encoder = SimpleNamespace(
        extract_features=lambda sound: ([sound[:, :10, None].expand(1, 10, 768)] * 12, None)
    )
    bundle = SimpleNamespace(sample_rate=16000, get_model=lambda: SimpleNamespace(eval=lambda: encoder))
    sounds.pipelines = SimpleNamespace(WAV2VEC2_BASE=bundle)
    monkeypatch.setitem(sys.modules, "sentence_transformers", texts)
    monkeypatch.setitem(sys.modules, "torchaudio", sounds)
    exec(TEXTS, {})
    model, _ = lw2g.start("texts.npz", "intents")
    assert model.classes == ("delivery", "refund")
    values: dict[str, Any] = {}
    exec(SOUNDS, values)
    assert values["embedded"]("bark.wav").tolist() == [1.0] * 768
