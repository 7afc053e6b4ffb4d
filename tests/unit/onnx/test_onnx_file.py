"""A model as an ONNX file: what it holds, that onnxruntime answers as torch does, and what is refused."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

import lw2g
import lw2g_onnx.onnx_program as onnx_program
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError
from lw2g.learning.session import Session
from lw2g.model.trained import TrainedModel
from lw2g.registry.catalogue import load_catalogue
from lw2g_onnx.onnx_program import IMAGE, OPSET, PROBABILITIES
from lw2g_onnx.probabilities import require_exportable
from lw2g_testing.tiny import tiny_backbone
from written_images import write_images

QUICK: dict[str, Any] = {
    "benchmark": "glyphs",
    "benchmark.classes_per_family": 2,
    "benchmark.increment": 5,
    "benchmark.train_per_class": 6,
    "benchmark.test_per_class": 2,
    "run.device": "cpu",
    "run.precision": "32-true",
    "run.probabilities": True,
    "progress": False,
}
"""Two tasks of small drawings, learned in float32."""
Run = Callable[..., Path]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns the directory of a finished run, which is run once."""
    finished: dict[str, Path] = {}

    def run(baseline: str, **options: Any) -> Path:
        name = f"{baseline}-{options}"
        if name not in finished:
            out = tmp_path_factory.mktemp("run") / "run"
            lw2g.run(baseline=baseline, out=out, **{**QUICK, **options})
            finished[name] = out
        return finished[name]

    return run


@pytest.fixture
def libraries() -> None:
    """The extra ``onnx``."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install 'lw2g[onnx]')")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let an exporter write any bytes, from which onnxruntime differs by a number."""

    def pretend(difference: float) -> None:
        monkeypatch.setattr(onnx_program, "require_exporter", lambda: None)
        monkeypatch.setattr(onnx_program, "onnx_bytes", lambda module, size, metadata: b"a model")
        monkeypatch.setattr(onnx_program, "onnx_differences", lambda content, module, size: difference)

    return pretend


def export(*words: str | Path) -> tuple[int, str]:
    """Return the exit code of ``lw2g export``, and what it prints on either stream."""
    result = CliRunner().invoke(main, ["export", *map(str, words)])
    return result.exit_code, result.output


def expected(model: Any, images: Tensor) -> np.ndarray:
    """Return a model's own probabilities of transformed images."""
    with torch.no_grad():
        probabilities: np.ndarray = (model(images) / (model.temperature or 1.0)).softmax(1).numpy()
    return probabilities


