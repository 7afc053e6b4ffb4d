"""Checkpoint files are converted by known rules and loaded strictly."""

from __future__ import annotations

import argparse
import fractions
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import checkpoint_filter_fn

from lw2g.errors import ConfigError, DataError
from lw2g.vit.backbone import Backbone
from lw2g.vit.loading import load_backbone
from lw2g.vit.weights import file_sha256, load_weights, state_sha256


def _prefixed(state, prefix):
    return {prefix + key: tensor for key, tensor in state.items()}


HEAD = {"head.weight": torch.zeros(5, 48), "head.bias": torch.zeros(5)}
MOCO_REST = {
    "module.momentum_encoder.norm.weight": torch.zeros(48),
    "module.predictor.0.weight": torch.zeros(4, 4),
    **_prefixed({"head.0.weight": torch.zeros(4, 4)}, "module.base_encoder."),
}
STYLES = {
    "flat": lambda state: {**state, **HEAD},
    "timm": lambda state: {"state_dict": {**state, **HEAD}, "epoch": 3},
    "deit": lambda state: {"model": state},
    "pre-logits": lambda state: {**state, "pre_logits.fc.weight": torch.zeros(48, 48)},
    "ibot teacher": lambda state: {
        "student": {"module.backbone.masked_embed": torch.zeros(1, 48)},
        "teacher": {**_prefixed(state, "backbone."), "head.mlp.0.weight": torch.zeros(4, 4)},
        "args": argparse.Namespace(arch="vit"),
    },
    "ibot student": lambda state: {
        "state_dict": {
            **_prefixed(state, "module.backbone."),
            "module.backbone.masked_embed": torch.zeros(1, 48),
        }
    },
    "dino full": lambda state: {
        "student": _prefixed(state, "module.backbone."),
        "teacher": {**_prefixed(state, "backbone."), "head.last_layer.weight_g": torch.zeros(4, 1)},
        "dino_loss": {"center": torch.zeros(1, 4)},
        "optimizer": {"state": {}, "param_groups": []},
        "epoch": 100,
        "args": argparse.Namespace(arch="vit_base"),
    },
    "moco-v3": lambda state: {"state_dict": {**_prefixed(state, "module.base_encoder."), **MOCO_REST}},
}


@pytest.mark.parametrize("style", STYLES)
def test_files_of_every_style_fill_a_model(make_vit, tmp_path, style):
    """Every known container and prefix gives the model's own tensors."""
    state = make_vit().state_dict()
    path = tmp_path / "checkpoint.pth"
    torch.save(STYLES[style](state), path)
    fresh = make_vit()
    for parameter in fresh.parameters():
        torch.nn.init.zeros_(parameter)
    load_weights(fresh, path)
    assert state_sha256(fresh.state_dict()) == state_sha256(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s | {"masked.extra": torch.zeros(1)}, "unexpected 'masked.extra'"),
        (lambda s: {k: v for k, v in s.items() if k != "norm.bias"}, "missing 'norm.bias'"),
        (lambda s: s | {"norm.bias": torch.zeros(7)}, "another shape in 'norm.bias'"),
        (lambda s: s | {"pos_embed": torch.zeros(1, 12, 48)}, "another shape in 'pos_embed'"),
        (lambda s: _prefixed(s, "encoder."), r"missing .* and 51 more; unexpected .*'encoder.cls_token'"),
    ],
)
def test_misfits_are_refused(make_vit, tmp_path, change, message):
    """Anything missing, unexpected or of another shape is named; the model is left as it was."""
    model = make_vit()
    before = state_sha256(model.state_dict())
    path = tmp_path / "checkpoint.pt"
    torch.save(change(model.state_dict()), path)
    with pytest.raises(DataError, match=message):
        load_weights(model, path)
    assert state_sha256(model.state_dict()) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 1, "loss": 0.5}, r"holds no state dict but 'epoch', 'loss'"),
        (
            {"norm.bias": torch.zeros(1), "backbone.norm.bias": torch.ones(1)},
            r"'norm.bias' under two prefixes",
        ),
        ({"x": fractions.Fraction(1, 2)}, "holds no state dict but 'x'"),
        (fractions.Fraction(1, 2), "holds 'Fraction'"),
        ([1], "holds 'list'"),
    ],
)
def test_no_model_and_two_models(make_vit, tmp_path, content, message):
    """A file without tensors says what it holds, of which no other object is unpickled; two are ambiguous."""
    path = tmp_path / "checkpoint.pth"
    torch.save(content, path)
    with pytest.raises(DataError, match=message):
        load_weights(make_vit(), path)


