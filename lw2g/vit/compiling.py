"""Compiled forwards of a transformer's blocks: one compilation serves all blocks, tasks and sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

__all__ = ["allow_compilations", "compiled"]

_COMPILATIONS = 64
"""Variants of a block that torch may compile: batch sizes, with and without prefix and gradients."""


def allow_compilations() -> None:
    """Let torch compile as many variants of a block as a run needs."""
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    setattr(torch._dynamo.config, limit, max(getattr(torch._dynamo.config, limit), _COMPILATIONS))


@contextmanager
def compiled(block: Any, backend: str) -> Iterator[None]:
    """Let a block run its compiled forward within the context, unless its modules have hooks or updates."""
    for module in block.modules():
        is_changed = module._forward_hooks or module._forward_pre_hooks or getattr(module, "update", None)
        if module is not block and is_changed:
            yield
            return
    # forward is compiled, not __call__: the block's own hooks, which differ between calls, stay outside
    block.forward = partial(_compiled_forward(backend), block)
    try:
        yield
    finally:
        del block.forward


# rotary embeddings, masks and shared biases come by keyword
def _forward(block: Any, x: Tensor, **arguments: Any) -> Any:
    return type(block).forward(block, x, **arguments)


@cache
def _compiled_forward(backend: str) -> Callable[..., Tensor]:
    return torch.compile(_forward, backend=backend, dynamic=False)
