"""The contract of injections, and their installation into a timm ViT within a context.

An injection hooks or wraps sub-modules inside ``install``, and removes everything on leaving the context,
also if the forward raises. Outside the context the model is the plain timm model: the same module objects,
the same state-dict keys, no hooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from timm.layers import PatchEmbed
from timm.models.vision_transformer import Attention, Block, VisionTransformer
from torch import Tensor, nn

from lw2g.errors import ConfigError, ContractError

__all__ = [
    "AddsTokens",
    "Injection",
    "attention_of",
    "block_at",
    "class_token_index",
    "inject",
    "num_tokens",
    "real_tokens",
    "require_plain_vit",
]


class Injection(Protocol):
    """Parameters that take part in the forward of a frozen ViT within a context only."""

    def install(self, model: VisionTransformer) -> AbstractContextManager[None]:
        """Return a context in which ``model`` computes with the injection; after it the model is plain."""
        ...


@runtime_checkable
class AddsTokens(Protocol):
    """An injection that adds rows to the token stream and knows the position of the class token.

    It must add rows before the patch tokens, so that the last ``num_tokens - 1`` rows of any stream are the
    model's own (registers and patches).
    """

    def class_token_index(self, num_rows: int, num_tokens: int) -> int:
        """Return the row of the class token among ``num_rows``, for a model with ``num_tokens`` tokens."""
        ...


@contextmanager
def inject(model: VisionTransformer, injections: Sequence[Injection]) -> Iterator[None]:
    """Install several injections within the context, the first one outermost.

    Raises:
        ContractError: More than one of them adds tokens; give one ``TokenInjection`` all the rows instead.
    """
    _token_adder(injections)
    with ExitStack() as stack:
        for injection in injections:
            stack.enter_context(injection.install(model))
        yield


def require_plain_vit(model: VisionTransformer) -> None:
    """Refuse a ViT that injections do not support.

    A plain ViT is a timm ``VisionTransformer`` of timm ``Block`` s on linear patches of square images, with a
    pooled class token, a final norm before pooling, fused qkv without query or key norm, no classifier and
    no gradient checkpointing.

    Raises:
        ConfigError: The model is no plain ViT.
    """
    if getattr(model, "rope", None) is not None:
        raise ConfigError(
            f"model {type(model).__name__!r} is not supported: it rotates queries and keys (RoPE, as in "
            "DINOv3), and prefixes and tokens have no place to be rotated to",
            "use a plain ViT, say dinov2-b14",
        )
    if type(model) is not VisionTransformer:
        raise ConfigError(
            f"model {type(model).__name__!r} is not supported", "plain ViTs only: timm's VisionTransformer"
        )
    if model.global_pool != "token" or model.cls_token is None:
        raise ConfigError(f"pooling {model.global_pool!r} is not supported", "build it with token pooling")
    if next(model.fc_norm.parameters(), None) is not None or next(model.norm.parameters(), None) is None:
        raise ConfigError("a norm after pooling is not supported", "build the model with fc_norm=False")
    if not isinstance(model.head, nn.Identity):
        raise ConfigError("a backbone has no classifier", "build the model with num_classes=0")
    if type(model.patch_embed) is not PatchEmbed:
        # patches of a network's features: sizes, FLOPs and the expected input are those of the image here
        raise ConfigError(
            f"patches made by {type(model.patch_embed).__name__!r} are not supported (a hybrid ViT has a "
            "convolutional network before its blocks)",
            "use a plain ViT, which cuts the image itself, say vit_tiny_patch16_224",
        )
    size = model.patch_embed.img_size
    if size is None or len(set(size)) != 1:
        raise ConfigError(f"image size {size!r} is not square", "build the model with img_size")
    if model.grad_checkpointing:
        # the backward would recompute blocks without the injections
        raise ConfigError("gradient checkpointing is not supported", "call set_grad_checkpointing(False)")
    for block in model.blocks:
        if type(block) is not Block:
            raise ConfigError(f"block {type(block).__name__!r} is not supported", "use a ViT of plain Blocks")
        attention_of(block)


def block_at(model: VisionTransformer, index: int) -> Any:
    """Return block ``index`` of the model.

    Raises:
        ConfigError: The model has no such block.
    """
    depth = len(model.blocks)
    if not 0 <= index < depth:
        raise ConfigError(f"block {index!r} does not exist", f"this backbone has blocks 0 to {depth - 1}")
    return model.blocks[index]


def attention_of(block: nn.Module) -> Any:
    """Return the block's own timm attention, also if a wrapper holds it as ``base``.

    Raises:
        ConfigError: It is not timm's plain attention with a fused qkv, for which alone prefixes and low-rank
            updates are defined.
    """
    attention = getattr(block, "attn", None)
    attention = getattr(attention, "base", attention)
    if not isinstance(attention, Attention) or not hasattr(attention, "qkv"):
        raise ConfigError(
            f"attention {type(attention).__name__!r} is not supported",
            "use a ViT with timm's plain Attention",
        )
    normed = [name for name in ("q_norm", "k_norm") if not isinstance(getattr(attention, name), nn.Identity)]
    if normed:
        raise ConfigError(f"attention with {normed[0]!r} is not supported", "use a ViT without it")
    if getattr(attention, "gate", None) is not None:
        raise ConfigError("attention with 'gate' is not supported", "use a ViT without gated attention")
    return attention


def num_tokens(model: VisionTransformer) -> int:
    """Return the number of tokens of the plain model: class token, registers if any, and patches."""
    return int(model.patch_embed.num_patches + model.num_prefix_tokens)


def class_token_index(injections: Sequence[Injection], num_rows: int, tokens: int) -> int:
    """Return the row of the class token in a stream of ``num_rows`` rows under ``injections``.

    Args:
        injections: The active injections.
        num_rows: Number of rows of the stream, added ones included.
        tokens: ``num_tokens(model)``.

    Raises:
        ContractError: The stream has added rows, but no injection adds tokens.
    """
    adder = _token_adder(injections)
    if adder is not None:
        return adder.class_token_index(num_rows, tokens)
    if num_rows != tokens:
        raise ContractError(
            f"the token stream has {num_rows} rows where the model has {tokens} tokens",
            "an injection that adds tokens must offer class_token_index",
        )
    return 0


def real_tokens(x: Tensor, tokens: int, class_token: int) -> Tensor:
    """Return the model's own rows of a stream: [B, R, d] -> [B, tokens, d], the class token first.

    The same tensor comes back when no row was added.
    """
    rows = x.shape[1]
    if rows == tokens:
        return x
    # cat of two slices, not indexing by a list: cheap, and no host-to-device copy
    return torch.cat([x[:, class_token : class_token + 1], x[:, rows - (tokens - 1) :]], dim=1)


def _token_adder(injections: Sequence[Injection]) -> AddsTokens | None:
    adders = [injection for injection in injections if isinstance(injection, AddsTokens)]
    if len(adders) > 1:
        names = ", ".join(repr(type(adder).__name__) for adder in adders)
        raise ContractError(f"{names} add tokens in one forward", "put all rows into one token injection")
    return adders[0] if adders else None
