"""Reading activations out of a forward: where (``Tap``) and how (``capture``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import attrs
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from lw2g.vit.injection import (
    Injection,
    attention_of,
    block_at,
    class_token_index,
    num_tokens,
    real_tokens,
)

__all__ = ["Tap", "TapKind", "capture"]

TapKind = Literal["query", "attn_in", "block_in", "feature"]
_KINDS = ("query", "attn_in", "block_in", "feature")


def _block_fits_kind(tap: Tap, attribute: attrs.Attribute[int], block: int) -> None:
    if tap.kind == "feature":
        if block != -1:
            raise ValueError(f"expected block -1 for a feature tap but got {block!r}")
    elif block < 0:
        raise ValueError(f"expected a block index from 0 for a {tap.kind} tap but got {block!r}")


@attrs.frozen
class Tap:
    """A place in the ViT whose activations are read, one row per real token.

    Rows that an injection added to the stream are left out; prefixes never are rows.

    Attributes:
        block: Block index from 0; -1 for a feature tap, which belongs to no block.
        kind: ``query`` = first d channels of the block's qkv output, bias and low-rank updates included;
            ``attn_in`` = input of the attention, after ``norm1``; ``block_in`` = residual stream entering the
            block, before ``norm1``; ``feature`` = class token after the final norm.
    """

    block: int = attrs.field(validator=_block_fits_kind)
    kind: TapKind = attrs.field(validator=attrs.validators.in_(_KINDS))

    def __str__(self) -> str:
        return "feature" if self.kind == "feature" else f"blocks.{self.block}.{self.kind}"


@contextmanager
def capture(
    model: VisionTransformer, taps: Iterable[Tap], injections: Sequence[Injection] = ()
) -> Iterator[dict[Tap, Tensor]]:
    """Record the activations at ``taps`` in every forward inside the context; leave no hook behind.

    The dictionary holds the latest forward: float32 [B, tokens, d] per tap ([B, d] for a feature tap), with
    their graph where autograd is on. Enter it *inside* ``inject``, so that hooks of the injections run first.

    Args:
        model: The timm ViT.
        taps: Where to read.
        injections: The active injections, asked only which rows they added.

    Raises:
        ConfigError: if a tap names a block that the model does not have.
    """
    tokens = num_tokens(model)
    seen: dict[Tap, Tensor] = {}

    def record(tap: Tap, x: Tensor) -> None:
        if x.ndim == 2:  # the class token's row alone
            seen[tap] = x.float()
            return
        index = class_token_index(injections, x.shape[1], tokens)
        # copies of slices, so that the wide tensor they were cut from can be freed
        rows = x[:, index].clone() if tap.kind == "feature" else real_tokens(x, tokens, index).contiguous()
        seen[tap] = rows.float()

    with ExitStack() as stack:
        for tap in dict.fromkeys(taps):
            stack.enter_context(_hook(model, tap, record))
        yield seen


def _hook(model: VisionTransformer, tap: Tap, record: Callable[[Tap, Tensor], None]) -> Any:
    def on_input(module: Any, args: tuple[Tensor, ...]) -> None:
        record(tap, args[0])

    def on_output(module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        record(tap, output)

    def on_qkv(module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        record(tap, output[..., : output.shape[-1] // 3])

    if tap.kind == "feature":
        return model.norm.register_forward_hook(on_output)
    block = block_at(model, tap.block)
    if tap.kind == "block_in":
        return block.register_forward_pre_hook(on_input)
    if tap.kind == "attn_in":
        # the output of norm1, not the input of attn: a prefix wrapper may stand in for attn
        return block.norm1.register_forward_hook(on_output)
    return attention_of(block).qkv.register_forward_hook(on_qkv)
