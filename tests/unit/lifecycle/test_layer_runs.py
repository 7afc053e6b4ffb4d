"""Runs on features of several layers: heads are fed them, training is as before; costs are told first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lw2g.api.recorded import head_of
from lw2g.blocks.ridge import Ridge
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.ground import free_memory as memory
from lw2g.lifecycle.continuing import proceed
from lw2g.lifecycle.forking import fork
from lw2g.lifecycle.runner import start
from lw2g.maths.choosing import named_candidate
from lw2g.model import layer_sizes
from lw2g.model.exported import read_export
from lw2g.model.exporting import export_run
from lw2g.model.saved import open_model
from lw2g.pixels.feature_files import open_features
from lw2g.pixels.image_vectors import require_made_by
from lw2g.registry.catalogue import Catalogue
from lw2g_datasets.writing_features import write_features
from runs import shortest, tensors

ALL = {"backbone.layers": "all", "backbone.spread": 0.1}
WIDTH = 7 * 2 * 32
"""Of the tiny backbone: six blocks and the final norm, class token and mean of patches."""


def learned(catalogue: Catalogue, folder: Path, baseline: str, **options: Any) -> dict[str, torch.Tensor]:
    """Run to the end, and return what was learned."""
    start(shortest(catalogue, baseline, options), catalogue, folder)
    return tensors(folder)


@pytest.mark.parametrize(
    ("baseline", "options", "factor"),
    [
        ("ranpac", {"baseline.adapt": "adapter", "baseline.features": 40}, 0),
        ("aper-adapter", {}, 2),
        ("slca-plus-plus", {"baseline.head": "lda", "baseline.head_carry": "gated"}, 1),
        ("finetune", {"baseline.head": "lda", "routing.expert": "frozen"}, 1),
    ],
)
def test_heads_are_fed_all_layers_and_sets_are_trained_as_before(
    catalogue: Catalogue, tmp_path: Path, baseline: str, options: dict[str, Any], factor: int
) -> None:
    """A method's sets have the bits of its run on one layer; its head has sums of all of them."""
    one = learned(catalogue, tmp_path / "one", baseline, **options, **{"backbone.spread": 0.1})
    several = learned(catalogue, tmp_path / "all", baseline, **options, **ALL)
    sets = [name for name in one if name.startswith("pool/")]
    assert sets
    assert all(torch.equal(one[name], several[name]) for name in sets)
    head = {name: value for name, value in several.items() if "closed_form" in name}
    widths = {value.shape[-1] for value in head.values() if value.ndim > 1}
    assert widths == ({40} if not factor else {factor * WIDTH})
    known = json.loads((tmp_path / "all" / "record.json").read_text())["backbone"]
    assert (known["layers"], known["pool"], known["width"]) == (7, "both", WIDTH)


def test_an_export_answers_as_its_run(catalogue: Catalogue, tmp_path: Path) -> None:
    """The layers are part of the backbone that an export builds again."""
    learned(catalogue, tmp_path / "run", "simple-cil", **ALL, **{"baseline.head": "lda"})
    export_run(tmp_path / "run", catalogue, tmp_path / "model")
    run, model = (open_model(tmp_path / name, catalogue) for name in ("run", "model"))
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    assert model.backbone.width == WIDTH
    assert torch.equal(model(images), run(images))


def test_stored_features_say_their_layers(catalogue: Catalogue, tmp_path: Path) -> None:
    """A run on them is the run on the images; a model of other layers refuses them in one line."""
    config = shortest(catalogue, "simple-cil", {**ALL, "baseline.head": "lda"}).config
    file = tmp_path / "all.safetensors"
    write_features(config, catalogue, file)
    assert open_features(file).layers == 7
    on_images = learned(catalogue, tmp_path / "images", "simple-cil", **ALL, **{"baseline.head": "lda"})
    stored = {"benchmark.file": str(file), "benchmark.increment": 7, "baseline.head": "lda"}
    on_rows = resolve(catalogue, overrides=stored, baseline="simple-cil", benchmark="features")
    start(on_rows, catalogue, tmp_path / "rows")
    name = next(name for name in on_images if name.endswith("closed_form.mean"))
    found = tensors(tmp_path / "rows")[name]
    torch.testing.assert_close(found[: len(on_images[name])], on_images[name][: len(found)])

    learned(catalogue, tmp_path / "two", "simple-cil", **{**ALL, "backbone.layers": 2})
    model = open_model(tmp_path / "two", catalogue)
    with pytest.raises(
        DataError,
        match=r"layers 7, pooling both\), and the model knows .* layers 2, pooling both\); store features of",
    ):
        require_made_by(open_features(file), model.backbone.fingerprint)
    wrong = resolve(
        catalogue,
        overrides={**stored, "backbone.layers": 2},
        baseline="simple-cil",
        benchmark="features",
    )
    with pytest.raises(ConfigError, match=r"backbone.layers: 2 is not what the stored features are of, 7"):
        start(wrong, catalogue, tmp_path / "wrong")


