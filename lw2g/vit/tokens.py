"""Prompt tokens in the residual stream (L2P, VPT, CPrompt)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.vit.anatomy import attention_of, block_at, blocks_of, num_tokens, require_rung
from lw2g.vit.injection import real_tokens

__all__ = ["TokenInjection", "TokenRows"]

TokenRows = Tensor | Callable[[Tensor], Tensor]
"""[L, d] for all samples or [B, L, d] per sample; or a function that computes them from the block's input."""


@attrs.frozen(eq=False)
class TokenInjection:
    """Prompt tokens inserted into the stream before some blocks, without position embedding.

    With ``keep=True`` tokens stay for all later blocks, and later ones follow earlier ones (CPrompt, L2P).
    With ``keep=False`` they are removed after their block (VPT-Deep). Their position changes outputs only by
    rounding. Rotary embeddings leave them out, as they do the class token, and a bias table (BEiT) gives them
    zeros, for which there is no published convention.

    Attributes:
        rows: Block index to prompt tokens.
        position: ``after-cls`` = between class token and patches; ``before-cls`` = before both.
        keep: Whether tokens stay in the stream after their block.
    """

    rows: Mapping[int, TokenRows]
    position: Literal["after-cls", "before-cls"] = attrs.field(
        default="after-cls", validator=attrs.validators.in_(("after-cls", "before-cls")), kw_only=True
    )
    keep: bool = attrs.field(validator=attrs.validators.instance_of(bool), kw_only=True)

    def class_token_index(self, num_rows: int, num_tokens: int) -> int:
        """Return the row of the class token in a stream of ``num_rows`` rows."""
        if self.position == "after-cls":
            return 0
        return num_rows - num_tokens

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Insert the tokens by hooks on the blocks within the context."""
        require_rung(model, "prompt tokens", self.rows)
        tokens = num_tokens(model)

        def drop(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            """Take the added rows out of a block's output again, ``[B, N, dim]``."""
            index = self.class_token_index(output.shape[1], tokens)
            return real_tokens(output, tokens, index)

        with ExitStack() as stack:
            for block_index, rows in self.rows.items():
                block = block_at(model, block_index)
                stack.enter_context(block.register_forward_pre_hook(self._inserter(rows, tokens)))
                if not self.keep:
                    stack.enter_context(block.register_forward_hook(drop))
            for block in blocks_of(model):
                stack.enter_context(self._positions(block, tokens))
            yield

    @contextmanager
    def _positions(self, block: nn.Module, tokens: int) -> Iterator[None]:
        """Let a block's attention know within the context which rows have no position."""
        attention = attention_of(block)
        # only attentions that can rotate have the first, and only BEiT's the second
        exempt = getattr(attention, "num_prefix_tokens", None)
        table = getattr(attention, "relative_position_bias_table", None)
        if exempt is None and table is None:
            yield
            return
        bias = None
        if table is not None:
            bias = attention._get_rel_pos_bias

        def adjust(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            """Count the rows that were added to the stream ``[B, N, dim]`` among those without a position."""
            rows = args[0].shape[1]
            added = rows - tokens
            if exempt is not None:
                attention.num_prefix_tokens = exempt + added
            if bias is not None:
                attention._get_rel_pos_bias = partial(
                    _padded, bias, self.class_token_index(rows, tokens), added
                )

        # after the hook that inserts rows before this block
        handle = block.register_forward_pre_hook(adjust)
        try:
            yield
        finally:
            handle.remove()
            if exempt is not None:
                attention.num_prefix_tokens = exempt
            attention.__dict__.pop("_get_rel_pos_bias", None)  # the class's own method comes back

    def _inserter(self, rows: TokenRows, tokens: int) -> Callable[[nn.Module, Any], Any]:
        """Return the hook that inserts rows into the stream ``[B, N, dim]`` that a block gets."""

        def insert(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            """Return the block's arguments with the rows in the stream; None leaves them as they are."""
            x = args[0]
            new = rows(x) if callable(rows) else rows
            new = _per_sample(new, x)
            if new.shape[1] == 0:
                return None
            # rows of the model's own that follow the new ones
            following = tokens
            if self.position == "after-cls":
                # without a class token it is the first patch that stays in front: rows are exchangeable there
                following -= 1
            at = x.shape[1] - following
            return (torch.cat([x[:, :at], new, x[:, at:]], dim=1), *args[1:])

        return insert


def _padded(bias: Callable[[], Tensor], first: int, added: int) -> Tensor:
    """Return a bias ``[1, H, N, N]`` with zeros for ``added`` rows before or after row ``first``'s."""
    table = bias()
    if not added:
        return table
    if first:  # added rows stand before all others
        return functional.pad(table, (added, 0, added, 0))
    table = torch.cat([table[..., :1], table.new_zeros(*table.shape[:-1], added), table[..., 1:]], dim=-1)
    rows = table.new_zeros(*table.shape[:-2], added, table.shape[-1])
    return torch.cat([table[..., :1, :], rows, table[..., 1:, :]], dim=-2)


def _per_sample(rows: Tensor, stream: Tensor) -> Tensor:
    """Turn [L, d] or [B, L, d] into [B, L, d] in the dtype of the stream [B, N, d]."""
    batch, _, width = stream.shape
    if rows.ndim not in (2, 3) or rows.shape[-1] != width or (rows.ndim == 3 and len(rows) != batch):
        raise ValueError(
            f"expected prompt tokens [L, {width}] or [{batch}, L, {width}] but got {list(rows.shape)}"
        )
    return rows.to(stream.dtype).expand(batch, -1, -1)
