"""Prefix tuning: extra keys and values in the attention of frozen blocks (DualPrompt section 3.1 and others).

No token enters the residual stream and no query is added. Prefix vectors are head-major, like the columns of
timm's qkv, and pass through neither ``norm1`` nor ``qkv``. A prefix of zeros is *not* a no-op, because it
takes softmax mass; a prefix of length zero is one, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lw2g.errors import ContractError
from lw2g.vit.anatomy import (
    attention_of,
    block_at,
    blocks_of,
    has_blocks,
    is_pre_norm,
    num_tokens,
    offers_prefixes,
    require_rung,
)
from lw2g.vit.attention import attention_bias, heads_of, mixed, rotated
from lw2g.vit.injection import Injection, ReadsTokens, class_token_index

__all__ = ["Prefix", "PrefixAttention", "PrefixInjection", "PrefixSlot", "last_row_alone"]

KeyValue = tuple[Tensor, Tensor]
Prefix = KeyValue | Callable[[Tensor], KeyValue]
"""(key, value), each [L, d] for all samples or [B, L, d] per sample; or a function that computes them from
the block's input [B, N, d] (residual stream before ``norm1``, not detached)."""


class PrefixSlot:
    """The prefix of one injection at one block: fixed tensors, or a function called in each forward."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix
        self._latest = None if callable(prefix) else prefix

    def fill(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        """Compute the prefix from the block's input (a forward pre-hook of the block)."""
        self._latest = self.prefix(args[0]) if callable(self.prefix) else self.prefix

    def pair(self) -> KeyValue:
        """Return key and value in the current forward.

        Raises:
            ContractError: The attention was called without its block, so that the prefix got no input.
        """
        if self._latest is None:
            raise ContractError(
                "a computed prefix has seen no block input", "call the block, not its attention"
            )
        return self._latest


class PrefixAttention(nn.Module):
    """A replacement of a frozen ``block.attn`` that also attends to the prefixes of its slots.

    Args:
        base: timm's attention, unchanged; its projections are called as modules, so that their hooks run.
        slots: The prefixes; several are concatenated.
        row: Returns the one row of N tokens that is wanted, whose attention alone is computed, ``[B, 1, d]``;
            None: all rows.
    """

    def __init__(
        self, base: Any, slots: Sequence[PrefixSlot], *, row: Callable[[int], int] | None = None
    ) -> None:
        super().__init__()
        self.base = base
        self.slots = tuple(slots)
        self.row = row

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        rope: Tensor | None = None,
        shared_rel_pos_bias: Tensor | None = None,
    ) -> Tensor:
        """Return the attention of tokens to prefixes and tokens, [B, N, d], or of one row.

        A prefix key is not rotated, as those of class token and registers are not.

        Args:
            x: Normalised tokens [B, N, d].
            attn_mask: Boolean or additive mask over the tokens, widened so that prefixes are always visible.
            is_causal: Whether to mask later tokens (timm >= 1.0.26); overrides ``attn_mask``, as in timm.
            rope: Rotary embeddings of the patches (EVA and its kin).
            shared_rel_pos_bias: Bias over the tokens, shared by all blocks (BEiT).
        """
        base = self.base
        pairs = [slot.pair() for slot in self.slots]
        if self.row is None and not any(tensor.numel() for pair in pairs for tensor in pair):
            # releases and classes of timm differ in their arguments: pass only what is set
            arguments = {
                "attn_mask": attn_mask,
                "is_causal": is_causal or None,
                "rope": rope,
                "shared_rel_pos_bias": shared_rel_pos_bias,
            }
            plain: Tensor = base(x, **{name: value for name, value in arguments.items() if value is not None})
            return plain
        tokens = x.shape[1]
        # queries and keys as they meet: normalised and rotated; only then do prefixes come before the keys
        q, k, v = heads_of(base, x)
        q = rotated(base, q, rope, like=v)
        k = rotated(base, k, rope, like=v)
        wanted = None if self.row is None else self.row(tokens)
        if wanted is not None:
            q = q[:, :, wanted : wanted + 1]
        if torch.is_grad_enabled():
            # the backward keeps the inputs of attention: a view of q would keep all of qkv
            q = q.clone()
        k = torch.cat([*(_split_heads(key, k) for key, _ in pairs), k], dim=2)
        v = torch.cat([*(_split_heads(value, v) for _, value in pairs), v], dim=2)
        if k.shape != v.shape:
            raise ValueError(f"expected as many prefix keys as values but got {_lengths(pairs)}")
        mask = _widen_mask(attn_mask, is_causal, tokens, k.shape[2] - tokens, x.device)
        bias = attention_bias(base, shared_rel_pos_bias)
        if bias is not None:
            # prefixes have no place in the table: they are neither favoured nor held back
            mask = F.pad(bias, (k.shape[2] - tokens, 0))
        if mask is not None and wanted is not None and mask.shape[-2] > 1:
            mask = mask[..., wanted : wanted + 1, :]
        return mixed(base, self._attend(q, k, v, mask), _rows(x, wanted))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Return softmax attention of queries to keys and their prefix, ``[B, H, N, head_dim]``.

        Args:
            q: ``[B, H, N, head_dim]``.
            k: ``[B, H, prefix + N, head_dim]``.
            v: As ``k``.
            mask: What may be seen (bool), or what is added to the logits, ``[..., N, prefix + N]``.
        """
        base = self.base
        dropout = base.attn_drop.p if base.training else 0.0
        if base.fused_attn:
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout, scale=base.scale
            )
        # plain attention (timm's TIMM_FUSED_ATTN=0), whose gradients are bit-stable
        logits = (q * base.scale) @ k.transpose(-2, -1)
        if mask is not None:
            if mask.dtype == torch.bool:
                logits = logits.masked_fill(~mask, -torch.inf)
            else:
                logits = logits + mask
        weights: Tensor = base.attn_drop(logits.softmax(dim=-1))
        return weights @ v


@attrs.frozen(eq=False)
class PrefixInjection:
    """Prefix keys and values at some blocks.

    Attributes:
        prefixes: Block index to prefix. Parameters stay float32 and are cast to the activations' dtype.
    """

    prefixes: Mapping[int, Prefix]

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Replace the attention of the blocks by a ``PrefixAttention`` within the context."""
        require_rung(model, "prefixes", self.prefixes)
        with ExitStack() as stack:
            for index, prefix in self.prefixes.items():
                stack.enter_context(_prefixed(block_at(model, index), PrefixSlot(prefix)))
            yield


