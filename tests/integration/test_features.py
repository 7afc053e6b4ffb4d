"""Stored features in whole runs: the numbers of images, and all that a run of images can do."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import lw2g
from lw2g.cli.main import main
from lw2g.config.resolve import Resolved, resolve
from lw2g.errors import ConfigError, DataError
from lw2g.lifecycle.runner import resume, start
from lw2g.model.exporting import export_run
from lw2g.model.learnable_export import export_learnable
from lw2g.model.saved import open_model
from lw2g.pixels.text_vectors import write_vectors
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.found_runs import read_run
from lw2g.results.table import tables_of
from lw2g_datasets import writing_features as writing
from lw2g_datasets.writing_features import write_features
from runs import different, shortest, tensors, untimed
from vectors import CLASSES, DIM, vector_file

HEADS = ("cosine", "lda", "mahalanobis", "ridge", "klda")
METHODS = {
    **{head: ("simple-cil", {"baseline.head": head, "baseline.head_features": 40}) for head in HEADS},
    "raw ridge": ("simple-cil", {"baseline.head": "ridge", "baseline.head_features": 0}),
    "ranpac": ("ranpac", {"baseline.adapt": "none", "baseline.features": 50}),
    "trained": ("no-prompt", {"baseline.epochs": 2}),
}


def of_file(file: Path, catalogue: Catalogue, baseline: str = "simple-cil", **overrides: Any) -> Resolved:
    """Resolve a run on a file of stored features."""
    base = {"benchmark.file": str(file), "benchmark.increment": 2, "run.device": "cpu"}
    return resolve(catalogue, overrides={**base, **overrides}, baseline=baseline, benchmark="features")


def stored(catalogue: Catalogue, out: Path, resolved: Resolved) -> Path:
    """Write the features of a run's images."""
    write_features(resolved.config, catalogue, out)
    return out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of six classes."""
    return vector_file(tmp_path / "f.npz")


@pytest.mark.parametrize("method", METHODS)
def test_a_file_gives_the_numbers_of_its_images(catalogue: Catalogue, tmp_path: Path, method: str) -> None:
    """In float32, every prediction on stored features is that on the images they are of."""
    baseline, options = METHODS[method]
    tiny = {"benchmark.tasks": 2, "benchmark.test": 8, "benchmark.train": 12, "backbone.spread": 0.1}
    images = shortest(catalogue, baseline, {**options, **tiny})
    file = stored(catalogue, tmp_path / "f.safetensors", images)
    # of the tiny benchmark, the first task has two classes and the second three
    cut = {"benchmark.base": 2, "benchmark.increment": 3}
    vectors = of_file(file, load_catalogue(), baseline, **{**options, **cut})
    same = attrs.evolve(vectors.config, baseline=images.config.baseline, run=images.config.run)
    first = start(images, catalogue, tmp_path / "images")
    second = start(attrs.evolve(vectors, config=same), load_catalogue(), tmp_path / "vectors")
    for one, other in zip(first["accuracy_matrix"], second["accuracy_matrix"], strict=True):
        assert one == pytest.approx(other, abs=1e-6)
    assert first["metrics"]["faa"] == pytest.approx(second["metrics"]["faa"], abs=1e-6)
    assert first["backbone"]["sha256"] == second["backbone"]["sha256"]


FINAL = {"run.precision": "32-true", "run.evaluate": "last"}
"""In float32, evaluated after the last task alone."""


def of_glyphs(catalogue: Catalogue, head: str) -> Resolved:
    """Resolve a run of a head on all classes of the embedded benchmark, with half of the images of each."""
    few = {"benchmark.train_per_class": 20, "benchmark.test_per_class": 10}
    options = FINAL | few | {"baseline.head": head, "run.device": "cpu"}
    return resolve(catalogue, overrides=options, baseline="simple-cil", benchmark="glyphs")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The features of the embedded benchmark, which no head changes."""
    catalogue = load_catalogue()
    place = tmp_path_factory.mktemp("features") / "f.npz"
    return stored(catalogue, place, of_glyphs(catalogue, HEADS[0]))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["lda", "ridge"])
