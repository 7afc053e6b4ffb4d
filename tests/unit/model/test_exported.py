"""A model taken away: what it needs, what it refuses, and that nothing of it is taken on trust."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import lw2g
from lw2g.cli.main import main
from lw2g.config.structure import misfit
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import seal_json
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.lifecycle.runner import start
from lw2g.model import exported, places
from lw2g.model.exporting import as_exported, export_run
from lw2g.model.manifest import Manifest
from lw2g.model.saved import open_model, run_after, saved_of
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g_testing.tiny import tiny_backbone

Finished = tuple[Path, dict[str, Any]]

_ELSEWHERE = """
import json, shutil, sys

absent, run, out, images = json.loads(sys.argv[1])

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import lw2g
found = []
for model in (run, out):
    model = lw2g.load(model, device="cpu")
    shutil.rmtree(run, ignore_errors=True)
    answers = model.answer(images)
    found.append([answers.logits.tolist(), answers.sets.tolist(), model.predict(images)])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def out(finished, catalogue, tmp_path_factory):
    """An export of the finished run, without its backbone."""
    made = tmp_path_factory.mktemp("exported") / "model"
    export_run(finished[0], catalogue, made)
    return made


@pytest.fixture
def copied(out, tmp_path):
    """A copy that may be damaged."""
    return Path(shutil.copytree(out, tmp_path / "copied"))


def other_backbone(catalogue: Catalogue, build: Callable[..., Any]) -> Catalogue:
    """Return the catalogue with another way to come by the backbone."""
    component = catalogue.get("backbone", "tiny")
    return catalogue.with_component(attrs.evolve(component, build=build))


