"""Files with the names of transformers load into timm's models, and what is not clear is refused."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from lw2g.errors import DataError
from lw2g.vit.weights import load_weights

SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 0}


def _model(name, size):
    if not timm.is_model(name):
        pytest.skip(f"the installed timm has no {name}")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = timm.create_model(name, img_size=size, **SMALL)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def _modules(state, block, names):
    """Return the tensors of modules of a block under other names; a module may lack a bias."""
    out = {}
    for old, new in names.items():
        for kind in ("weight", "bias"):
            if f"{block}.{old}.{kind}" in state:
                out[f"{new}.{kind}"] = state[f"{block}.{old}.{kind}"]
    return out


def _attention(state, block, query, key, value):
    """Return queries, keys and values of a block apart."""
    out = {}
    weights = state[f"{block}.attn.qkv.weight"].split(48)
    for name, weight in zip((query, key, value), weights, strict=True):
        out[f"{name}.weight"] = weight.clone()
    if f"{block}.attn.qkv.bias" in state:
        for name, bias in zip((query, key, value), state[f"{block}.attn.qkv.bias"].split(48), strict=True):
            out[f"{name}.bias"] = bias.clone()
    if f"{block}.attn.q_bias" in state:
        out[f"{query}.bias"] = state[f"{block}.attn.q_bias"]
        out[f"{value}.bias"] = state[f"{block}.attn.v_bias"]
    return out


def _bert_block(state, block, new):
    """Return what blocks of ViT, BEiT and DINOv2 have in common."""
    inner = f"{new}.attention.attention"
    return {
        **_attention(state, block, f"{inner}.query", f"{inner}.key", f"{inner}.value"),
        **_modules(state, block, {"attn.proj": f"{new}.attention.output.dense"}),
    }


def _vit(state):
    out = {
        "vit.embeddings.cls_token": state["cls_token"],
        "vit.embeddings.position_embeddings": state["pos_embed"],
        "vit.embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "vit.embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "vit.layernorm.weight": state["norm.weight"],
        "vit.layernorm.bias": state["norm.bias"],
        "vit.pooler.dense.weight": torch.ones(48, 48),
        "classifier.weight": torch.ones(5, 48),
    }
    for i in range(2):
        new = f"vit.encoder.layer.{i}"
        names = {
            "norm1": f"{new}.layernorm_before",
            "norm2": f"{new}.layernorm_after",
            "mlp.fc1": f"{new}.intermediate.dense",
            "mlp.fc2": f"{new}.output.dense",
        }
        out |= _bert_block(state, f"blocks.{i}", new) | _modules(state, f"blocks.{i}", names)
    return out


def _deit(state):
    out = {name.replace("vit.", "deit."): x for name, x in _vit(state).items() if name != "classifier.weight"}
    out["deit.embeddings.distillation_token"] = state["dist_token"]
    return out | {"cls_classifier.weight": torch.ones(5, 48), "distillation_classifier.bias": torch.ones(5)}


def _beit(state):
    norm = {"norm.weight": state["fc_norm.weight"], "norm.bias": state["fc_norm.bias"]}
    out = {}
    for name, value in _vit(state | norm | {"pos_embed": torch.ones(1)}).items():
        name = name.replace("vit.", "beit.").replace("beit.layernorm.", "beit.pooler.layernorm.")
        if "position_embeddings" not in name and "pooler.dense" not in name:
            out[name] = value
    for i in range(2):
        new = f"beit.encoder.layer.{i}"
        relative = f"{new}.attention.attention.relative_position_bias.relative_position_bias_table"
        out[relative] = state[f"blocks.{i}.attn.relative_position_bias_table"]
        out[relative.replace("bias_table", "index")] = torch.zeros(5, 5, dtype=torch.long)
        out[f"{new}.lambda_1"] = state[f"blocks.{i}.gamma_1"]
        out[f"{new}.lambda_2"] = state[f"blocks.{i}.gamma_2"]
    return out


def _dinov2(state):
    positions = state["pos_embed"]
    tokens = {"embeddings.cls_token": state["cls_token"]}
    if "reg_token" in state:
        # any split of the sum of the class token and its position
        tokens = {
            "embeddings.cls_token": state["cls_token"] - 0.5,
            "embeddings.register_tokens": state["reg_token"],
        }
        positions = torch.cat([torch.full((1, 1, 48), 0.5), positions], dim=1)
    out = {
        **tokens,
        "embeddings.mask_token": torch.ones(1, 48),
        "embeddings.position_embeddings": positions,
        "embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "layernorm.weight": state["norm.weight"],
        "layernorm.bias": state["norm.bias"],
    }
    is_gated = len(state["blocks.0.mlp.fc1.weight"]) != 192
    for i in range(2):
        new = f"encoder.layer.{i}"
        names = {
            "norm1": f"{new}.norm1",
            "norm2": f"{new}.norm2",
            "mlp.fc1": f"{new}.mlp.weights_in" if is_gated else f"{new}.mlp.fc1",
            "mlp.fc2": f"{new}.mlp.weights_out" if is_gated else f"{new}.mlp.fc2",
        }
        out |= _bert_block(state, f"blocks.{i}", new) | _modules(state, f"blocks.{i}", names)
        out[f"{new}.layer_scale1.lambda1"] = state[f"blocks.{i}.ls1.gamma"]
        out[f"{new}.layer_scale2.lambda1"] = state[f"blocks.{i}.ls2.gamma"]
    return out


def _dinov3(state):
    out = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.mask_token": torch.ones(1, 1, 48),
        "embeddings.register_tokens": state["reg_token"],
        "embeddings.patch_embeddings.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.bias": state["patch_embed.proj.bias"],
        "norm.weight": state["norm.weight"],
        "norm.bias": state["norm.bias"],
    }
    for i in range(2):
        new = f"layer.{i}"
        inner = f"{new}.attention"
        names = {
            "norm1": f"{new}.norm1",
            "norm2": f"{new}.norm2",
            "attn.proj": f"{inner}.o_proj",
            "mlp.fc1": f"{new}.mlp.up_proj",
            "mlp.fc1_g": f"{new}.mlp.gate_proj",
            "mlp.fc1_x": f"{new}.mlp.up_proj",
            "mlp.fc2": f"{new}.mlp.down_proj",
        }
        out |= _attention(state, f"blocks.{i}", f"{inner}.q_proj", f"{inner}.k_proj", f"{inner}.v_proj")
        out |= _modules(state, f"blocks.{i}", names)
        out[f"{new}.layer_scale1.lambda1"] = state[f"blocks.{i}.gamma_1"]
        out[f"{new}.layer_scale2.lambda1"] = state[f"blocks.{i}.gamma_2"]
    return out


def _clip_blocks(state):
    out = {}
    for i in range(2):
        new = f"vision_model.encoder.layers.{i}"
        inner = f"{new}.self_attn"
        names = {
            "norm1": f"{new}.layer_norm1",
            "norm2": f"{new}.layer_norm2",
            "attn.proj": f"{inner}.out_proj",
            "mlp.fc1": f"{new}.mlp.fc1",
            "mlp.fc2": f"{new}.mlp.fc2",
        }
        out |= _attention(state, f"blocks.{i}", f"{inner}.q_proj", f"{inner}.k_proj", f"{inner}.v_proj")
        out |= _modules(state, f"blocks.{i}", names)
    return out


def _clip(state):
    return _clip_blocks(state) | {
        "logit_scale": torch.tensor(2.0),
        "text_model.embeddings.token_embedding.weight": torch.ones(7, 32),
        "text_model.encoder.layers.0.self_attn.q_proj.weight": torch.ones(32, 32),
        "text_projection.weight": torch.ones(16, 32),
        "visual_projection.weight": torch.ones(16, 48),
        "vision_model.embeddings.class_embedding": state["cls_token"].flatten(),
        "vision_model.embeddings.patch_embedding.weight": state["patch_embed.proj.weight"],
        "vision_model.embeddings.position_embedding.weight": state["pos_embed"][0],
        "vision_model.embeddings.position_ids": torch.arange(state["pos_embed"].shape[1])[None],
        "vision_model.pre_layrnorm.weight": state["norm_pre.weight"],
        "vision_model.pre_layrnorm.bias": state["norm_pre.bias"],
        "vision_model.post_layernorm.weight": state["norm.weight"],
        "vision_model.post_layernorm.bias": state["norm.bias"],
    }


def _siglip(state):
    pool = {
        "attn_pool.proj": "vision_model.head.attention.out_proj",
        "attn_pool.norm": "vision_model.head.layernorm",
        "attn_pool.mlp.fc1": "vision_model.head.mlp.fc1",
        "attn_pool.mlp.fc2": "vision_model.head.mlp.fc2",
    }
    out = _clip_blocks(state)
    for old, new in pool.items():
        out |= {f"{new}.weight": state[f"{old}.weight"], f"{new}.bias": state[f"{old}.bias"]}
    for kind in ("weight", "bias"):
        parts = [state[f"attn_pool.q.{kind}"], state[f"attn_pool.kv.{kind}"]]
        out[f"vision_model.head.attention.in_proj_{kind}"] = torch.cat(parts)
    return out | {
        "logit_bias": torch.ones(1),
        "text_model.head.weight": torch.ones(16, 32),
        "vision_model.embeddings.patch_embedding.weight": state["patch_embed.proj.weight"],
        "vision_model.embeddings.patch_embedding.bias": state["patch_embed.proj.bias"],
        "vision_model.embeddings.position_embedding.weight": state["pos_embed"][0],
        "vision_model.head.probe": state["attn_pool.latent"],
        "vision_model.post_layernorm.weight": state["norm.weight"],
        "vision_model.post_layernorm.bias": state["norm.bias"],
    }


def _aimv2(state):
    out = {
        "embeddings.patch_embed.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embed.bias": state["patch_embed.proj.bias"],
        "embeddings.rms_norm.weight": state["patch_embed.norm.weight"],
        "embeddings.position_embedding.weight": state["pos_embed"][0],
        "rms_norm.weight": state["norm.weight"],
    }
    for i in range(2):
        new = f"encoder.layers.{i}"
        inner = f"{new}.attention"
        names = {
            "norm1": f"{new}.rms_norm1",
            "norm2": f"{new}.rms_norm2",
            "attn.proj": f"{inner}.out_proj",
            "mlp.fc1_g": f"{new}.ffn.gate_proj",
            "mlp.fc1_x": f"{new}.ffn.up_proj",
            "mlp.fc2": f"{new}.ffn.down_proj",
        }
        out |= _attention(state, f"blocks.{i}", f"{inner}.q_proj", f"{inner}.k_proj", f"{inner}.v_proj")
        out |= _modules(state, f"blocks.{i}", names)
    return out


LAYOUTS = {
    "vit_tiny_patch16_224": (_vit, 32),
    "deit_tiny_distilled_patch16_224": (_deit, 32),
    "vit_small_patch14_dinov2": (_dinov2, 28),
    "vit_small_patch14_reg4_dinov2": (_dinov2, 28),
    "vit_giant_patch14_dinov2": (_dinov2, 28),
    "vit_base_patch16_clip_quickgelu_224": (_clip, 32),
    "vit_base_patch16_siglip_224": (_siglip, 32),
    "vit_small_patch16_dinov3": (_dinov3, 32),
    "vit_small_patch16_dinov3_qkvb": (_dinov3, 32),
    "vit_small_plus_patch16_dinov3": (_dinov3, 32),
    "beit_base_patch16_224": (_beit, 32),
    "aimv2_large_patch14_224": (_aimv2, 28),
}


def _saved(tmp_path, state):
    file = tmp_path / "model.safetensors"
    save_file({name: value.contiguous().clone() for name, value in state.items()}, file)
    return file


def _written(name):
    """Return a random model, the writer of its layout applied to its state, and its image size."""
    write, size = LAYOUTS[name]
    first = _model(name, size)
    return first, write(first.state_dict()), size


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_file_of_transformers_gives_equal_features(tmp_path, name):
    """Each layout loads to equal features; one key less and one key more are refused."""
    first, state, size = _written(name)
    second = timm.create_model(name, img_size=size, **SMALL).eval()
    load_weights(second, _saved(tmp_path, state))
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(second(images), first(images), rtol=0, atol=1e-5)
    lost = next(
        key for key in state if ".1." in key and key.endswith(("fc2.weight", "dense.weight", "_proj.weight"))
    )
    with pytest.raises(DataError, match="does not fit the model: missing"):
        load_weights(second, _saved(tmp_path, {key: x for key, x in state.items() if key != lost}))
    with pytest.raises(DataError, match=r"unexpected 'stranger\.weight'"):
        load_weights(second, _saved(tmp_path, state | {"stranger.weight": torch.ones(2)}))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2", "beit_base_patch16_224"]
)
def test_another_image_size_is_resampled_as_timm_does(tmp_path, name):
    """Positions and tables of biases of a file are fitted to the model as timm's filter fits them."""
    first, state, size = _written(name)
    larger = size * 2
    second = timm.create_model(name, img_size=larger, **SMALL).eval()
    load_weights(second, _saved(tmp_path, state))
    reference = timm.create_model(name, img_size=larger, **SMALL).eval()
    module = timm.models.beit if name.startswith("beit") else timm.models.vision_transformer
    reference.load_state_dict(module.checkpoint_filter_fn(first.state_dict(), reference))
    images = torch.randn(2, 3, larger, larger, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(second(images), reference(images), rtol=0, atol=1e-5)


def test_biases_of_dinov3_are_not_dropped(tmp_path):
    """Biases of queries and values do not load under the name without them, unless they are zero."""
    _, state, size = _written("vit_small_patch16_dinov3_qkvb")
    plain = timm.create_model("vit_small_patch16_dinov3", img_size=size, **SMALL)
    with pytest.raises(DataError, match="holds biases of queries and values, and the model has none; name"):
        load_weights(plain, _saved(tmp_path, state))
    only_values = {key: x * 0 if key.endswith("q_proj.bias") else x for key, x in state.items()}
    with pytest.raises(DataError, match="holds biases of queries and values"):
        load_weights(plain, _saved(tmp_path, only_values))
    zero = {key: x * 0 if key.endswith(("q_proj.bias", "v_proj.bias")) else x for key, x in state.items()}
    load_weights(plain, _saved(tmp_path, zero))
    assert torch.equal(plain.blocks[1].attn.qkv.weight[:48], state["layer.1.attention.q_proj.weight"])


def test_two_layouts_or_none_are_refused(tmp_path):
    """A file of two models, and one of a model that is not converted, are refused with their first keys."""
    model, vit, _ = _written("vit_tiny_patch16_224")
    both = vit | {"layer.0.layer_scale1.lambda1": torch.ones(48)}
    with pytest.raises(DataError, match=r"those of ViT and of DINOv3: '[\w.]+', .*; give the vision model"):
        load_weights(model, _saved(tmp_path, both))
    none = {key: x for key, x in vit.items() if not key.endswith(("key.bias", "layernorm_before.weight"))}
    with pytest.raises(DataError, match=r"of no model that is converted: '[\w.]+', '[\w.]+', '[\w.]+'"):
        load_weights(model, _saved(tmp_path, none))
    twice = vit | {"layernorm.weight": torch.ones(48)}
    with pytest.raises(DataError, match=r"holds 'layernorm\.weight' under two prefixes"):
        load_weights(model, _saved(tmp_path, twice))


def test_naflex_is_refused(tmp_path):
    """A SigLIP 2 file for any image size is refused with the name of one that loads."""
    model, state, _ = _written("vit_base_patch16_siglip_224")
    state["vision_model.embeddings.patch_embedding.weight"] = torch.ones(48, 768)
    with pytest.raises(DataError, match=r"NaFlex.*; take a file of one size, such as google/siglip2-base"):
        load_weights(model, _saved(tmp_path, state))


def test_siglip_loads_under_the_name_with_mean_pooling(tmp_path):
    """The pooling by attention of a file of transformers is left out where the model takes the mean."""
    _, state, size = _written("vit_base_patch16_siglip_224")
    model = timm.create_model("vit_base_patch16_siglip_gap_224", img_size=size, **SMALL)
    load_weights(model, _saved(tmp_path, state))
    assert torch.equal(model.norm.weight, state["vision_model.post_layernorm.weight"])
