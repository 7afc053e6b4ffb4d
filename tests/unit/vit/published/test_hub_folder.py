"""Folders as the hub has them: their model, its images, and how they are normalised."""

from __future__ import annotations

import json
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError
from lw2g.registry.catalogue import load_catalogue
from lw2g.vit.hub_folder import Statistics, architecture_of, statistics_of
from lw2g.vit.loading import load_backbone

MEAN, STD = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
VIT: dict[str, Any] = {
    "model_type": "vit",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "hidden_act": "gelu",
    "image_size": 384,
    "patch_size": 32,
}
TIMM: dict[str, Any] = {
    "architecture": "vit_tiny_patch16_224",
    "model_args": {"img_size": [32, 32], "num_classes": 10, "in_chans": 3, "global_pool": "token"},
    "pretrained_cfg": {"mean": MEAN, "std": STD, "interpolation": "bilinear", "input_size": [3, 32, 32]},
}


def _written(folder, config=None, preprocessor=None, mark=b""):
    for name, content in (("config.json", config), ("preprocessor_config.json", preprocessor)):
        if content is not None:
            (folder / name).write_bytes(mark + json.dumps(content).encode())
    return folder


@pytest.mark.parametrize(
    ("config", "name", "side"),
    [
        (TIMM, "vit_tiny_patch16_224", 32),
        ({"architecture": "resnet18", "mean": MEAN, "input_size": [3, 288, 288]}, "resnet18", 288),
        ({"architecture": "resnet18", "model_args": {"img_size": 64}}, "resnet18", 64),
        ({"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 64, 96]}}, "resnet18", None),
        (VIT, "vit_small_patch32_224", 384),
        (
            VIT | {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "patch_size": 14},
            "vit_huge_patch14_224",
            384,
        ),
        (VIT | {"model_type": "deit", "patch_size": 16}, "deit_small_distilled_patch16_224", 384),
        (VIT | {"model_type": "dinov2", "patch_size": 14}, "vit_small_patch14_dinov2", 384),
        (
            VIT | {"model_type": "dinov2_with_registers", "patch_size": 14},
            "vit_small_patch14_reg4_dinov2",
            384,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_folder_names_its_model(tmp_path, config, name, side):
    """timm's own configuration names the model, and those of transformers' ViTs tell it; timm knows it."""
    assert architecture_of(_written(tmp_path, config, mark=b"\xef\xbb\xbf")) == (name, side)
    assert timm.is_model(name)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "has no config.json, which tells the architecture; name the architecture with backbone"),
        (VIT | {"model_type": "swin"}, "does not tell which model of timm it is .model_type 'swin'"),
        (VIT | {"hidden_size": [1]}, r"does not tell which model of timm it is .*hidden_size \[1\]"),
        (VIT | {"hidden_act": "quick_gelu"}, "does not tell which model of timm it is"),
        (TIMM | {"model_args": {"depth": 6}}, "builds 'vit_tiny_patch16_224' with depth=6"),
        (TIMM | {"model_args": {"in_chans": 1}}, "with in_chans=1"),
        ({"architecture": 3}, "is no configuration of timm"),
        ([], r"holds no table but \[\]"),
    ],
)
def test_a_folder_that_does_not_tell_its_model_is_refused(tmp_path, config, message):
    """What is not told is never guessed, and the message says how to name it."""
    with pytest.raises((ConfigError, DataError), match=message):
        architecture_of(_written(tmp_path, config))


def test_a_pointer_in_place_of_the_configuration_is_named(tmp_path):
    """A clone without Git LFS has pointers alone."""
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match="Git LFS"):
        architecture_of(tmp_path)


@pytest.mark.parametrize(
    ("preprocessor", "expected"),
    [
        (
            {"image_mean": MEAN, "image_std": STD, "resample": 3},
            Statistics(mean=MEAN, std=STD, interpolation="bicubic"),
        ),
        (
            {"image_mean": MEAN, "image_std": STD, "resample": 0},
            Statistics(mean=MEAN, std=STD, interpolation="nearest"),
        ),
        (
            {"image_mean": MEAN, "image_std": STD, "do_normalize": False},
            Statistics(mean=[0.0] * 3, std=[1.0] * 3),
        ),
        (
            {"image_mean": [127.5] * 3, "image_std": [51] * 3, "do_rescale": False},
            Statistics(mean=[0.5] * 3, std=[0.2] * 3),
        ),
        ({"image_mean": 0.5, "image_std": 0.2}, Statistics(mean=[0.5] * 3, std=[0.2] * 3)),
        ({"size": 224, "resample": [2]}, Statistics()),
    ],
)
def test_the_preprocessor_says_how_images_are_normalised(tmp_path, preprocessor, expected):
    """Mean and deviation are of values from 0 to 1, whatever the preprocessor multiplies pixels by."""
    assert statistics_of(_written(tmp_path, TIMM, preprocessor)) == expected


@pytest.mark.parametrize("values", ["0.5", [0.5, "x", 0.5], {"r": 1}, [None] * 3, [True] * 3])
def test_statistics_that_are_no_numbers_are_refused(tmp_path, values):
    """The file and what it holds are named."""
    with pytest.raises(DataError, match=r"preprocessor_config.json.*image_mean is .* and no list of numbers"):
        statistics_of(_written(tmp_path, None, {"image_mean": values, "image_std": STD}))


@pytest.fixture
def folder(tmp_path):
    """A folder of timm's with a tiny ViT for images of 32 pixels."""
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=10)
    state = {name: tensor + 0.01 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    return _written(tmp_path, TIMM)


def test_a_folder_is_a_backbone(folder):
    """`local-dir:FOLDER` is the model, the weights, the image size and the statistics of the folder."""
    chosen = resolve(load_catalogue(), backbone=f"local-dir:{folder}").config.backbone
    assert (chosen.name, chosen.config.model, chosen.weights) == ("timm", "vit_tiny_patch16_224", folder)
    assert (chosen.image_size, chosen.config.mean, chosen.config.std) == (32, tuple(MEAN), tuple(STD))


def test_a_file_may_say_the_folder(folder):
    """A name in a file means the same as one that is typed, and what is typed beside it counts."""
    written = {"backbone": {"name": f"local-dir:{folder}", "image_size": 64, "mean": [0.5, 0.5, 0.5]}}
    chosen = resolve(load_catalogue(), file=written).config.backbone
    assert (chosen.config.model, chosen.weights, chosen.image_size) == ("vit_tiny_patch16_224", folder, 64)
    assert chosen.config.mean == (0.5, 0.5, 0.5)


def test_a_missing_folder_is_told(tmp_path):
    """A folder that is not there is no name of a backbone either."""
    with pytest.raises(ConfigError, match="local-dir: no folder 'nowhere'"):
        resolve(load_catalogue(), backbone="local-dir:nowhere")


def test_a_folder_of_weights_brings_its_statistics(folder, caplog):
    """A bare architecture needs no statistics beside a folder; those given count, and a line says so."""
    backbone = load_backbone("vit_tiny_patch16_224", weights=folder, image_size=32)
    assert (backbone.fingerprint.mean, backbone.fingerprint.std) == (tuple(MEAN), tuple(STD))
    assert backbone.fingerprint.interpolation == "bilinear"
    assert caplog.messages == []
    half = [0.5, 0.5, 0.5]
    other = load_backbone("vit_tiny_patch16_224", weights=folder, image_size=32, mean=half, std=STD)
    assert (other.fingerprint.mean, other.fingerprint.std) == (tuple(half), tuple(STD))
    assert [
        line for line in caplog.messages if line.startswith(f"note: mean is {half} as given")
    ] == caplog.messages
    assert len(caplog.messages) == 1
