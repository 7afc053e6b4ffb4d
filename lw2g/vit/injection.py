"""The contract of injections, and their installation into a timm ViT within a context.

An injection hooks or wraps sub-modules inside ``install``, and removes everything on leaving the context,
also if the forward raises. Outside the context the model is the plain timm model: the same module objects,
the same state-dict keys, no hooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lw2g.errors import ContractError
from lw2g.vit.anatomy import attention_of, block_at, merged_biases, num_tokens

__all__ = [
    "AddsTokens",
    "Injection",
    "ReadsTokens",
    "attention_of",
    "block_at",
    "class_token_index",
    "in_product_dtype",
    "inject",
    "num_tokens",
    "real_tokens",
]


class Injection(Protocol):
    """Parameters that take part in the forward of a frozen ViT within a context only."""

    def install(self, model: nn.Module) -> AbstractContextManager[None]:
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


@runtime_checkable
class ReadsTokens(Protocol):
    """An injection that says whether it reads other tokens of the last block than the class token.

    Without it only the class token's row of that block is computed, which alone is read afterwards.
    """

    whole: bool


@contextmanager
def inject(model: nn.Module, injections: Sequence[Injection]) -> Iterator[None]:
    """Install several injections within the context, the first one outermost.

    Raises:
        ContractError: More than one of them adds tokens; give one ``TokenInjection`` all the rows instead.
    """
    _token_adder(injections)
    with ExitStack() as stack:
        for injection in injections:
            stack.enter_context(injection.install(model))
        # last: an injection may replace the bias of queries, which is merged into the module's
        stack.enter_context(merged_biases(model))
        yield


def in_product_dtype(tensor: Tensor) -> Tensor:
    """Return a factor of several products in the dtype of products: autocast's where it is on, else its own.

    It is cast once then, and so is its gradient; autocast would cast it for each product.
    """
    kind = tensor.device.type
    if tensor.dtype == torch.float32 and torch.is_autocast_enabled(kind):
        return tensor.to(torch.get_autocast_dtype(kind))
    return tensor


def class_token_index(injections: Sequence[Injection], num_rows: int, tokens: int) -> int:
    """Return the row of the class token in a stream of ``num_rows`` rows under ``injections``.

    Args:
        injections: The active injections.
        num_rows: Number of rows of the stream, added ones included.
        tokens: ``num_tokens(model)``; 0 where the images alone decide.

    Raises:
        ContractError: The stream has added rows, but no injection adds tokens.
    """
    adder = _token_adder(injections)
    if adder is not None:
        return adder.class_token_index(num_rows, tokens)
    if tokens and num_rows != tokens:
        raise ContractError(
            f"the token stream has {num_rows} rows where the model has {tokens} tokens",
            "an injection that adds tokens must offer class_token_index",
        )
    return 0


def real_tokens(x: Tensor, tokens: int, class_token: int) -> Tensor:
    """Return the model's own rows of a stream: [B, R, d] -> [B, tokens, d], in the model's order.

    The same tensor comes back when no row was added.
    """
    rows = x.shape[1]
    if rows == tokens or not tokens:
        return x
    # cat of two slices, not indexing by a list: cheap, and no host-to-device copy
    return torch.cat([x[:, class_token : class_token + 1], x[:, rows - (tokens - 1) :]], dim=1)


def _token_adder(injections: Sequence[Injection]) -> AddsTokens | None:
    """Return the injection that adds tokens, of which there may be one; None without one."""
    adders = [injection for injection in injections if isinstance(injection, AddsTokens)]
    if not adders:
        return None
    if len(adders) > 1:
        names = ", ".join(repr(type(adder).__name__) for adder in adders)
        raise ContractError(f"{names} add tokens in one forward", "put all rows into one token injection")
    return adders[0]