@pytest.mark.slow
def test_it_answers_where_data_and_all_other_plugins_are_gone(tmp_path):
    """In a process that can import no other plugin, a run and its export say what the run has recorded."""
    for split, count in (("train", 3), ("test", 1)):
        for number, name in enumerate(("ant", "bee", "cat", "dog")):
            folder = tmp_path / "data" / split / name
            folder.mkdir(parents=True)
            for one in range(count):
                shade = (60 * number, 50 * one, 90 + (split == "test"))
                Image.new("RGB", (40, 30), shade).save(folder / f"{one}.png")
    images = [str(tmp_path / f"{name}.png") for name in ("ant", "bee", "cat", "dog")]
    for image in images:
        shutil.copy(tmp_path / "data/test" / Path(image).stem / "0.png", image)
    run, out = tmp_path / "run", tmp_path / "out"
    lw2g.run(
        out=run,
        baseline="s-prompt-plus-plus",
        policy="one",
        benchmark="folder",
        backbone="micro",
        device="cpu",
        progress=False,
        **{
            "benchmark.root": str(tmp_path / "data"),
            "benchmark.increment": 2,
            "baseline.epochs": 1,
            "growth.images": 16,
        },
    )
    stored = RunDirectory(run).read_predictions(1)
    told = CliRunner().invoke(main, ["export", str(run), str(out)])
    assert told.exit_code == 0
    assert told.stdout.startswith(f"{out}: ")
    assert told.stdout.endswith(f"without its backbone\nnext: lw2g predict {out} PHOTO\n")
    shutil.rmtree(tmp_path / "data")
    absent = [f"lw2g_{name}" for name in ("benchmarks", "growth", "constraints", "trackers", "lora")]
    asked = json.dumps([absent, str(run), str(out), images])
    command = [sys.executable, "-c", _ELSEWHERE, asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    of_run, of_export = json.loads(done.stdout)
    assert of_run == of_export
    _, sets, entries = of_run
    assert sets == stored.set.tolist()
    assert [entry["class_index"] for entry in entries] == stored.predicted.tolist()
    printed = CliRunner().invoke(main, ["predict", str(out), *images, "--json", "--device", "cpu"])
    assert json.loads(printed.stdout) == entries


def test_with_its_backbone_it_needs_no_weights(finished, out, catalogue, tmp_path):
    """The weights are inside: where they cannot be had otherwise, the answers have the same bits."""

    def gone(*_: object) -> Any:
        raise DataError("no weights file 'vit.safetensors'", "download it")

    nowhere, whole = other_backbone(catalogue, gone), tmp_path / "whole"
    size = export_run(finished[0], catalogue, whole, with_backbone=True)
    assert size == sum(path.stat().st_size for path in whole.iterdir())
    images = torch.randn(3, 3, 16, 16)
    expected = open_model(out, catalogue, device="cpu")
    found = open_model(whole, nowhere, device="cpu")
    assert torch.equal(found(images), expected(images))
    assert found.backbone.fingerprint == expected.backbone.fingerprint
    sha256 = expected.backbone.fingerprint.sha256
    with pytest.raises(DataError, match=f"no weights file 'vit.safetensors'; give .*{sha256} as weights"):
        open_model(out, nowhere)


def test_weights_are_known_by_what_they_hold(finished, out, catalogue, tmp_path):
    """Another file with the same numbers will do, others are refused by both checksums.

    An export knows the file that it was made with, and says where to name another when it is gone.
    """
    asked = []

    def build(config: Any, weights: Path | None, image_size: int | None) -> Any:
        found = tiny_backbone()
        asked.append(weights)
        if weights == tmp_path / "other":
            found.model.norm.bias.data += 1
        if weights != tmp_path / "own":
            found.fingerprint = attrs.evolve(found.fingerprint, sha256="0" * 64)
        return found

    for name in ("own", "same", "other"):
        (tmp_path / name).touch()
    elsewhere = other_backbone(catalogue, build)
    export_run(finished[0], elsewhere, tmp_path / "made", weights=tmp_path / "own")
    open_model(tmp_path / "made", elsewhere)
    assert asked[-1] == tmp_path / "own"
    (tmp_path / "own").unlink()
    with pytest.raises(DataError, match=r"no weights file '.*own'; give the weights of .* as weights=FILE"):
        open_model(tmp_path / "made", elsewhere)
    open_model(out, elsewhere, weights=tmp_path / "same", device="cpu")
    right = tiny_backbone().fingerprint.sha256
    with pytest.raises(DataError, match=rf"the weights of '.*other' have SHA-256 {'0' * 64} .*; .*{right}"):
        open_model(out, elsewhere, weights=tmp_path / "other", device="cpu")


def test_a_foreign_transform_is_made_by_its_benchmark(out, catalogue):
    """Functions cannot be written down: the export names the benchmark, and needs its plugin."""
    told = json.loads((out / "model.json").read_text())
    assert (told["preprocessing"], told["benchmark"]["name"]) == (None, "tiny")
    assert {one["kind"] for one in told["components"]} == {
        "baseline",
        "carry",
        "retrieval",
        "backbone",
        "benchmark",
    }
    with pytest.raises(DataError, match=r"backbone 'tiny' \(plugin '.*'\) cannot be used here; install it"):
        open_model(out, load_catalogue())


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (
            "model.json",
            lambda text: text.replace(b"tiny", b"tidy"),
            "model.json' does not match its checksum",
        ),
        ("model.json", lambda text: text[: len(text) // 2], "model.json' is no JSON"),
        (
            "model.safetensors",
            lambda text: text[:-1] + bytes([text[-1] ^ 1]),
            "model.safetensors' does not match its checksum",
        ),
        ("model.safetensors", None, "model.safetensors' cannot be read: No such file"),
        ("model.json", None, "the export .* has lost its model.json; put it back, or make .* anew"),
    ],
)
def test_a_damaged_export_is_refused(copied, catalogue, name, change, words):
    """Every byte of both files is under a checksum."""
    path = copied / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=words):
        open_model(copied, catalogue)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            {"tasks": [{"class_names": 3}]},
            DataError,
            "is no manifest of lw2g: expected a list but got 3 at tasks.0..class_names",
        ),
        ({"preprocessing": {"size": 16}}, DataError, "is no manifest of lw2g: "),
        ({"files": {}}, DataError, "does not match its checksum"),
        ({"task_to_set": [0, 0, 0]}, DataError, "gives the tasks other sets than model.safetensors does"),
        ({"components": [], "num_classes": 8}, DataError, "does not fit the code .*; install baseline"),
        ({"format": 99}, DataError, "has format 99, and lw2g .* reads 2; .* or use lw2g"),
        ({"num_classes": 8}, DataError, "does not fit the code .*; install baseline 'dual-prompt' .plugin"),
        (
            {"routing": {"mixed": 3}},
            ConfigError,
            "mixed: no such option.*; the model was made with another version",
        ),
    ],
)
def test_an_export_of_other_code_is_refused(copied, catalogue, changes, error, words):
    """What another version wrote is read as it was meant, or refused in one line that names the version."""
    told = json.loads((copied / "model.json").read_text())
    del told["sha256"]
    (copied / "model.json").write_bytes(seal_json(told | changes))
    with pytest.raises(error, match=words):
        open_model(copied, catalogue, device="cpu")


