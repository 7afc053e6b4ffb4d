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


def _replaced(state, renames):
    """Return the state with parts of its names replaced, in this order."""
    out = {}
    for name, value in state.items():
        for old, new in renames:
            name = name.replace(old, new)
        out[name] = value
    return out


CLIP_NAMES = (
    ("patch_embed.proj.", "conv1."),
    ("pos_embed", "positional_embedding"),
    ("cls_token", "class_embedding"),
    ("norm_pre.", "ln_pre."),
    (".norm1.", ".ln_1."),
    (".norm2.", ".ln_2."),
    ("attn.qkv.", "attn.in_proj_"),
    ("attn.proj.", "attn.out_proj."),
    ("mlp.fc1.", "mlp.c_fc."),
    ("mlp.fc2.", "mlp.c_proj."),
    ("blocks.", "transformer.resblocks."),
)


def _openai(state):
    out = {f"visual.{name}": x for name, x in _replaced(state, CLIP_NAMES).items()}
    for kind in ("weight", "bias"):
        out[f"visual.ln_post.{kind}"] = out.pop(f"visual.norm.{kind}")
    out["visual.class_embedding"] = state["cls_token"][0, 0]
    out["visual.positional_embedding"] = state["pos_embed"][0]
    text = {"token_embedding.weight": torch.ones(7, 32), "logit_scale": torch.tensor(2.0)}
    return out | text | {"visual.proj": torch.ones(48, 16)}


def _pe(state):
    pool = {name: x for name, x in state.items() if name.startswith("attn_pool.")}
    rest = {name: x for name, x in state.items() if name not in pool}
    out = _openai(rest)
    for kind in ("weight", "bias"):
        parts = [pool.pop(f"attn_pool.q.{kind}"), pool.pop(f"attn_pool.kv.{kind}")]
        out[f"visual.attn_pool.attn.in_proj_{kind}"] = torch.cat(parts)
    renames = (
        ("attn_pool.proj.", "attn_pool.attn.out_proj."),
        ("attn_pool.norm.", "attn_pool.layernorm."),
        ("latent", "probe"),
        ("mlp.fc1.", "mlp.c_fc."),
        ("mlp.fc2.", "mlp.c_proj."),
    )
    return out | {f"visual.{name}": x for name, x in _replaced(pool, renames).items()}


def _dinov2_authors(state):
    """Rename as DINOv2's authors do: a mask token, packed gates, a position of the class token."""
    out = {"mask_token": torch.ones(1, 48), **state}
    if "reg_token" in state:
        out["register_tokens"] = out.pop("reg_token")
        # halves add up to the same bits
        half = state["cls_token"] / 2
        out["cls_token"] = half
        out["pos_embed"] = torch.cat([half, state["pos_embed"]], dim=1)
    if len(state["blocks.0.mlp.fc2.weight"].T) != 192:
        out = _replaced(out, (("mlp.fc1.", "mlp.w12."), ("mlp.fc2.", "mlp.w3.")))
    return out


def _beit_authors(state):
    index = {"blocks.0.attn.relative_position_index": torch.zeros(5, 5, dtype=torch.long)}
    return {**state, **index, "head.weight": torch.ones(5, 48)}


def _aimv2_authors(state):
    names = (
        ("patch_embed.", "preprocessor.patchifier."),
        ("pos_embed", "preprocessor.pos_embed"),
        ("norm1.", "norm_1."),
        ("norm2.", "norm_2."),
        ("mlp.fc1_g.", "mlp.fc1."),
        ("mlp.fc1_x.", "mlp.fc3."),
        ("blocks.", "trunk.blocks."),
    )
    out = _replaced(state, names)
    out["trunk.post_trunk_norm.weight"] = out.pop("norm.weight")
    return out


def _eva02_authors(state):
    names = (
        ("mlp.fc1_g.", "mlp.w1."),
        ("mlp.fc1_x.", "mlp.w2."),
        ("mlp.fc2.", "mlp.w3."),
        ("mlp.norm.", "mlp.ffn_ln."),
        ("q_proj.bias", "q_bias"),
        ("v_proj.bias", "v_bias"),
    )
    return _replaced(state, names) | {"rope.freqs_cos": torch.ones(4, 12)}


LAYOUTS = {
    "vit_base_patch16_clip_quickgelu_224": _openai,
    "vit_pe_core_tiny_patch16_384": _pe,
    "vit_small_patch14_dinov2": _dinov2_authors,
    "vit_small_patch14_reg4_dinov2": _dinov2_authors,
    "vit_giant_patch14_dinov2": _dinov2_authors,
    "beit_base_patch16_224": _beit_authors,
    "aimv2_large_patch14_224": _aimv2_authors,
    "eva02_base_patch14_224": _eva02_authors,
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
    size = 28 if "patch14" in name else 32
    first = _model(name, img_size=size)
    renamed = {key: value.contiguous() for key, value in LAYOUTS[name](first.state_dict()).items()}
    file = tmp_path / "weights.safetensors"
    save_file(renamed, file)
    second = timm.create_model(name, **SMALL | {"img_size": size}).eval()
    load_weights(second, file)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    assert torch.equal(second(images), first(images))
    short = dict(renamed)
    last = ("mlp.fc2.weight", "mlp.w3.weight", "mlp.c_proj.weight")
    short.pop(next(key for key in short if "blocks.1." in key and key.endswith(last)))
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
