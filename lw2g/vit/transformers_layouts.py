"""Checkpoints of Hugging Face's transformers, renamed to timm's names; timm has no filter for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from lw2g.errors import DataError

__all__ = ["from_transformers"]

# the vision model inside a model with a head or with a text tower
_PREFIXES = ("vit.", "deit.", "beit.", "dinov2.", "dinov2_with_registers.", "dinov3_vit.", "vision_model.")
# the text tower, projections into its space, classifiers, and what is used in pre-training or recomputed
_DROPS = (
    "text_model.",
    "logit_scale",
    "logit_bias",
    "text_projection.",
    "visual_projection.",
    "classifier.",
    "cls_classifier.",
    "distillation_classifier.",
    "pooler.dense.",
    "embeddings.mask_token",
    "embeddings.position_ids",
    "rope_embeddings.",
)
_INDEX = "relative_position_index"

# the keys that a layout has and no other layout has together
_MARKERS: Mapping[str, frozenset[str]] = {
    "ViT": frozenset(
        {"encoder.layer.0.layernorm_before.weight", "encoder.layer.0.attention.attention.key.bias"}
    ),
    "BEiT": frozenset({"encoder.layer.0.lambda_1"}),
    "DINOv2": frozenset({"encoder.layer.0.layer_scale1.lambda1"}),
    "DINOv3": frozenset({"layer.0.layer_scale1.lambda1"}),
    "CLIP": frozenset({"embeddings.class_embedding"}),
    "SigLIP": frozenset({"embeddings.patch_embedding.bias"}),
    "AIMv2": frozenset({"encoder.layers.0.ffn.gate_proj.weight"}),
}

# applied to every name in this order
_RENAMES: tuple[tuple[str, str], ...] = (
    # rows before the patches, positions, patches
    (r"^embeddings\.(cls_token|class_embedding)$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.(position_embeddings|position_embedding\.weight)$", "pos_embed"),
    (
        r"^embeddings\.(patch_embeddings\.projection|patch_embeddings|patch_embedding|patch_embed)\.",
        "patch_embed.proj.",
    ),
    (r"^embeddings\.rms_norm\.", "patch_embed.norm."),
    # norms outside of the blocks ("layrnorm" is CLIP's own spelling)
    (r"^pre_layrnorm\.", "norm_pre."),
    (r"^(layernorm|post_layernorm|rms_norm)\.", "norm."),
    (r"^pooler\.layernorm\.", "fc_norm."),
    # pooling by attention
    (r"^head\.probe$", "attn_pool.latent"),
    (r"^head\.attention\.out_proj\.", "attn_pool.proj."),
    (r"^head\.attention\.in_proj_", "attn_pool.qkv."),
    (r"^head\.layernorm\.", "attn_pool.norm."),
    (r"^head\.mlp\.", "attn_pool.mlp."),
    # blocks; DINOv3 is an Eva model in timm, whose scales are parameters and not modules
    (r"^layer\.(\d+)\.layer_scale([12])\.lambda1$", r"blocks.\1.gamma_\2"),
    (r"^(encoder\.layers?|layer)\.", "blocks."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"\.lambda_([12])$", r".gamma_\1"),
    (r"\.(layernorm_before|layer_norm1|rms_norm1)\.", ".norm1."),
    (r"\.(layernorm_after|layer_norm2|rms_norm2)\.", ".norm2."),
    # attention
    (r"\.attention\.attention\.relative_position_bias\.", ".attn."),
    (r"\.attention\.attention\.query\.", ".attn.q."),
    (r"\.attention\.attention\.key\.", ".attn.k."),
    (r"\.attention\.attention\.value\.", ".attn.v."),
    (r"\.(attention|self_attn)\.(q|k|v)_proj\.", r".attn.\2."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.(attention|self_attn)\.(o|out)_proj\.", ".attn.proj."),
    # MLP
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.mlp\.weights_in\.", ".mlp.fc1."),
    (r"\.mlp\.weights_out\.", ".mlp.fc2."),
    (r"\.(mlp|ffn)\.gate_proj\.", ".mlp.fc1_g."),
    (r"\.(mlp|ffn)\.up_proj\.", ".mlp.fc1_x."),
    (r"\.(mlp|ffn)\.down_proj\.", ".mlp.fc2."),
)


def from_transformers(state: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return a state dict of transformers under timm's names; any other one as it is.

    Known are the vision models ViT and DeiT, DINOv2 (with registers, giant), DINOv3, CLIP, SigLIP and
    SigLIP 2 of fixed size, BEiT and AIMv2. Text towers, projections and classifiers are left out. A key that
    has no name in timm keeps its own, so that loading can refuse it.

    Args:
        state: Content of the file.
        source: Name of the file in messages.

    Raises:
        DataError: The file has the names of transformers, and its layout is not known, not clear, or NaFlex.
    """
    stripped = _stripped(state, source)
    if not any(name.startswith("embeddings.") for name in stripped):
        return dict(state)
    _require_one_layout(stripped, state, source)
    patches = stripped.get("embeddings.patch_embedding.weight")
    if patches is not None and patches.ndim == 2:
        raise DataError(
            f"weights file {source!r} is made for images of any size (NaFlex) and is not converted",
            "take a file of one size, such as google/siglip2-base-patch16-224",
        )
    renamed = {_renamed(name): value for name, value in stripped.items()}
    return _reshaped(_with_plain_mlp(_with_fused_attention(renamed)))


