"""Files in their authors' layouts load through timm's filters, and nothing is dropped in silence."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from lw2g.errors import DataError
from lw2g.vit.weights import load_weights

SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 4, "img_size": 32, "num_classes": 0}


def _model(name, **changes):
    if not timm.is_model(name):
        pytest.skip(f"the installed timm has no {name}")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = timm.create_model(name, **SMALL | changes)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def _dinov3_authors(state):
    """Rename timm's tensors as DINOv3's authors do: storage tokens, scales in modules, one bias of three."""
    out = {}
    for name, value in state.items():
        name = name.replace("reg_token", "storage_tokens").replace("gamma_1", "ls1.gamma")
        name = name.replace("gamma_2", "ls2.gamma")
        if name.endswith("q_bias"):
            values = state[name.replace("q_bias", "v_bias")]
            out[name.replace("q_bias", "qkv.bias")] = torch.cat([value, torch.zeros_like(value), values])
        elif not name.endswith("v_bias"):
            out[name] = value
    return out


LAYOUTS = {
    "vit_small_patch16_dinov3_qkvb": _dinov3_authors,
    "eva02_base_patch16_clip_224": lambda state: {f"visual.trunk.{name}": x for name, x in state.items()},
    "vit_base_patch16_siglip_224": lambda state: {f"visual.trunk.{name}": x for name, x in state.items()},
    "deit3_small_patch16_224": lambda state: {
        name.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): x for name, x in state.items()
    },
    "deit_tiny_distilled_patch16_224": lambda state: {
        **state,
        "head.weight": torch.ones(5, 48),
        "head_dist.weight": torch.ones(5, 48),
    },
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_renamed_file_gives_equal_features(tmp_path, name):
    """What was renamed as its authors name it loads to the same tensors; one key more or less is refused."""
    first = _model(name)
    renamed = {key: value.contiguous() for key, value in LAYOUTS[name](first.state_dict()).items()}
    file = tmp_path / "weights.safetensors"
    save_file(renamed, file)
    second = timm.create_model(name, **SMALL).eval()
    load_weights(second, file)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert torch.equal(second(images), first(images))
    short = dict(renamed)
    short.pop(next(key for key in short if key.endswith("blocks.1.mlp.fc2.weight")))
    save_file(short, file)
    with pytest.raises(DataError, match="does not fit the model: missing"):
        load_weights(second, file)


def test_biases_are_not_dropped(tmp_path):
    """DINOv3's biases do not load under the name without them, unless they are zero."""
    full = _dinov3_authors(_model("vit_small_patch16_dinov3_qkvb").state_dict())
    plain = timm.create_model("vit_small_patch16_dinov3", **SMALL)
    file = tmp_path / "weights.safetensors"
    save_file(full, file)
    with pytest.raises(DataError, match="holds biases of queries and values, and the model has none; name"):
        load_weights(plain, file)
    zero = {name: torch.zeros_like(x) if name.endswith("qkv.bias") else x for name, x in full.items()}
    save_file(zero, file)
    load_weights(plain, file)
    assert torch.equal(plain.state_dict()["blocks.0.attn.qkv.weight"], full["blocks.0.attn.qkv.weight"])


def test_pooling_by_attention_is_left_out_under_the_gap_name(tmp_path):
    """A SigLIP file loads into the model with mean pooling."""
    file = tmp_path / "weights.safetensors"
    save_file(_model("vit_base_patch16_siglip_224").state_dict(), file)
    load_weights(timm.create_model("vit_base_patch16_siglip_gap_224", **SMALL), file)


def test_an_i_jepa_checkpoint_loads_its_encoder(tmp_path):
    """Of I-JEPA's training checkpoint the encoder is loaded, whatever stands beside it."""
    first = _model("vit_huge_patch14_gap_224", img_size=28)
    encoder = {f"module.{key}": value for key, value in first.state_dict().items()}
    file = tmp_path / "weights.pth.tar"
    torch.save(
        {"encoder": encoder, "predictor": {"module.mask_token": torch.zeros(1, 1, 48)}, "epoch": 3}, file
    )
    second = _model("vit_huge_patch14_gap_224", img_size=28)
    nn.init.zeros_(second.norm.weight)
    load_weights(second, file)
    images = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    assert torch.equal(second(images), first(images))
