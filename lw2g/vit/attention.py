"""The parts of timm's attentions, called as modules: projections, norms, rotation, bias table, gate, output.

Each part is timm's own, in timm's order, so that attention put together from them has timm's bits. Here is
also decided where attention is not timm's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lw2g.ground.processor import CPU_INFO, read_processor
from lw2g.vit.anatomy import attention_of

__all__ = [
    "Attention",
    "attention_bias",
    "attention_now",
    "fuses_forwards",
    "heads_of",
    "mixed",
    "normed",
    "rotated",
    "without_fused_attention",
]

Attention = Literal["timm's", "plain", "fused without gradients"]
"""timm's choice; a product, a softmax and a product; or that in forwards with gradients, timm's in others."""

# Time of a whole bf16 forward without gradients under plain attention over that under fused attention
# (`benchmarks/README.md`). With AMX: 1.15 at the 197 tokens of a ViT-Tiny at 224 pixels, 1.10 with prefixes,
# 1.08 for a ViT-B, and 1.00 at 37 tokens. On AMD's Zen 4: 0.77 at 197 tokens, 0.88 at 37. With gradients
# fused attention is slower on both.
_FUSED_FROM = 128


def attention_now(device: str, dtype: torch.dtype, *, fuses: bool) -> Attention:
    """Return which attention is computed here and now.

    In bf16 on a CPU timm's choice, fused attention, is slower but for some forwards without gradients
    (:func:`fuses_forwards`).

    Args:
        device: The kind of device.
        dtype: Of the weights.
        fuses: Whether this machine is faster with fused attention where there are no gradients.
    """
    reduced = dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")
    if device != "cpu" or not reduced or torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return "timm's"
    if fuses:
        return "fused without gradients"
    return "plain"


def fuses_forwards(num_tokens: int, info: Path = CPU_INFO) -> bool:
    """Whether fused attention is known to be faster on this CPU, in bf16 and without gradients.

    The processor decides, not a clock, so that a run computes the same bits again on a machine of its kind.
    """
    processor = read_processor(info)
    return processor is not None and "amx_bf16" in processor.flags and num_tokens >= _FUSED_FROM


@contextmanager
def without_fused_attention(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Let the attentions of some blocks be a product, a softmax and a product within the context."""
    attentions = [attention_of(block) for block in blocks]
    fused = [attention for attention in attentions if attention.fused_attn]
    for attention in fused:
        attention.fused_attn = False
    try:
        yield
    finally:
        for attention in fused:
            attention.fused_attn = True


def heads_of(attention: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of normalised tokens, ``[B, N, d]`` -> three of ``[B, H, N, d / H]``.

    Queries and keys are normalised per head where the attention does so; they are not rotated yet. The bias
    of a fused projection must be in the module (:func:`lw2g.vit.anatomy.merged_biases`).
    """
    batch, tokens, _ = x.shape
    if attention.qkv is not None:
        fused = attention.qkv(x).reshape(batch, tokens, 3, attention.num_heads, -1)
        q, k, v = fused.permute(2, 0, 3, 1, 4).unbind(0)
    else:
        separate = (attention.q_proj(x), attention.k_proj(x), attention.v_proj(x))
        q, k, v = (part.reshape(batch, tokens, attention.num_heads, -1).transpose(1, 2) for part in separate)
    return normed(attention, "q_norm", q), normed(attention, "k_norm", k), v


def normed(attention: Any, name: str, x: Tensor) -> Tensor:
    """Return queries or keys under ``q_norm`` or ``k_norm``, which BEiT's attention does not have."""
    norm = getattr(attention, name, None)
    if norm is None:
        return x
    out: Tensor = norm(x)
    return out


def rotated(attention: Any, x: Tensor, rope: Tensor | None, *, like: Tensor) -> Tensor:
    """Return queries or keys with the patches' rows rotated, in the dtype of ``like``.

    Class token and registers, the first ``num_prefix_tokens`` rows, have no position.
    """
    if rope is None:
        return x
    from timm.layers import apply_rot_embed_cat  # such a model is timm's, which is imported by now

    exempt = attention.num_prefix_tokens
    layout = {}
    if getattr(attention, "rotate_half", False):
        # not always passed: releases of timm before the option know one layout only
        layout["half"] = True
    patches = apply_rot_embed_cat(x[:, :, exempt:, :], rope, **layout)
    return torch.cat([x[:, :, :exempt, :], patches], dim=2).type_as(like)


def attention_bias(attention: Any, shared: Tensor | None) -> Tensor | None:
    """Return what BEiT adds to the logits, ``[1, H, N, N]``; None for an attention without a table."""
    if getattr(attention, "relative_position_bias_table", None) is None:
        return shared
    bias: Tensor = attention._get_rel_pos_bias()
    if shared is None:
        return bias
    return bias + shared


def mixed(attention: Any, out: Tensor, x: Tensor) -> Tensor:
    """Return an attention's output, ``[B, H, N, d / H]`` -> ``[B, N, d]``.

    Args:
        attention: timm's attention.
        out: Values, weighted.
        x: Its input ``[B, N, d]``, which a gate reads.
    """
    joined = out.transpose(1, 2).flatten(2)
    if hasattr(attention, "norm"):  # the scale norm of timm >= 1.0.16
        joined = attention.norm(joined)
    gate = getattr(attention, "gate", None)  # few attentions have one
    if gate is not None:
        joined = joined * gate(x).sigmoid()
    projected: Tensor = attention.proj_drop(attention.proj(joined))
    return projected