def answered(path: Path, images: Tensor) -> np.ndarray:
    """Return onnxruntime's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run([PROBABILITIES], {IMAGE: images.numpy()})
    return np.asarray(probabilities)


def require_parity(path: Path, model: Any, images: Tensor) -> None:
    """Probabilities are equal to 1e-4, and the best class is the same."""
    ours, theirs = expected(model, images), answered(path, images)
    assert np.abs(ours - theirs).max() < 1e-4
    assert np.array_equal(ours.argmax(1), theirs.argmax(1))


def images_of(model: Any) -> Tensor:
    """Return eight drawn images."""
    side = model.backbone.image_size
    return torch.randn(8, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_onnxruntime_gives_the_calibrated_probabilities_of_64_images(tmp_path: Path) -> None:
    """Handwritten digits that were not learned, in batches of any size, from what the command has written."""
    run, path = tmp_path / "run", tmp_path / "new" / "model.onnx"
    options = {name: value for name, value in QUICK.items() if not name.startswith("benchmark")}
    lw2g.run(baseline={"name": "simple-cil", "head": "lda"}, benchmark="digits", out=run, **options)
    code, said = export(run, "--onnx", path)
    assert code == 0, said
    assert f"opset {OPSET}, calibrated probabilities of 10 classes; onnxruntime and torch differ" in said
    benchmark = load_catalogue().get("benchmark", "digits")
    test = benchmark.build(benchmark.config()).stream().tasks[-1].test
    model = lw2g.load(run, device="cpu")
    images = torch.stack([model.transform(test.source.image(row)) for row in test.indices[:64].tolist()])
    assert len(images) == 64
    assert model.temperature not in (None, 1.0)
    require_parity(path, model, images)
    whole = answered(path, images)
    alone = np.concatenate([answered(path, images[:1]), answered(path, images[1:6])])
    assert np.abs(alone - whole[:6]).max() < 1e-5
    assert export(run, "--onnx", path)[1].startswith(f"error: {str(path)!r} is there already; ")


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    "options",
    [
        {"baseline.head": "cosine", "backbone.layers": 2, "backbone.pool": "both"},
        {"baseline.head": "ridge", "baseline.head_features": 300},
    ],
    ids=["prototypes of joined layers", "ridge"],
)
def test_prototypes_ridge_and_joined_layers_are_exported(
    learned: Run, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Each is equal to lw2g's own probabilities on drawn images."""
    run, path = learned("simple-cil", **options), tmp_path / "model.onnx"
    lw2g.export_onnx(run, path)
    model = lw2g.load(run, device="cpu")
    require_parity(path, model, images_of(model))


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_a_model_of_timm_s_own_forward_is_exported(learned: Run, tmp_path: Path) -> None:
    """A network that lw2g has no forward of: timm's is traced."""
    model = tiny_backbone().model
    options = {"baseline.head": "lda", "run.probabilities": False}
    half = [0.5, 0.5, 0.5]
    run = learned("simple-cil", backbone={"name": model, "mean": half, "std": half}, **options)
    path = tmp_path / "model.onnx"
    local = {"backbone": model}
    written = lw2g.export_onnx(run, path, local=local)
    assert not written.calibrated
    again = lw2g.load(run, device="cpu", local=local)
    require_parity(path, again, images_of(again))


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_low_rank_updates_are_merged_into_the_weights(learned: Run, tmp_path: Path) -> None:
    """The file of an adapted model has the operators of a frozen one's, and lw2g's probabilities."""
    import onnx

    operators = []
    for baseline in ("simple-cil", "finetune"):
        options = {} if baseline == "simple-cil" else {"baseline.epochs": 1}
        run = learned(baseline, **{"baseline.head": "lda", **options})
        path = tmp_path / f"{baseline}.onnx"
        lw2g.export_onnx(run, path)
        graph = onnx.load(path).graph
        operators.append(Counter(node.op_type for node in graph.node))
        model = lw2g.load(run, device="cpu")
    assert operators[0] == operators[1]
    frozen, adapted = (
        answered(tmp_path / f"{name}.onnx", images_of(model)) for name in ("simple-cil", "finetune")
    )
    assert np.abs(frozen - adapted).max() > 1e-3  # the update does something
    require_parity(path, model, images_of(model))


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_the_metadata_prepare_an_image_and_name_the_classes(tmp_path: Path) -> None:
    """Of a model that has forgotten a class; nothing says where it was made, or what it was made of."""
    import onnx
    import onnxruntime

    photos = tmp_path / "photos"
    draws = np.random.default_rng(0)
    for shade, name in enumerate(("ant", "bee", "cat")):
        write_images(photos / name, (draws.integers(0, 80, (40, 50, 3)) + 80 * shade for _ in range(6)))
    lw2g.start(photos, tmp_path / "model", backbone="micro", device="cpu")
    lw2g.unlearn(tmp_path / "model", "bee", out=tmp_path / "two")
    path = tmp_path / "two.onnx"
    written = lw2g.export_onnx(tmp_path / "two", path)
    assert (written.classes, written.calibrated) == (("ant", "cat"), True)
    content = path.read_bytes()
    assert written.size == len(content)
    for trace in (str(tmp_path), "site-packages", ".py", "gram", "scatter"):
        assert trace.encode() not in content, trace
    model = lw2g.load(tmp_path / "two", device="cpu")
    session = onnxruntime.InferenceSession(content)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["class_names"]) == ["ant", "cat"]
    how = json.loads(facts["preprocessing"])
    still: Any = model.parts.still
    assert (how["size"], how["resize"], how["interpolation"]) == (
        still.size,
        still.resize,
        still.interpolation,
    )
    assert (how["mean"], how["std"], how["channels"]) == (list(still.mean), list(still.std), "RGB")
    assert how["resize_to"] == (still.before_crop if still.resize == "crop" else still.size)
    assert float(facts["temperature"]) == model.temperature
    assert (facts["lw2g_version"], facts["opset"]) == (lw2g.__version__, str(OPSET))
    assert [entry.version for entry in onnx.load_from_string(content).opset_import if not entry.domain] == [
        OPSET
    ]
    images = torch.stack([model.transform(photos / name / "0.png") for name in ("ant", "cat")])
    assert answered(path, images).argmax(1).tolist() == [0, 1]