def test_position_embeddings_are_resampled_as_by_timm(make_vit, tmp_path):
    """A file for another image size goes through the same resampling as timm's loader."""
    state = make_vit(img_size=64).state_dict()
    path = tmp_path / "large.pth"
    torch.save(state, path)
    model = make_vit()
    load_weights(model, path)
    expected = checkpoint_filter_fn(dict(state), model)["pos_embed"]
    assert model.pos_embed.shape == (1, 17, 48)
    assert torch.equal(model.pos_embed, expected)


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("missing.pth", None, DataError, "does not exist"),
        ("model.onnx", b"x", ConfigError, "unknown weights format '.onnx'"),
        ("broken.safetensors", b"not one", DataError, "cannot be read"),
        ("broken.pth", b"not one", DataError, "cannot be read"),
        ("broken.npz", b"not one", DataError, "cannot be read"),
    ],
)
def test_unreadable_files(make_vit, tmp_path, name, content, error, message):
    """Missing, foreign and broken files give one clear error each."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        load_weights(make_vit(), path)


@pytest.mark.parametrize("name", ["images.npz", "images.safetensors", "images.pth"])
def test_files_of_something_else(make_vit, tmp_path, name):
    """Images or features under the name of a format of weights: no architecture is asked for."""
    path = tmp_path / name
    arrays = {"train_x": np.zeros((2, 3), dtype=np.uint8), "train_y": np.zeros(2, dtype=np.float32)}
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    write = {".npz": lambda: np.savez(path, **arrays), ".pth": lambda: torch.save(tensors, path)}
    write.get(path.suffix, lambda: save_file(tensors, path))()
    with pytest.raises(DataError, match=r"is no weights file: it holds 'train_.', 'train_.'"):
        load_weights(make_vit(), path)


def _google_arrays(state, depth, heads=4):
    """Write a timm state dict in Google's npz layout."""

    def array(key):
        return state[key].numpy()

    arrays = {
        "cls": array("cls_token"),
        "embedding/kernel": array("patch_embed.proj.weight").transpose(2, 3, 1, 0),
        "embedding/bias": array("patch_embed.proj.bias"),
        "Transformer/posembed_input/pos_embedding": array("pos_embed"),
        "Transformer/encoder_norm/scale": array("norm.weight"),
        "Transformer/encoder_norm/bias": array("norm.bias"),
        "pre_logits/bias": np.zeros(3, dtype=np.float32),
    }
    for i in range(depth):
        block, there = f"blocks.{i}.", f"Transformer/encoderblock_{i}/"
        attention = there + "MultiHeadDotProductAttention_1/"
        weights = array(block + "attn.qkv.weight").reshape(3, heads, -1, 48)
        biases = array(block + "attn.qkv.bias").reshape(3, heads, -1)
        for part, name in enumerate(("query", "key", "value")):
            arrays[attention + name + "/kernel"] = weights[part].transpose(2, 0, 1)
            arrays[attention + name + "/bias"] = biases[part]
        arrays[attention + "out/kernel"] = array(block + "attn.proj.weight").T.reshape(heads, -1, 48)
        arrays[attention + "out/bias"] = array(block + "attn.proj.bias")
        for norm, name in (("norm1", "LayerNorm_0"), ("norm2", "LayerNorm_2")):
            arrays[there + name + "/scale"] = array(f"{block}{norm}.weight")
            arrays[there + name + "/bias"] = array(f"{block}{norm}.bias")
        for layer, name in (("fc1", "Dense_0"), ("fc2", "Dense_1")):
            arrays[f"{there}MlpBlock_3/{name}/kernel"] = array(f"{block}mlp.{layer}.weight").T
            arrays[f"{there}MlpBlock_3/{name}/bias"] = array(f"{block}mlp.{layer}.bias")
    return arrays