@pytest.mark.parametrize(
    ("baseline", "options", "message"),
    [
        ("simple-cil", {"backbone.layers": 8}, "8 is not within 1 to 7.*; lower it, or say all"),
        (
            "finetune",
            {},
            "the trained head of baseline 'finetune' reads the last layer alone.*; set backbone.layers=1",
        ),
        ("l2p", {}, "a key of a prompt is a token.*; set backbone.layers=1"),
        ("coda-prompt", {}, "a key of a prefix is a token.*; set backbone.layers=1"),
        ("cprompt", {}, "reads class tokens before the final norm.*; set backbone.layers=1"),
    ],
)
def test_what_cannot_read_several_layers_is_one_line(
    catalogue: Catalogue, tmp_path: Path, baseline: str, options: dict[str, Any], message: str
) -> None:
    """Nothing is written, and no option is without effect."""
    with pytest.raises(Lw2gError, match=message):
        start(shortest(catalogue, baseline, {**ALL, **options}), catalogue, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sums_that_cannot_fit_are_refused_before_anything_runs(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums and their copies while solved count; a head without a square of the width fits."""
    monkeypatch.setattr(memory, "usable_memory", lambda: 3 * 8 * WIDTH**2)
    options = {**ALL, "baseline.head": "lda", "run.evaluation_batch": 1}
    with pytest.raises(
        ConfigError, match="what baseline 'simple-cil' keeps of features of 448 numbers cannot fit"
    ):
        start(shortest(catalogue, "simple-cil", options), catalogue, tmp_path / "lda")
    assert not (tmp_path / "lda").exists()
    start(
        shortest(catalogue, "simple-cil", {**options, "baseline.head": "cosine"}), catalogue, tmp_path / "ok"
    )


def test_width_and_who_does_not_read_it_are_told_before_the_first_task(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note where a trained head does not read what queries are; figures are one where memory is short.

    Of little memory nothing is said.
    """
    monkeypatch.setattr(layer_sizes, "_seconds", lambda side: 1.0)
    start(
        shortest(catalogue, "s-prompt-plus-plus", {**ALL, "baseline.head": "linear"}),
        catalogue,
        tmp_path / "run",
    )
    told = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    begun = next(json.loads(line) for line in told if "notes" in line)
    figures, (unread,) = begun["details"][-1], begun["notes"]
    assert "features of 7 layers, class tokens and means of patches: 448 numbers an image" in figures
    assert "MiB" not in figures
    monkeypatch.setattr(layer_sizes, "_LITTLE", 0)
    assert "the trained head of baseline 's-prompt-plus-plus' reads the last layer alone" in unread
    short = []
    for there in (2**40, 5 * 8 * WIDTH**2):
        monkeypatch.setattr(memory, "usable_memory", lambda there=there: there)
        options = {**ALL, "baseline.head": "lda", "run.evaluation_batch": 1}
        start(shortest(catalogue, "simple-cil", options), catalogue, tmp_path / str(there))
        told = (tmp_path / str(there) / "events.jsonl").read_text().splitlines()
        begun = next(json.loads(line) for line in told if "notes" in line)
        short.append(["MiB" in " ".join(begun[where]) for where in ("notes", "details")])
    assert short == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("images", "numbers", "side"),
    [(100, 100 * 4608, 100), (4096, 4096 * 4608, 4096), (4097, 4608**2, 4608), (None, 4608**2, 4608)],
)
def test_what_sums_take_is_bounded_by_the_images(images: int | None, numbers: int, side: int) -> None:
    """Few images stand there as rows, whose products are solved; more are in sums of the width."""
    head = Ridge(4608, 1, 0, 0, choice="gcv")
    own = sum(buffer.nbytes for buffer in head.buffers())
    assert layer_sizes._sums([head], images) == (own + 8 * numbers, side)


def test_a_chosen_head_is_the_same_after_a_stop_and_in_a_fork(catalogue: Catalogue, tmp_path: Path) -> None:
    """It reads as many layers as fit; sums, counts and choice have the same bits, and the record has them."""
    options = {"baseline.head": "auto", "backbone.spread": 0.1, "run.probabilities": True}
    resolved = shortest(catalogue, "simple-cil", options)
    record = start(resolved, catalogue, tmp_path / "whole")
    start(resolved, catalogue, tmp_path / "stopped", tasks=1)
    proceed(tmp_path / "stopped", catalogue)
    fork(tmp_path / "whole", 0, resolved, catalogue, tmp_path / "fork")
    whole = tensors(tmp_path / "whole")
    for other in ("stopped", "fork"):
        found = tensors(tmp_path / other)
        assert found.keys() == whole.keys()
        assert all(torch.equal(found[name], whole[name]) for name in whole)
    choice = record["findings"]["choice"]
    assert record["backbone"]["layers"] == 7
    assert [(entry["head"], entry["layers"]) for entry in choice["tried"]] == [
        ("lda", 1),
        ("ridge", 7),
        ("lda", 7),
    ]
    assert choice["images"] > 0
    export_run(tmp_path / "whole", catalogue, tmp_path / "model")
    kept = read_export(tmp_path / "model").manifest
    assert kept.choice == {"head": choice["head"], "layers": choice["layers"]}
    assert head_of(kept) == f"auto: {named_candidate(choice)}"
    run, model = (open_model(tmp_path / name, catalogue) for name in ("whole", "model"))
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    assert torch.equal(model(images), run(images))