def test_an_option_that_is_gone_and_changed_no_number_is_left_out(copied, catalogue):
    """A model of an earlier lw2g opens although an option of its run is not there any more."""
    told = json.loads((copied / "model.json").read_text())
    del told["sha256"]
    told["run"]["graph"] = "auto"
    (copied / "model.json").write_bytes(seal_json(told))
    model = open_model(copied, catalogue, device="cpu")
    assert len(model.classes) == told["num_classes"]


def test_a_run_of_the_last_release_is_taken_away(finished, catalogue):
    """Options of ``run`` that came after it are left at their defaults, not missed."""
    manifest = saved_of(run_after(finished[0], None)).manifest
    earlier = {name: value for name, value in manifest.run.items() if name != "probabilities"}
    taken = as_exported(attrs.evolve(manifest, run=earlier), catalogue)
    assert "probabilities" not in taken.run


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_classes": 10**9}, "claims num_classes = 1000000000, and its largest tensor has .* rows"),
        ({"num_tasks": 10**9}, "claims num_tasks = 1000000000"),
        ({"num_classes": -1}, "claims num_classes = -1"),
        ({"num_classes": 1}, r"names \d+ classes of tasks and has room for 1"),
        ({"targets": [10**9, 1]}, "the targets of task 1 are none of its classes"),
        ({"targets": [0]}, "the targets of task 1 are none of its classes"),
    ],
)
def test_a_forged_size_is_refused_before_anything_is_allocated(
    copied, catalogue, monkeypatch, changes, words
):
    """Whoever knows of checksums can claim any number; no part of the model is built for it."""
    told = json.loads((copied / "model.json").read_text())
    del told["sha256"]
    targets = changes.pop("targets", None)
    if targets is not None:
        told["tasks"][0]["targets"] = targets
    (copied / "model.json").write_bytes(seal_json(told | changes))
    monkeypatch.setattr("lw2g.model.saved.live_model", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(DataError, match=words):
        open_model(copied, catalogue, device="cpu")


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values, of long lists those of the first two."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = list(enumerate(value))[:2]
    return [place, *(inner for key, child in items for inner in _places(child, (*place, key)))]


def _forged(value: Any) -> list[Any]:
    """Return what may stand in a value's place."""
    if isinstance(value, list):
        return [[], value[:-1], value + value[-1:], [None], [[]], {}, {"x": 1}, "ab", [-1] * len(value), None]
    if isinstance(value, dict):
        return [{}, [], None]
    return [None, "", 0, -1, 2**70, 1.5, []]


@pytest.mark.slow(seconds=8)
def test_no_value_of_a_manifest_ends_in_a_traceback(copied, catalogue):
    """Every list empty, shorter, longer or of another type, and every other value: one line, or an answer."""
    told = json.loads((copied / "model.json").read_text(encoding="utf-8"))
    del told["sha256"]
    saved = exported.read_export(copied)
    refused, lines = [], []
    for place in _places(told):
        if not place or place[0] in ("format", "lw2g"):
            continue
        old = told
        for key in place:
            old = old[key]
        for new in _forged(old):
            forged = copy.deepcopy(told)
            table = forged
            for key in place[:-1]:
                table = table[key]
            table[place[-1]] = new
            # the sets stand in both files: a forger writes both
            weights = exported._as_bytes(
                saved.tensors, {"task_to_set": json.dumps(forged.get("task_to_set"))}
            )
            (copied / "model.safetensors").write_bytes(weights)
            if place[0] != "files":
                forged["files"] = {"model.safetensors": hashlib.sha256(weights).hexdigest()}
            (copied / "model.json").write_bytes(seal_json(forged))
            try:
                model = open_model(copied, catalogue, device="cpu", batch_size=1)
                model.predict(model.backbone.blank())
            except Lw2gError as error:
                refused.append((place, new))
                lines.append(str(error).splitlines())
    assert {len(line) for line in lines} == {1}
    for place, new in (
        (("tasks",), []),
        (("task_to_set",), []),
        (("tasks", 0, "class_names"), []),
        (("tasks", 0, "class_names"), "ab"),
    ):
        assert (place, new) in refused


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("size", 0, "'size' must be >= 1"),
        ("size", 10**6, "expected images of .* pixels, as the backbone takes them, but got 1000000"),
        *[
            ("interpolation", word, "expected one of 'bilinear', 'bicubic' but got")
            for word in ("none", "nearest", "lanczos", "", 3, None)
        ],
        ("resize", "none", "expected one of 'squash', 'crop' but got 'none'"),
        ("mean", [123.675, 116.28, 103.53], "must be <= 1"),
        ("mean", [0.5], "must be >= 3"),
        ("std", [0.5, 0.0, 0.5], "must be > 0"),
        ("std", [0.5, 0.5, -1.0], "must be > 0"),
    ],
)
def test_a_transform_that_lw2g_cannot_compute_is_refused(out, key, value, said):
    """Sides, filters and deviations are looked at before an image meets them."""
    told = json.loads((out / "model.json").read_text(encoding="utf-8"))
    side = told["fingerprint"]["image_size"]
    numbers = {"size": side, "resize": "squash", "interpolation": "bicubic"}
    numbers |= {"mean": [0.5] * 3, "std": [0.5] * 3}
    assert misfit(told | {"preprocessing": numbers}, Manifest) == ""
    assert re.search(said, misfit(told | {"preprocessing": numbers | {key: value}}, Manifest))


