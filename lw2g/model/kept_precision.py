"""A module that keeps its parameters as they are: it moves, and takes no other type of numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Self

import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.runtime.engine import find_device

__all__ = ["KeepsPrecision"]


class KeepsPrecision(nn.Module):
    """A module that ``to(device)`` moves, and that refuses ``half()`` and the like.

    Its parts compute in several precisions; in one of them forwards would fail, or answer otherwise.
    """

    def to(self, *arguments: Any, **named: Any) -> Self:
        """Move the module, as ``torch.nn.Module.to`` does.

        Raises:
            ConfigError: There is no such device, or the type of numbers would change.
        """
        device = named.get("device", arguments[0] if arguments else None)
        if isinstance(device, str | torch.device):
            find_device(str(device))
        moved: Self = super().to(*arguments, **named)
        return moved

    def cuda(self, device: int | torch.device | None = None) -> Self:
        """Move the module to a GPU, as :meth:`to` does."""
        return self.to("cuda" if device is None else torch.device(device))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Change all tensors, as ``to``, ``half`` and others do.

        Raises:
            ConfigError: Their type would change.
        """
        # asked before the first one changes; sums are in float64, and the network is not
        for dtype in dict.fromkeys(tensor.dtype for tensor in chain(self.parameters(), self.buffers())):
            changed = fn(torch.zeros(1, dtype=dtype)).dtype
            if changed != dtype:
                raise ConfigError(
                    f"a model keeps its numbers as they are: {dtype} cannot become {changed}",
                    "to move it: model.to(device)",
                )
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied
