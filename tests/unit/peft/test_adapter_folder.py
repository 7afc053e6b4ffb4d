"""An adapter folder holds what a method adds to the backbone, and peft gives the same features with it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor

from installed import load_instead
from lw2g.cli.main import main
from lw2g.errors import ConfigError
from lw2g.interfaces.batch import Batch
from lw2g.lifecycle.runner import start
from lw2g.model.saved import open_model
from lw2g.model.trained import TrainedModel
from lw2g_peft.adapter_folder import written

LOW_RANK = {"inflora": None, "c-lora": None, "sd-lora": None, "hide-lora": 1}
"""Methods of low-rank updates, and the set that is written: None where the sum of all is."""


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory, catalogue: Any, quick: Any) -> Callable[[str], Path]:
    """Return the directory of a run of a method on the tiny components, which is made once."""
    made: dict[str, Path] = {}

    def run(baseline: str) -> Path:
        if baseline not in made:
            directory = tmp_path_factory.mktemp("runs") / baseline
            # a rate at which two epochs change features by more than rounding
            resolved = quick({"baseline.lr": 0.05}, baseline=baseline, policy="always")
            start(resolved, catalogue, directory)
            made[baseline] = directory
        return made[baseline]

    return run


@pytest.fixture
def opened(run_of: Callable[[str], Path], catalogue: Any) -> Callable[[str], TrainedModel]:
    """Open the model of such a run."""
    return lambda baseline: open_model(run_of(baseline), catalogue, device="cpu")


def images_of(model: TrainedModel) -> Tensor:
    side = model.backbone.image_size
    return torch.randn(4, 3, side, side, generator=torch.Generator().manual_seed(1))


def features_of(model: TrainedModel, images: Tensor, set_id: int | None) -> Tensor:
    """Return what the method itself computes."""
    batch = Batch(
        labels=torch.zeros(4, dtype=torch.int64),
        samples=torch.arange(4),
        images=lambda: images,
        query=lambda: images,
    )
    pool = model.parts.pool
    routing = pool.route(None) if set_id is None else pool.force(set_id)
    with torch.no_grad():
        return model.baseline.features(batch, routing)


@pytest.mark.slow
@pytest.mark.parametrize(("baseline", "set_id"), LOW_RANK.items())
def test_peft_gives_the_same_features(baseline, set_id, run_of, opened, tmp_path):
    """The adapter on the plain timm model computes the method's features, to 1e-6."""
    peft = pytest.importorskip("peft", reason="needs the extra peft")
    model = opened(baseline)
    plain = copy.deepcopy(model.backbone.model)
    images = images_of(model)
    expected = features_of(model, images, set_id)
    written(run_of(baseline), tmp_path / "adapter", set_id, partial(opened, baseline))
    adapted = peft.PeftModel.from_pretrained(plain, str(tmp_path / "adapter")).eval()
    with torch.no_grad():
        found = adapted(images)
        with adapted.disable_adapter():
            frozen = adapted(images)
    assert float((found - expected).norm() / expected.norm()) < 1e-6
    assert float((frozen - expected).norm() / expected.norm()) > 1e-3


@pytest.mark.parametrize(
    ("baseline", "set_id"), [("inflora", None), pytest.param("hide-lora", 1, marks=pytest.mark.slow)]
)
def test_the_folder_holds_the_whole_update(baseline, set_id, run_of, opened, tmp_path):
    """Products of its factors, added to the weights that it names, give the method's features."""
    model = opened(baseline)
    images = images_of(model)
    expected = features_of(model, images, set_id)
    adapter = written(run_of(baseline), tmp_path / "adapter", set_id, partial(opened, baseline))
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    factors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert config["r"] == config["lora_alpha"] == adapter.rank
    assert len(factors) == 2 * len(config["target_modules"]) == 2 * adapter.layers
    for name in config["target_modules"]:
        down = factors[f"base_model.model.{name}.lora_A.weight"]
        up = factors[f"base_model.model.{name}.lora_B.weight"]
        assert len(down) == adapter.rank
        model.backbone.model.get_submodule(name).weight.data += up @ down
    torch.testing.assert_close(model.backbone.features(images), expected, rtol=1e-5, atol=1e-5)


def test_a_run_in_bf16_is_compared_in_float32(run_of, opened, tmp_path):
    """Processors with bf16 take it by themselves; merged into weights of bf16, an update would be rounded."""
    of_float32 = written(run_of("inflora"), tmp_path / "float32", None, partial(opened, "inflora"))

    def load() -> TrainedModel:
        model = opened("inflora")
        model.backbone.to_bf16()
        return model

    assert written(run_of("inflora"), tmp_path / "bf16", None, load) == of_float32
    factors = [load_file(tmp_path / name / "adapter_model.safetensors") for name in ("float32", "bf16")]
    torch.testing.assert_close(factors[0], factors[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("baseline", "set_id", "said"),
    [
        ("hide-lora", None, r"chooses one of \d sets for each image; name one: set_id 0"),
        ("hide-lora", 9, "set_id: there is no set 9; the sets are 0, 1"),
        ("inflora", 0, "set_id: baseline 'inflora' adds up all sets; leave it out"),
        (
            "slca-plus-plus",
            None,
            r"more than low-rank updates \(.*ParameterInjection\), and.*; take the whole",
        ),
        ("ewc", None, "an update is a dense increment, and has no low-rank factors"),
        ("no-prompt", None, "with the frozen backbone alone; there is no adapter to write"),
        ("dual-prompt", 0, r"changes more than low-rank updates.*\(.*PrefixInjection.*\)"),
    ],
)
def test_what_is_no_adapter_is_refused(baseline, set_id, said, run_of, opened, tmp_path):
    """One line says why, and nothing is written."""
    with pytest.raises(ConfigError, match=said):
        written(run_of(baseline), tmp_path / "adapter", set_id, partial(opened, baseline))
    assert list(tmp_path.iterdir()) == []


def test_a_norm_of_its_own_is_found(run_of, opened, tmp_path):
    """A method that changes what no injection tells is refused: its adapter would give other features."""

    def load() -> TrainedModel:
        model = opened("inflora")
        baseline = model.baseline
        norm = torch.nn.LayerNorm(model.backbone.dim)
        torch.nn.init.constant_(norm.weight, 2.0)
        baseline.features = lambda batch, routing: model.backbone.features(
            batch.images, (baseline.injection(routing),), norm=norm
        )
        return model

    with pytest.raises(ConfigError, match="rest on more than low-rank updates"):
        written(run_of("inflora"), tmp_path / "adapter", None, load)


def test_the_command_says_what_the_adapter_is_for(run_of, catalogue, tmp_path, monkeypatch):
    """Layers, rank and the model of timm; a folder that is there is left alone."""
    load_instead(monkeypatch, lambda **_: catalogue)
    out = tmp_path / "adapter"
    done = CliRunner().invoke(main, ["peft", str(run_of("hide-lora")), str(out), "--set-id", "0"])
    assert done.exit_code == 0, done.output
    assert "layers at rank" in done.output
    again = CliRunner().invoke(main, ["peft", str(run_of("hide-lora")), str(out), "--set-id", "0"])
    assert again.exit_code == 2
    assert "is there already; choose another folder" in again.output
