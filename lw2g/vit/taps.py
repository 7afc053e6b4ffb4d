"""Taps: places in the ViT whose activations are read (``Tap``), and their recording (``capture``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import attrs
from torch import Tensor, nn

from lw2g.errors import ConfigError, ContractError
from lw2g.vit.anatomy import (
    attention_of,
    block_at,
    is_pre_norm,
    merged_biases,
    num_tokens,
    projections_of,
)
from lw2g.vit.attention import normed, rotated
from lw2g.vit.injection import Injection, class_token_index, real_tokens

__all__ = ["Publishes", "Tap", "TapKind", "capture"]

TapKind = Literal[
    "query",
    "query_used",
    "attn_in",
    "attn_out",
    "block_in",
    "block_mid",
    "block_out",
    "mlp_in",
    "mlp_hidden",
    "published",
    "feature",
]
"""The places where activations are read; :class:`Tap` says which is which."""
_KINDS = get_args(TapKind)
_READ_AT_NORMS = ("attn_in", "mlp_in", "block_mid", "published")


def _block_fits_kind(tap: Tap, attribute: attrs.Attribute[int], block: int) -> None:
    if tap.kind == "feature":
        if block != -1:
            raise ValueError(f"expected block -1 for a feature tap but got {block!r}")
    elif block < 0:
        raise ValueError(f"expected a block index from 0 for a {tap.kind} tap but got {block!r}")


@attrs.frozen
class Tap:
    """A place in the ViT whose activations are read, one row per token of the plain model.

    Rows that an injection adds to the stream are left out; prefixes are no rows.

    Attributes:
        block: Block index from 0; -1 for a feature tap, which belongs to no block.
        kind: ``query`` = output of the queries' projection, bias and low-rank updates included;
            ``query_used`` = these as they meet the keys: normalised per head and rotated, if they are;
            ``attn_in`` = input of the attention, after ``norm1``; ``attn_out`` = concatenated outputs of the
            heads, before the attention's projection; ``block_in`` = residual stream before ``norm1``;
            ``block_mid`` = residual stream after attention, before ``norm2``; ``block_out`` = residual stream
            after the block; ``mlp_in`` = input of the MLP, after ``norm2``; ``mlp_hidden`` = inner
            activations of the MLP, of its width; ``published`` =
            inner activations that an injection computes from ``block_mid``, of its own width
            (:class:`Publishes`); ``feature`` = the pooled feature.
    """

    block: int = attrs.field(validator=_block_fits_kind)
    kind: TapKind = attrs.field(validator=attrs.validators.in_(_KINDS))

    def __str__(self) -> str:
        if self.kind == "feature":
            return "feature"
        return f"blocks.{self.block}.{self.kind}"


@runtime_checkable
class Publishes(Protocol):
    """An injection with parameters that multiply activations computed by the injection itself."""

    def published(self, block: int, stream: Tensor) -> Tensor | None:
        """Return these activations ``[B, N, r]`` for the stream after attention; None without any here."""
        ...


@contextmanager
def capture(
    model: nn.Module, taps: Iterable[Tap], injections: Sequence[Injection] = ()
) -> Iterator[dict[Tap, Tensor]]:
    """Record the activations at ``taps`` in every forward within the context.

    The dictionary holds those of the latest forward: float32 [B, tokens, d] per tap (the injection's own
    width for a ``published`` one), with their graph if autograd is on. Enter it *inside* ``inject``, so that
    hooks of the injections run first. A feature is pooled by the backbone, which alone reads its tap.

    Args:
        model: The timm ViT.
        taps: Where to read.
        injections: The active injections, which may add rows and publish activations.

    Raises:
        ConfigError: A tap names a block that the model does not have, or at which nothing is published.
    """
    tokens = num_tokens(model)
    seen: dict[Tap, Tensor] = {}

    def record(tap: Tap, x: Tensor) -> None:
        """Keep a stream ``[B, N, d]`` without the rows that injections have added."""
        index = class_token_index(injections, x.shape[1], tokens)
        # a copy, so that the sliced tensor can be freed
        seen[tap] = real_tokens(x, tokens, index).contiguous().float()

    def publish(tap: Tap, stream: Tensor) -> None:
        """Record what the one injection that publishes at a tap publishes there."""
        published = []
        for injection in injections:
            rows = injection.published(tap.block, stream) if isinstance(injection, Publishes) else None
            if rows is not None:
                published.append(rows)
        # were there two, it would be open whose activations the tap's readers get
        if len(published) != 1:
            raise ConfigError(
                f"tap {str(tap)!r} reads what one injection publishes, and here {len(published)} do",
                "read it in a forward under that injection",
            )
        record(tap, published[0])

    with ExitStack() as stack:
        stack.enter_context(merged_biases(model))
        for tap in dict.fromkeys(taps):
            stack.enter_context(_hook(model, tap, publish if tap.kind == "published" else record))
        yield seen


def _hook(model: nn.Module, tap: Tap, record: Callable[[Tap, Tensor], None]) -> Any:
    """Hand what the tap reads to ``record`` in every forward; return what ends that when left as a context.

    Raises:
        ContractError: The tap is that of a feature, which no module has.
        ConfigError: The block has no place for the tap.
    """

    def on_input(module: Any, args: tuple[Tensor, ...]) -> None:
        """Hand on what enters a module."""
        record(tap, args[0])

    def on_output(module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Hand on what leaves a module."""
        record(tap, output)

    def on_query(module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Hand on the queries, which come first in what a projection gives."""
        record(tap, output[..., :width])

    if tap.kind == "feature":
        raise ContractError("a feature is pooled by the backbone", "read its tap with Backbone.activations")
    block = block_at(model, tap.block)
    if tap.kind in _READ_AT_NORMS and not is_pre_norm(block):
        raise ConfigError(
            f"tap {str(tap)!r} reads the stream at a norm, and {type(block).__name__!r} normalises elsewhere",
            "read the query, the block's input or what its linear layers multiply",
        )
    if tap.kind == "block_in":
        return block.register_forward_pre_hook(on_input)
    if tap.kind == "block_out":
        return block.register_forward_hook(on_output)
    if tap.kind == "attn_in":
        # the output of norm1, not the input of attn: a prefix wrapper may replace attn
        return block.norm1.register_forward_hook(on_output)
    if tap.kind == "mlp_in":
        return block.norm2.register_forward_hook(on_output)
    if tap.kind == "mlp_hidden":
        return block.mlp.fc2.register_forward_pre_hook(on_input)
    if tap.kind in ("block_mid", "published"):
        return block.norm2.register_forward_pre_hook(on_input)
    attention = attention_of(block)
    if tap.kind == "attn_out":
        return attention.proj.register_forward_pre_hook(on_input)
    name, projection = next(iter(projections_of(attention).items()))
    width = projection.out_features
    if name == "qkv":
        # the first third of a fused projection's output are the queries
        width //= 3
    if tap.kind == "query":
        return projection.register_forward_hook(on_query)
    return _on_used_query(block, projection, width, lambda used: record(tap, used))


@contextmanager
def _on_used_query(
    block: Any, projection: nn.Linear, width: int, record: Callable[[Tensor], None]
) -> Iterator[None]:
    """Hand on each forward's queries as they meet the keys: normalised per head and rotated."""
    attention = attention_of(block)
    ropes: list[Tensor | None] = []

    def see(module: nn.Module, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        ropes[:] = [arguments.get("rope")]

    def use(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Do with a projection's queries ``[B, N, width]`` what the attention does with them next."""
        rows = output[..., :width]
        heads = rows.reshape(*rows.shape[:2], attention.num_heads, -1).transpose(1, 2)
        query = rotated(attention, normed(attention, "q_norm", heads), ropes[0], like=output)
        record(query.transpose(1, 2).flatten(2))

    # the block hands the rotation on: its attention may be replaced by a wrapper, which calls the projection
    with (
        block.register_forward_pre_hook(see, with_kwargs=True),
        projection.register_forward_hook(use),
    ):
        yield