REFUSED = {
    "several sets": (
        {"baseline": "hide-lora", "policy": "always"},
        {"baseline.head": "lda"},
        "retrieval 'lora-classifier' chooses among the 2 sets of baseline 'hide-lora' for each image",
    ),
    "a set each": (
        {"baseline": "ease"},
        {},
        "baseline 'ease' joins the answers of 2 sets; export it as a folder",
    ),
    "a trained head": (
        {"baseline": "no-prompt"},
        {},
        "the head of baseline 'no-prompt' is trained by gradients; run it with baseline.head=lda",
    ),
    "an expert": (
        {"baseline": "finetune"},
        {"baseline.head": "lda", "routing.expert": "frozen"},
        "a frozen expert answers beside its head; run it with routing.expert=none",
    ),
    "a transform of functions": (
        {"baseline": "finetune"},
        {"baseline.head": "lda"},
        "its test transform is made of functions, which no number tells; export it as a folder",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_exported_is_refused_in_a_line(session_of: Callable[..., Session], kind: str) -> None:
    """Before anything is computed: nothing was learned here, and no forward has run."""
    names, options, says = REFUSED[kind]
    parts = session_of(options, **names).parts
    for index in range(2):
        parts.begin_task(index)
        parts.pool.grow(parts.new_set(None))
    with pytest.raises(ConfigError) as caught:
        require_exportable(TrainedModel(parts, 2))
    assert says in str(caught.value)


def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, learned: Run
) -> None:
    """In one line, before the model is opened, and nothing is written."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, said = export(learned("simple-cil", **{"baseline.head": "lda"}), "--onnx", tmp_path / "m.onnx")
    assert code == 2
    assert said.startswith("error: an ONNX file needs 'onnx', which cannot be imported here")
    assert said.endswith("; pip install 'lw2g[onnx]'\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["out"], ["--with-backbone"], ["--learnable"]])
def test_what_is_of_a_folder_is_refused_beside_onnx(tmp_path: Path, words: list[str]) -> None:
    """A file has no second form, and would hold nothing of what these ask for."""
    code, said = export(tmp_path, *words, "--onnx", tmp_path.parent / "m.onnx")
    assert code == 2
    assert said.endswith(
        "is of a folder, and --onnx writes one file with all its weights; give one of both\n"
    )


def test_an_export_says_where_it_goes(tmp_path: Path) -> None:
    """To a folder, or to a file that does not lie in what is read and can be written."""
    assert export(tmp_path) == (
        2,
        "error: nothing says where the model goes; lw2g export RUN OUT, or lw2g export RUN --onnx FILE\n",
    )
    code, said = export(tmp_path, "--onnx", tmp_path / "m.onnx")
    assert code == 2
    assert "which is read; choose" in said
    file = tmp_path.with_name("a file")
    file.touch()
    code, said = export(tmp_path, "--onnx", file / "m.onnx")
    assert code == 2
    assert said == f"error: nothing can be written into {str(file)!r}; choose another folder\n"


def test_an_interruption_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, learned: Run, pretended: Callable[[float], None]
) -> None:
    """Not even a part of it, when Ctrl-C comes while it is written."""
    pretended(0.0)

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    run = learned("simple-cil", **{"baseline.head": "lda"})
    with monkeypatch.context() as patch:
        patch.setattr("lw2g.disk.sealed.os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lw2g.export_onnx(run, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
    lw2g.export_onnx(run, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"a model"


@pytest.mark.parametrize("difference", [2e-4, float("nan")])
def test_a_file_that_answers_otherwise_is_not_written(
    tmp_path: Path, learned: Run, pretended: Callable[[float], None], difference: float
) -> None:
    """onnxruntime is asked before the file gets its name."""
    pretended(difference)
    with pytest.raises(DataError, match=r"differ by .* from torch's, where 0\.0001 is allowed; "):
        lw2g.export_onnx(learned("simple-cil", **{"baseline.head": "lda"}), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_where_the_file_computes_otherwise_a_note_says_so(
    tmp_path: Path,
    learned: Run,
    pretended: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a run in bf16, and of one that nothing calibrates."""
    pretended(0.0)
    run = learned("simple-cil", **{"run.precision": "bf16-mixed", "run.probabilities": False})
    with caplog.at_level(logging.WARNING, "lw2g.progress"):
        written = lw2g.export_onnx(run, tmp_path / "m.onnx")
    assert not written.calibrated
    notes = [record.getMessage() for record in caplog.records]
    assert any("computes in float32, the model in bf16" in note for note in notes)
    assert any("nothing calibrates this model" in note for note in notes)