def test_embedded_features_give_the_numbers_of_the_embedded_images(
    tmp_path: Path, embedded: Path, head: str
) -> None:
    """The micro ViT on 100 classes: the same final accuracy to 1e-6; the test above has every head."""
    catalogue = load_catalogue()
    options = FINAL | {"baseline.head": head, "benchmark.increment": 10}
    vectors = of_file(embedded, catalogue, **options)
    images = of_glyphs(catalogue, head)
    first = start(images, catalogue, tmp_path / "images")["metrics"]["faa"]
    assert start(vectors, catalogue, tmp_path / "vectors")["metrics"]["faa"] == pytest.approx(first, abs=1e-6)


def test_a_run_survives_a_crash(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed after a task, it ends with the bits of an undisturbed run, and `verify` agrees."""
    catalogue = load_catalogue()
    whole = start(of_file(file, catalogue, **{"baseline.head": "ridge"}), catalogue, tmp_path / "whole")
    # what trains nothing predicts at a price all the same, here of random units and their weights
    assert whole["flops"]["training_per_image"] is None
    assert whole["flops"]["inference_per_image"] > 0
    begun = of_file(file, catalogue, **{"baseline.head": "ridge"})
    start(begun, catalogue, tmp_path / "cut", tasks=1)
    (tmp_path / "cut" / "goal.json").unlink()
    record = resume(tmp_path / "cut", catalogue)
    assert untimed(record, "files", "record_hash") == untimed(whole, "files", "record_hash")
    assert not different(tensors(tmp_path / "whole"), tensors(tmp_path / "cut"))
    told = CliRunner().invoke(main, ["verify", str(tmp_path / "cut")])
    assert (told.exit_code, "everything holds" in told.output) == (0, True)


def test_the_record_says_what_made_the_features(tmp_path: Path) -> None:
    """Backbone and weights are those of the file, and the configuration of the run has them."""
    catalogue = load_catalogue()
    said = np.array(json.dumps({"backbone": {"timm_name": "a_vit", "sha256": "cafe"}}))
    record = start(
        of_file(vector_file(tmp_path / "f.npz", metadata=said), catalogue), catalogue, tmp_path / "r"
    )
    assert {key: record["backbone"][key] for key in ("timm_name", "sha256", "source", "dim")} == {
        "timm_name": "a_vit",
        "sha256": "cafe",
        "source": "stored features",
        "dim": DIM,
    }
    assert record["config"]["backbone"]["model"] == "a_vit"
    # by no module's name: the protocol's hash must outlive a move of code
    assert record["protocol_facts"]["test_transform"] == {"size": 0}
    assert any("made by a_vit" in entry["note"] for entry in record["deviations"])


@pytest.mark.parametrize(
    ("said", "pool"),
    [
        ({"backbone": {"sha256": "cafe", "pool": "avg"}}, "avg"),
        ({"backbone": {"sha256": "cafe"}, "token": "cls"}, "token"),
        ({"backbone": {"sha256": "cafe"}}, "default"),
        ({"backbone": {"sha256": "cafe", "pool": "by magic"}}, "default"),
    ],
)
def test_the_record_says_how_features_were_pooled(tmp_path: Path, said: dict[str, Any], pool: str) -> None:
    """As the file says; one that says nothing is not taken for class tokens."""
    catalogue = load_catalogue()
    file = vector_file(tmp_path / "f.npz", metadata=np.array(json.dumps(said)))
    assert start(of_file(file, catalogue), catalogue, tmp_path / "run")["backbone"]["pool"] == pool
    assert len(open_model(tmp_path / "run", catalogue).predict(file)) == 4 * CLASSES
    said["backbone"]["pool"] = "map"
    other = vector_file(tmp_path / "other.npz", metadata=np.array(json.dumps(said)))
    with pytest.raises(DataError, match=f"pooling map\\), and the model knows those of .*pooling {pool}\\)"):
        open_model(tmp_path / "run", catalogue).predict(other)
    # a run goes on where it was cut: what the file said lies in its configuration
    start(of_file(file, catalogue), catalogue, tmp_path / "cut", tasks=1)
    (tmp_path / "cut" / "goal.json").unlink()
    assert resume(tmp_path / "cut", catalogue)["backbone"]["pool"] == pool


def test_a_run_from_before_files_said_their_pooling_is_of_the_same_row(tmp_path: Path) -> None:
    """Its configuration lacks the option, and what was pooled is told by the fingerprint."""
    catalogue = load_catalogue()
    said = np.array(json.dumps({"backbone": {"sha256": "cafe", "pool": "token"}}))
    start(of_file(vector_file(tmp_path / "f.npz", metadata=said), catalogue), catalogue, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run is not None
    backbone = {key: value for key, value in run.config["backbone"].items() if key != "pool"}
    config = {**run.config, "backbone": backbone}
    older = attrs.evolve(run, config=config, record={**run.record, "config": config, "seed": 1})
    (table,) = tables_of([run, older], catalogue)
    assert [len(row.runs) for row in table.rows] == [2]


def test_an_export_answers_for_vectors(file: Path, tmp_path: Path) -> None:
    """Without run and file it predicts what the run predicted, of tensors, arrays and files."""
    catalogue = load_catalogue()
    start(of_file(file, catalogue, **{"baseline.head": "lda"}), catalogue, tmp_path / "run")
    export_run(tmp_path / "run", catalogue, tmp_path / "model")
    rows = np.load(file)["test_x"]
    run, model = (open_model(tmp_path / name, catalogue) for name in ("run", "model"))
    assert torch.equal(run(rows), model(torch.from_numpy(rows)))
    assert torch.equal(model(rows[:1]), model(rows[0]))
    np.save(tmp_path / "q.npy", rows)
    entries = model.predict(tmp_path / "q.npy")
    assert [entry["path"] for entry in entries[:2]] == ["q.npy/0", "q.npy/1"]
    assert [entry["class"] for entry in entries] == [entry["class"] for entry in model.predict(file)]
    with pytest.raises(DataError, match=r"expected vectors \[n, 8\] but got \[4, 5\]"):
        model.predict(np.ones((4, 5), dtype=np.float32))
    np.save(tmp_path / "narrow.npy", rows[:, 1:])
    with pytest.raises(DataError, match=r"narrow\.npy': expected vectors \[n, 8\] but got"):
        model.predict(tmp_path / "narrow.npy")
    (tmp_path / "x.png").touch()
    with pytest.raises(
        DataError, match=r"x\.png' holds no vectors, and .*; give a \.npy file, \.npz, .* folder of"
    ):
        model.predict(tmp_path / "x.png")
    with pytest.raises(DataError, match="no finite numbers"):
        model.predict(np.full((1, DIM), np.nan, dtype=np.float32))


def test_a_run_goes_on_with_other_stored_features(file: Path, tmp_path: Path) -> None:
    """Classes of a second file follow those of the first; images and other backbones' features cannot."""
    catalogue = load_catalogue()
    start(of_file(file, catalogue), catalogue, tmp_path / "run")
    said = np.array('{"backbone": {"timm_name": "a_vit"}}')
    told = _continued(tmp_path / "run", "digits")
    assert (told.exit_code, "has images, and the run began with stored" in told.output) == (2, True)
    other = vector_file(tmp_path / "g.npz", seed=5, metadata=said)
    told = _continued(tmp_path / "run", "features", other)
    assert (told.exit_code, "of another backbone than the run's" in told.output) == (2, True)
    told = _continued(tmp_path / "run", "features", vector_file(tmp_path / "h.npz", seed=6))
    assert told.exit_code == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert [len(classes) for classes in record["task_classes"]] == [2, 2, 2, 3, 3]
    assert set(record["class_names"][6:]) == {f"features-2/class {label}" for label in range(CLASSES)}


def _continued(run: Path, benchmark: str, file: Path | None = None) -> Result:
    options = [] if file is None else [f"--set=benchmark.file={file}", "--set=benchmark.increment=3"]
    return CliRunner().invoke(main, ["continue", str(run), "--benchmark", benchmark, *options])


def _classes(path: Path, labels: Sequence[int], **changes: Any) -> Path:
    """Write a file of some of the six classes."""
    arrays = dict(np.load(vector_file(path.with_suffix(".whole.npz"), train=20, test=6)))
    kept: dict[str, Any] = {"class_names": arrays["class_names"][list(labels)], "train_domain": None}
    for split in ("train", "test"):
        here = np.isin(arrays[f"{split}_y"], labels)
        kept[f"{split}_x"] = arrays[f"{split}_x"][here]
        kept[f"{split}_y"] = np.searchsorted(labels, arrays[f"{split}_y"][here])
    return vector_file(path, **{**kept, "test_domain": None, **changes})


def test_a_model_grows_by_vectors(tmp_path: Path) -> None:
    """Learning the last classes from a file gives the head of a stream with them, and is taken back."""
    catalogue = load_catalogue()
    old, new = _classes(tmp_path / "old.npz", range(4)), _classes(tmp_path / "new.npz", range(4, 6))
    start(of_file(old, catalogue, **{"baseline.head": "lda"}), catalogue, tmp_path / "run")
    export_learnable(tmp_path / "run", catalogue, tmp_path / "model")
    grown, report = lw2g.learn(tmp_path / "model", new, out=tmp_path / "more", test=new)
    assert [entry["class"] for entry in report["classes"]] == ["class 4", "class 5"]
    rows = np.load(_classes(tmp_path / "all.npz", range(6)))["test_x"]
    whole = of_file(tmp_path / "all.npz", catalogue, **{"baseline.head": "lda"})
    start(whole, catalogue, tmp_path / "whole")
    # the second file says of itself, as the first, that its backbone is unknown
    expected = open_model(tmp_path / "whole", catalogue)(rows)
    torch.testing.assert_close(grown(rows).softmax(1), expected.softmax(1), rtol=1e-5, atol=1e-6)
    less, _ = lw2g.unlearn(tmp_path / "more", "class 5", out=tmp_path / "less")
    assert less.known == tuple(f"class {label}" for label in range(5))
    assert bool(less(rows)[:, 5].isneginf().all())


def test_a_model_starts_from_a_file_and_refuses_another_backbone(tmp_path: Path) -> None:
    """Without a run; rows that say they are of other weights neither join nor are asked about."""
    said = np.array('{"backbone": {"timm_name": "a_vit", "sha256": "cafe"}}')
    first = _classes(tmp_path / "a.npz", range(3), metadata=said)
    model, report = lw2g.start(first, tmp_path / "model")
    assert (report["accuracy"], len(model.classes)) == (pytest.approx(100, abs=20), 3)
    assert model.backbone.fingerprint.sha256 == "cafe"
    strange = np.array('{"backbone": {"timm_name": "other_vit", "sha256": "beef"}}')
    other = _classes(tmp_path / "b.npz", range(3, 6), metadata=strange)
    with pytest.raises(DataError, match=r"features of other_vit .*, and the model knows those of a_vit"):
        lw2g.learn(tmp_path / "model", other)
    with pytest.raises(DataError, match="holds features of other_vit"):
        model.predict(other)
    with pytest.raises(DataError, match="holds no stored features, and the model knows no images"):
        lw2g.learn(tmp_path / "model", tmp_path)


def test_costs_are_estimated(file: Path) -> None:
    """`--dry-run` times vectors as it times images, and writes nothing."""
    options = [f"--set=benchmark.file={file}", "--set=benchmark.increment=2", "--baseline=simple-cil"]
    told = CliRunner().invoke(main, ["run", "--benchmark=features", *options, "--dry-run", "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["missing"] == []


REFUSED = {
    "'hide-prompt' needs images, and benchmark 'features' has stored features alone; without images run "
    "'no-prompt', 'ranpac' with baseline.adapt=none, 'simple-cil'": {"baseline": "hide-prompt"},
    "'ranpac' without baseline.adapt=none needs images": {"baseline": "ranpac"},
    "'micro' takes images, and benchmark 'features' holds features already": {"backbone.name": "micro"},
    "constraints and evidence look into the transformer": {"constraints": ["orthogonal"]},
    "backbone.dim: 3 is not what the stored features are of, 8": {"backbone.dim": 3},
    "backbone.image_size: stored features have none": {"backbone.image_size": 32},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_needs_images_is_refused(file: Path, tmp_path: Path, message: str) -> None:
    """In one line, before anything is written."""
    catalogue = load_catalogue()
    changes = dict(REFUSED[message])
    baseline = changes.pop("baseline", "simple-cil")
    # in a file, since a name that is typed is refused for the method before that
    file_content = {"constraints": changes.pop("constraints")} if "constraints" in changes else None

    def attempt() -> None:
        resolved = resolve(
            catalogue,
            file=file_content,
            overrides={"benchmark.file": str(file), "benchmark.increment": 2, **changes},
            baseline=baseline,
            benchmark="features",
        )
        start(resolved, catalogue, tmp_path / "run")

    with pytest.raises(ConfigError) as caught:
        attempt()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_backbone_without_a_network_takes_no_images() -> None:
    """The other way round is refused as well."""
    with pytest.raises(ConfigError, match="'features' holds no network, and benchmark 'digits' has images"):
        resolve(load_catalogue(), baseline="simple-cil", benchmark="digits", backbone="features")


def test_all_rows_shared_by_training_and_test_are_refused(tmp_path: Path) -> None:
    """A test on training rows is none; some shared rows are told."""
    catalogue = load_catalogue()
    rows = np.random.default_rng(0).normal(size=(CLASSES * 4, DIM)).astype(np.float32)
    labels = np.tile(np.arange(CLASSES), 4)
    none = {"train_domain": None, "test_domain": None}
    same = {"train_x": rows, "train_y": labels, "test_x": rows, "test_y": labels, **none}
    with pytest.raises(DataError, match="24 of 24 test images are training images"):
        start(of_file(vector_file(tmp_path / "f.npz", **same), catalogue), catalogue, tmp_path / "run")
    half = np.concatenate([rows[:12], rows[12:] + 1])
    file = vector_file(tmp_path / "g.npz", **{**same, "test_x": half})
    record = start(of_file(file, catalogue), catalogue, tmp_path / "told")
    assert record["shared_images"]["count"] == 12


# -- writing a file ------------------------------------------------------------------------------------------


class KilledError(Exception):
    """Stands for a kill."""


def test_a_killed_file_goes_on(catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is computed twice, and the file has the bytes of one that was written in one go."""
    monkeypatch.setattr(writing, "_BLOCK", 4)
    config = shortest(catalogue, "simple-cil").config
    write_features(config, catalogue, tmp_path / "whole.npz")
    computed: list[int] = []

    def kill(split: str, done: int, total: int) -> None:
        computed.append(done)
        if len(computed) == 3:
            raise KilledError

    with pytest.raises(KilledError):
        write_features(config, catalogue, tmp_path / "cut.npz", progress=kill)
    assert not (tmp_path / "cut.npz").exists()
    asked: list[int] = []
    extractor = writing._extractor

    def counting(*arguments: Any) -> Any:
        features = extractor(*arguments)
        return lambda part: asked.append(len(part)) or features(part)

    monkeypatch.setattr(writing, "_extractor", counting)
    write_features(config, catalogue, tmp_path / "cut.npz")
    arrays = np.load(tmp_path / "whole.npz")
    assert sum(asked) == len(arrays["train_x"]) + len(arrays["test_x"]) - 12
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "whole.npz") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert not (tmp_path / "cut.npz.part").exists()


def test_a_half_file_of_something_else_is_refused(catalogue: Catalogue, tmp_path: Path) -> None:
    """Rows of two precisions never meet in one file, and a finished one is not written over."""
    config = shortest(catalogue, "simple-cil").config
    with pytest.raises(KilledError):
        write_features(config, catalogue, tmp_path / "f.npz", progress=_kill)
    with pytest.raises(DataError, match="was begun with other images, weights or options"):
        write_features(config, catalogue, tmp_path / "f.npz", dtype="float16")
    write_features(config, catalogue, tmp_path / "f.npz")
    with pytest.raises(DataError, match="is there already"):
        write_features(config, catalogue, tmp_path / "f.npz")


def _kill(split: str, done: int, total: int) -> None:
    raise KilledError


@pytest.mark.parametrize("name", ["f.npz", "f.safetensors", "folder"])
def test_every_container_is_written(catalogue: Catalogue, tmp_path: Path, name: str) -> None:
    """Rows, labels, names, ids and provenance are read back; no path of the machine is among them."""
    from lw2g.pixels.feature_files import open_features

    images = shortest(catalogue, "simple-cil")
    made = write_features(images.config, catalogue, tmp_path / name, dtype="float16")
    file = open_features(tmp_path / name)
    assert file.metadata == json.loads(json.dumps(made))
    assert (file.dtype, file.metadata["backbone"]["source"]) == ("float16", "random")
    assert str(tmp_path) not in json.dumps(made)
    stream = catalogue.get("benchmark", "tiny").build(images.config.benchmark.config).stream()
    assert file.class_names == stream.class_names
    ids = {split: set(rows.ids) for split, rows in file.splits.items()}
    assert ids["train"] == {name for task in stream.tasks for name in task.train.ids}


def test_features_of_features_are_refused(file: Path, tmp_path: Path) -> None:
    """A file is not computed from a file."""
    catalogue = load_catalogue()
    with pytest.raises(ConfigError, match="holds stored features already"):
        write_features(of_file(file, catalogue).config, catalogue, tmp_path / "g.npz")
    assert not list(tmp_path.glob("g*"))


def test_a_head_without_its_text_file_leaves_nothing_behind(file: Path, tmp_path: Path) -> None:
    """The same `--out` serves again once the file is there; a class that the file lacks is told likewise."""
    catalogue = load_catalogue()
    text, out = tmp_path / "text.safetensors", tmp_path / "run"
    options = {"baseline.head": "text", "head.text.file": str(text), "head.text.width": DIM}
    resolved = of_file(file, catalogue, **options)
    with pytest.raises(ConfigError, match=r"head\.text\.file: no file"):
        start(resolved, catalogue, out)
    assert not out.exists()
    write_vectors(text, torch.eye(1, DIM), ["of no class"], "test")
    with pytest.raises(DataError, match="has no vector for class"):
        start(resolved, catalogue, out)
    assert not out.exists()
    with np.load(file) as arrays:
        names = arrays["class_names"].tolist()
    write_vectors(text, torch.eye(CLASSES, DIM), names, "test")
    assert len(start(resolved, catalogue, out)["accuracy_matrix"]) == CLASSES // 2


def test_an_export_of_a_head_of_text_needs_no_text_file(file: Path, tmp_path: Path) -> None:
    """Several sentences a class and a projection lie in the state: scores are the run's, bit for bit."""
    catalogue = load_catalogue()
    with np.load(file) as arrays:
        names = arrays["class_names"].tolist()
    text, width = tmp_path / "text.npz", 4
    generator = np.random.default_rng(0)
    sentences = [f"{how} {name}" for name in names for how in ("a photo of", "art of")]
    np.savez(
        text,
        vectors=generator.normal(size=(2 * CLASSES, width)).astype(np.float32),
        sentences=sentences,
        classes=np.repeat(names, 2),
        projection=generator.normal(size=(DIM, width)).astype(np.float32),
        logit_scale=np.float32(20),
    )
    options = {"head.text.file": str(text), "head.text.width": width, "head.text.mix": "lda"}
    resolved = of_file(file, catalogue, **{"baseline.head": "text", **options})
    start(resolved, catalogue, tmp_path / "run")
    rows = np.load(file)["test_x"]
    expected = open_model(tmp_path / "run", catalogue)(rows)
    text.unlink()
    export_run(tmp_path / "run", catalogue, tmp_path / "model")
    assert torch.equal(open_model(tmp_path / "model", catalogue)(rows), expected)