def test_google_npz(make_vit, tmp_path):
    """Google's npz layout fills every tensor of the model."""
    state = make_vit().state_dict()
    path = tmp_path / "ViT.npz"
    np.savez(path, **_google_arrays(state, depth=4))
    model = make_vit()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    load_weights(model, path)
    loaded = model.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_google_npz_of_another_depth(make_vit, tmp_path):
    """A deeper file is refused instead of being cut off."""
    path = tmp_path / "ViT.npz"
    np.savez(path, **_google_arrays(make_vit().state_dict(), depth=4))
    with pytest.raises(DataError, match="4 blocks and the model 2"):
        load_weights(make_vit(depth=2), path)


def test_google_npz_with_a_hole(make_vit, tmp_path):
    """A missing array is an error of the file, not a KeyError."""
    path = tmp_path / "ViT.npz"
    arrays = _google_arrays(make_vit().state_dict(), depth=4)
    del arrays["cls"]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="cls"):
        load_weights(make_vit(), path)


def test_state_hash_sees_content_not_order():
    """The hash changes with names, dtypes, shapes and values, and not with the order of the entries."""
    a, b = torch.arange(6.0), torch.tensor(2.0)
    reference = state_sha256({"a": a, "b": b})
    assert state_sha256({"b": b, "a": a.clone()}) == reference
    changed = [
        {"c": a, "b": b},
        {"a": a.bfloat16(), "b": b},
        {"a": a.reshape(2, 3), "b": b},
        {"a": a + 1, "b": b},
    ]
    assert len({reference, *map(state_sha256, changed)}) == 5


def test_file_hash(tmp_path):
    """The file hash is the plain SHA-256 of its bytes."""
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("values", "what", "message"),
    [
        (
            [123.675, 116.28, 103.53],
            "mean",
            r"not of values from 0 to 1.*divide mean and std by 255: mean \[0.485, 0.456, 0.406\]",
        ),
        ([58.395, 57.12, 57.375], "std", r"not of values from 0 to 1.*255: std \[0.229, 0.224, 0.225\]"),
        ([0.5, 0.5, 1.5], "mean", "not of values from 0 to 1"),
        ([-0.5, 0.5, 0.5], "mean", "give three numbers from 0 to 1"),
        ([0.5, 0.5, 0.0], "std", "give three positive numbers"),
        ([0.5, 0.5, -1.0], "std", "give three positive numbers"),
        ([0.5, float("nan"), 0.5], "mean", "give three numbers from 0 to 1"),
        ([0.5, 0.5, float("inf")], "std", "give three positive numbers"),
        ([0.5, 0.5], "mean", "not one number per channel"),
        ([0.5] * 4, "std", "not one number per channel"),
    ],
)
def test_numbers_that_normalise_no_image_are_refused(make_vit, tmp_path, values, what, message):
    """Numbers of another convention are refused with the remedy, given beside weights or in their folder."""
    path = tmp_path / "weights.pth"
    torch.save({}, path)
    given = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], what: values}
    with pytest.raises(ConfigError, match=message):
        Backbone.wrap(make_vit(), name="tiny", **given)
    # before weights are opened: there are none in the file
    with pytest.raises(ConfigError, match=message):
        load_backbone("vit_tiny_patch16_224", weights=path, **given)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_tiny_patch16_224", **given}))
    with pytest.raises(ConfigError, match=message):
        load_backbone("vit_tiny_patch16_224", weights=tmp_path)


def test_averaged_weights_of_torch_fill_a_model(make_vit, tmp_path):
    """What torchvision's training writes as its average has a count beside the tensors of the model."""
    averaged = torch.optim.swa_utils.AveragedModel(make_vit())
    path = tmp_path / "averaged.pth"
    torch.save({"model": make_vit(depth=2).state_dict(), "model_ema": averaged.state_dict()}, path)
    model = make_vit()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    load_weights(model, path)
    assert state_sha256(model.state_dict()) == state_sha256(make_vit().state_dict())
