"""The parts of timm's attentions, called as modules: projections, norms, rotation, bias table, gate, output.

Each part is timm's own, in timm's order, so that attention put together from them has timm's bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["attention_bias", "heads_of", "mixed", "normed", "rotated"]


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
    own: Tensor = attention._get_rel_pos_bias()
    if shared is None:
        return own
    return own + shared


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
    gate = getattr(attention, "gate", None)
    if gate is not None:
        joined = joined * gate(x).sigmoid()
    projected: Tensor = attention.proj_drop(attention.proj(joined))
    return projected