def test_an_empty_tensor_bears_nothing_out(copied, catalogue):
    """A dimension beside one of 0 takes no byte, however long it claims to be."""
    saved = exported.read_export(copied)
    forged = exported.Saved(
        manifest=attrs.evolve(saved.manifest, num_classes=10**9),
        tensors={**saved.tensors, "baseline/forged": torch.zeros(10**9, 0)},
    )
    shutil.rmtree(copied)
    exported.write_export(forged, copied)
    with pytest.raises(DataError, match="claims num_classes = 1000000000"):
        open_model(copied, catalogue, device="cpu")


def test_nothing_is_overwritten_and_nothing_left_half(finished, out, catalogue, tmp_path, monkeypatch):
    """A folder in use is refused; where writing fails, there is no folder at all."""
    with pytest.raises(ConfigError, match=r"'.*model' is there already; choose another folder"):
        export_run(finished[0], catalogue, out)
    write = places.write_atomically
    monkeypatch.setattr(
        places,
        "write_atomically",
        lambda path, text: write(path, text) if path.suffix != ".json" else 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        export_run(finished[0], catalogue, tmp_path / "new" / "model")
    assert [path.name for path in tmp_path.rglob("*")] == []


def test_an_export_holds_one_task(finished, out, catalogue):
    """Another task than the exported one is refused, and one that the run has not finished."""
    assert open_model(out, catalogue, 3, device="cpu").task == 3
    with pytest.raises(DataError, match=r"holds the model after task 3 alone; .*task=1"):
        open_model(out, catalogue, 1)
    with pytest.raises(ConfigError, match="expected a number from 1 but got 0; the first task is 1"):
        open_model(out, catalogue, 0)
    with pytest.raises(DataError, match="task 8 is not finished"):
        export_run(finished[0], catalogue, out.with_name("never"), 8)


def test_an_oracles_model_is_not_taken_away(catalogue, quick, tmp_path):
    """Whoever is told the task can be evaluated, not used."""
    resolved = quick({"benchmark.tasks": 1}, retrieval="oracle", policy="always")
    start(resolved, catalogue, tmp_path / "run")
    with pytest.raises(ConfigError, match="retrieval 'oracle' is told the task"):
        export_run(tmp_path / "run", catalogue, tmp_path / "out")
