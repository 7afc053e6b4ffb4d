"""Compiled forwards of a transformer's blocks: one compilation serves all blocks, tasks and sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from lw2g.ground.notes import tell_note_once
from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.injection import Injection
from lw2g.vit.low_rank import LayerInjection, LowRankInjection

__all__ = ["allow_compilations", "compiled", "tell_uncompiled"]

_COMPILATIONS = 64
"""Variants of a block that torch may compile: batch sizes, with and without prefix and gradients."""

_UPDATES = (AdapterInjection, LayerInjection, LowRankInjection)
"""Injections that update layers within blocks."""


def allow_compilations() -> None:
    """Let torch compile as many variants of a block as a run needs."""
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    setattr(torch._dynamo.config, limit, max(getattr(torch._dynamo.config, limit), _COMPILATIONS))


def tell_uncompiled(injections: Sequence[Injection]) -> None:
    """Note once that updates of layers leave blocks uncompiled in training, where there are such updates.

    They are hooks within a block, others for each set and task, and what is compiled sees no change of them.
    """
    if torch.is_grad_enabled() and any(isinstance(one, _UPDATES) for one in injections):
        tell_note_once(
            "run.compile: blocks whose layers are updated (low-rank updates, adapters) train uncompiled, and "
            "no faster than without it"
        )


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