def _stripped(state: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return the tensors of the vision model, without a prefix."""
    out: dict[str, Tensor] = {}
    for key, value in state.items():
        name = key
        for prefix in _PREFIXES:
            if key.startswith(prefix):
                name = key.removeprefix(prefix)
                break  # one prefix alone: no model lies within two
        if name.startswith(_DROPS) or name.endswith(_INDEX):
            continue
        if name in out:
            raise DataError(
                f"{source!r} holds {name!r} under two prefixes", "export the state dict of one model alone"
            )
        out[name] = value
    return out


def _require_one_layout(stripped: Mapping[str, Tensor], state: Iterable[str], source: str) -> None:
    """Refuse a state whose names are those of no model that lw2g converts, or of several."""
    layouts = [layout for layout, markers in _MARKERS.items() if markers <= stripped.keys()]
    if len(layouts) == 1:
        return
    first = ", ".join(repr(key) for key in list(state)[:3])
    found = "those of no model that is converted"
    if layouts:
        found = f"those of {' and of '.join(layouts)}"
    raise DataError(
        f"weights file {source!r} has names of transformers, {found}: {first}, ...",
        f"give the vision model alone; converted are {', '.join(_MARKERS)}",
    )


def _renamed(name: str) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _with_fused_attention(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state with queries, keys and values in one matrix, in this order."""
    out = dict(state)
    for name in state:
        if not name.endswith(".attn.q.weight"):
            continue
        attention = name.removesuffix("q.weight")
        _fuse(out, attention, "weight")
        _fuse(out, attention, "bias")
        if f"{attention}q.bias" in out and f"{attention}v.bias" in out:
            # keys have no bias (BEiT, DINOv3): timm keeps the two apart
            out[f"{attention}q_bias"] = out.pop(f"{attention}q.bias")
            out[f"{attention}v_bias"] = out.pop(f"{attention}v.bias")
    for kind in ("weight", "bias"):
        fused = out.pop(f"attn_pool.qkv.{kind}", None)
        if fused is not None:
            width = len(fused) // 3
            out[f"attn_pool.q.{kind}"] = fused[:width].clone()
            out[f"attn_pool.kv.{kind}"] = fused[width:].clone()
    return out


def _fuse(state: dict[str, Tensor], attention: str, kind: str) -> None:
    names = [f"{attention}{part}.{kind}" for part in ("q", "k", "v")]
    if all(name in state for name in names):
        state[f"{attention}qkv.{kind}"] = torch.cat([state.pop(name) for name in names])


def _with_plain_mlp(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state with ``fc1`` for ``fc1_x`` where there is no gate beside it (DINOv3 small to huge)."""
    if any(".mlp.fc1_g." in name for name in state):
        return dict(state)
    return {name.replace(".mlp.fc1_x.", ".mlp.fc1."): value for name, value in state.items()}


def _reshaped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state with timm's shapes of tokens and positions."""
    out = dict(state)
    if "cls_token" in out:
        out["cls_token"] = out["cls_token"].reshape(1, 1, -1)
    positions = out.get("pos_embed")
    if positions is not None and positions.ndim == 2:
        positions = positions[None]
        out["pos_embed"] = positions
    if positions is not None and "reg_token" in out and "cls_token" in out:
        # DINOv2 with registers: timm's table is of the patches alone
        out["cls_token"] = out["cls_token"] + positions[:, :1]
        out["pos_embed"] = positions[:, 1:]
    return out