@contextmanager
def _prefixed(block: Any, slot: PrefixSlot) -> Iterator[None]:
    """Put a prefix attention in a block's place of attention within the context."""
    base = attention_of(block)
    before = block.attn
    slots: tuple[PrefixSlot, ...] = (slot,)
    row = None
    if isinstance(before, PrefixAttention):
        # a second prefix injection at this block adds to the slots of the first one
        slots = (*before.slots, slot)
        row = before.row
    handle = block.register_forward_pre_hook(slot.fill)
    block.attn = PrefixAttention(base, slots, row=row)
    try:
        yield
    finally:
        block.attn = before
        handle.remove()


@contextmanager
def last_row_alone(model: nn.Module, injections: Sequence[Injection], *, attention: bool) -> Iterator[None]:
    """Let the last block compute only the class token's row, because no other row is read.

    Its MLP does so always, its attention where that is asked for and no injection wants the ``whole`` stream.
    The block broadcasts its output to all rows, so that the other rows are meaningless. Enter it before
    injections, so that they see the input of attention and MLP.

    Args:
        model: The ViT.
        injections: Those of the forward.
        attention: Whether its attention does so, too.
    """

    def index(rows: int) -> int:
        """Return the class token's place in a stream of so many rows."""
        return class_token_index(injections, rows, num_tokens(model))

    def keep(module: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        """Return the class token's row ``[B, 1, dim]`` of what enters the MLP."""
        row = index(args[0].shape[1])
        return args[0][:, row : row + 1]

    if not has_blocks(model) or not is_pre_norm(blocks_of(model)[-1]):
        yield
        return
    last: Any = blocks_of(model)[-1]
    before = last.attn
    # attention needs all rows as keys: a wrapper without prefixes computes the query of one row alone
    reads_others = any(isinstance(each, ReadsTokens) and each.whole for each in injections)
    if attention and offers_prefixes(last) and not reads_others:
        last.attn = PrefixAttention(attention_of(last), (), row=index)
    try:
        with last.norm2.register_forward_pre_hook(keep):
            yield
    finally:
        last.attn = before


def _split_heads(prefix: Tensor, like: Tensor) -> Tensor:
    """Turn [L, d] or [B, L, d] into [B, H, L, d / H], in the dtype of ``like`` [B, H, N, d / H]."""
    batch, heads, _, head_dim = like.shape
    width = heads * head_dim
    if prefix.ndim not in (2, 3) or prefix.shape[-1] != width or (prefix.ndim == 3 and len(prefix) != batch):
        raise ValueError(
            f"expected a prefix of shape [L, {width}] or [{batch}, L, {width}] but got {list(prefix.shape)}"
        )
    rows = prefix.to(like.dtype).reshape(*prefix.shape[:-1], heads, head_dim).transpose(-3, -2)
    return rows.expand(batch, -1, -1, -1)


def _rows(x: Tensor, wanted: int | None) -> Tensor:
    return x if wanted is None else x[:, wanted : wanted + 1]


def _lengths(pairs: Sequence[KeyValue]) -> list[tuple[int, int]]:
    return [(key.shape[-2], value.shape[-2]) for key, value in pairs]


def _widen_mask(
    mask: Tensor | None, is_causal: bool, tokens: int, prefix: int, device: torch.device
) -> Tensor | None:
    """Return a mask ``[..., N, prefix + N]`` that lets all tokens see the prefix; None if all see all."""
    if is_causal:
        mask = torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()
    if mask is None:
        return None
    visible = True if mask.dtype == torch.bool else 0.0
    return F.pad(mask, (prefix, 0), value=visible)
