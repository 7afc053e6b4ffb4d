"""Stored features of images: rows named as their images, and half files that are not believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from lw2g.config.resolve import resolve
from lw2g.config.settings import ExperimentConfig
from lw2g.disk.lock import holder_of
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.stream import TaskStream
from lw2g.lifecycle.runner import start
from lw2g.pixels.feature_files import open_features
from lw2g.registry.catalogue import Catalogue
from lw2g_benchmarks.digits import DigitsBenchmark
from lw2g_benchmarks.options import DigitsConfig
from lw2g_datasets import writing_features as writing
from lw2g_datasets.writing_features import write_features
from lw2g_testing.tiny import TinyBenchmark, tiny_catalogue
from runs import shortest


@pytest.fixture
def config(catalogue: Catalogue) -> ExperimentConfig:
    """The tiny benchmark and backbone."""
    return shortest(catalogue, "simple-cil").config


def test_a_file_among_the_images_that_are_read_is_refused(catalogue: Catalogue, tmp_path: Path) -> None:
    """Whoever read the folder next would take it for one of their kind; nothing is written there."""
    images = tmp_path / "images"
    (images / "train").mkdir(parents=True)
    options = {"benchmark.root": str(images)}
    config = resolve(
        catalogue, baseline="simple-cil", benchmark="folder", backbone="tiny", overrides=options
    ).config
    for out in (images / "train" / "features", images / "features.npz"):
        with pytest.raises(ConfigError, match="which is read; choose a folder outside of it"):
            write_features(config, catalogue, out)
    assert list(images.rglob("*")) == [images / "train"]


class StopError(Exception):
    """Ends the writing of a file."""


def begun(config: ExperimentConfig, catalogue: Catalogue, out: Path, blocks: int) -> Path:
    """Write some blocks of a file, and return the folder where it is made."""
    left = [blocks]

    def stop(split: str, done: int, total: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise StopError

    with pytest.raises(StopError):
        write_features(config, catalogue, out, progress=stop)
    return out.with_name(out.name + ".part")


def zeros(part: Path) -> None:
    rows = part / "train_x.npy"
    rows.write_bytes(rows.read_bytes()[:128] + bytes(rows.stat().st_size - 128))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no note": lambda part: (part / "done.json").unlink(),
    "a note of no text": lambda part: (part / "done.json").write_bytes(b"\xff\xfe"),
    "a note cut off": lambda part: (part / "done.json").write_bytes((part / "done.json").read_bytes()[:20]),
    "a note of everything": lambda part: (part / "done.json").write_text('{"train": 99, "test": 99}'),
    "a note of other sums": lambda part: (part / "done.json").write_text(
        json.dumps({"train": ["0" * 64] * 99, "test": [None, {}]})
    ),
    "rows of zeros": zeros,
    "a header of zeros": lambda part: (part / "train_x.npy").write_bytes(
        bytes(128) + (part / "train_x.npy").read_bytes()[128:]
    ),
    "rows cut off": lambda part: (part / "train_x.npy").write_bytes(b"\x93NUMPY"),
    "no rows": lambda part: (part / "test_x.npy").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_half_file_is_computed_again(
    catalogue: Catalogue,
    config: ExperimentConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    """Rows that nobody computed never stand in a file: it has the bytes of an undisturbed one."""
    monkeypatch.setattr(writing, "_BLOCK", 4)
    write_features(config, catalogue, tmp_path / "whole.npz")
    DAMAGES[damage](begun(config, catalogue, tmp_path / "cut.npz", 3))
    write_features(config, catalogue, tmp_path / "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_a_file_has_one_writer(catalogue: Catalogue, config: ExperimentConfig, tmp_path: Path) -> None:
    """A second one is told which process writes, and disturbs nothing."""
    told: list[str] = []

    def again(split: str, done: int, total: int) -> None:
        with pytest.raises(DataError) as caught:
            write_features(config, catalogue, tmp_path / "f.npz")
        told.append(str(caught.value))

    write_features(config, catalogue, tmp_path / "f.npz", progress=again)
    assert "is being written by process" in told[0]
    assert told[0].endswith("; wait for it, or name another file")
    assert holder_of(tmp_path / "f.npz.lock") is None
    assert [path.name for path in tmp_path.iterdir()] == ["f.npz"]


@pytest.mark.parametrize(
    "options",
    [{}, {"order": "seeded", "order_seed": 5}, {"class_order": tuple("9876543210")}],
    ids=["natural", "seeded", "named"],
)
def test_rows_are_named_as_their_images(tmp_path: Path, options: dict[str, Any]) -> None:
    """Under any order of classes: the name of a row's label is that of its image's class."""
    catalogue = tiny_catalogue()
    digits = catalogue.get("benchmark", "digits").config(increment=2, **options)
    config = shortest(catalogue, "simple-cil").config
    config = attrs.evolve(config, benchmark=attrs.evolve(config.benchmark, name="digits", config=digits))
    write_features(config, catalogue, tmp_path / "f.npz")
    file = open_features(tmp_path / "f.npz")
    natural = DigitsBenchmark(DigitsConfig(increment=2)).stream()
    assert sorted(file.class_names) == sorted(natural.class_names)
    for split, rows in file.splits.items():
        class_of = {}
        for task in natural.tasks:
            data = getattr(task, split)
            class_of |= dict(
                zip(data.ids, [natural.class_names[label] for label in data.labels], strict=True)
            )
        stored = [file.class_names[label] for label in rows.y]
        assert stored == [class_of[name] for name in rows.ids]
        assert len(set(stored)) == len(file.class_names)
    with np.load(tmp_path / "f.npz") as arrays:
        assert arrays["class_names"].tolist() == sorted(file.class_names)


@pytest.mark.parametrize("name", ["a\0b", "caf\udce9"])
def test_names_that_no_record_holds_are_refused_first(
    catalogue: Catalogue, config: ExperimentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A run would be learned to its end and its record refused; nothing is written."""
    stream_of = TinyBenchmark.stream

    def named(self: TinyBenchmark) -> TaskStream:
        stream = stream_of(self)
        return attrs.evolve(stream, class_names=(name, *stream.class_names[1:]))

    monkeypatch.setattr(TinyBenchmark, "stream", named)
    with pytest.raises(DataError, match=r"no class can be called .*; give it a name without NUL"):
        start(shortest(catalogue, "simple-cil"), catalogue, tmp_path / "run")
    with pytest.raises(DataError, match="no class can be called"):
        write_features(config, catalogue, tmp_path / "f.npz")
    assert not list(tmp_path.iterdir())
