"""Adapters parallel to the MLP of frozen blocks (AdaptFormer, as used by Aper)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from lw2g.vit.injection import block_at

__all__ = ["AdapterInjection"]


@attrs.frozen(eq=False)
class AdapterInjection:
    """Branches beside the MLP: h = h1 + MLP(norm2(h1)) + branch(h1), with h1 the stream after attention.

    Attributes:
        branches: Block index to branch, [B, N, d] -> [B, N, d]; its input is not normalised.
    """

    branches: Mapping[int, Callable[[Tensor], Tensor]]

    @contextmanager
    def install(self, model: VisionTransformer) -> Iterator[None]:
        """Add the branches by hooks on ``norm2`` and ``drop_path2``, removed on leaving."""
        with ExitStack() as stack:
            for index, branch in self.branches.items():
                _add_branch(stack, block_at(model, index), branch)
            yield


def _add_branch(stack: ExitStack, block: Any, branch: Callable[[Tensor], Tensor]) -> None:
    # norm2 sees the residual stream after attention; drop_path2 is the last module before it is added back
    pending: list[Tensor] = []

    def see(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        pending[:] = [args[0]]

    def add(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output + branch(pending.pop())

    stack.enter_context(block.norm2.register_forward_pre_hook(see))
    stack.enter_context(block.drop_path2.register_forward_hook(add))
