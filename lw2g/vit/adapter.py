"""Adapters parallel to the MLP of frozen blocks (AdaptFormer, as used by Aper)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs
from torch import Tensor, nn
from torch.nn import functional

from lw2g.vit.anatomy import block_at, require_rung

__all__ = ["AdapterInjection", "Bottleneck"]


@attrs.frozen(kw_only=True, eq=False)
class Bottleneck:
    """A branch ``scale * (up z + up_bias)`` with the inner activations ``z = relu(down h + down_bias)``.

    Attributes:
        down: ``[r, d]``, or per sample ``[B, r, d]``; the others likewise.
        down_bias: ``[r]``.
        up: ``[d, r]``.
        up_bias: ``[d]``.
        scale: Factor on the branch.
        dropout: Dropout between its layers; 0 except in training.
    """

    down: Tensor
    down_bias: Tensor
    up: Tensor
    up_bias: Tensor
    scale: float = 1.0
    dropout: float = 0.0

    def inner(self, stream: Tensor) -> Tensor:
        """Return the inner activations z, ``[B, N, d]`` -> ``[B, N, r]``."""
        return functional.relu(stream @ self.down.mT + self.down_bias[..., None, :])

    def __call__(self, stream: Tensor) -> Tensor:
        """Return the output of the branch, ``[B, N, d]``."""
        inner = functional.dropout(self.inner(stream), self.dropout, self.dropout > 0)
        return self.scale * (inner @ self.up.mT + self.up_bias[..., None, :])


@attrs.frozen(eq=False)
class AdapterInjection:
    """Branches parallel to the MLP: h = h1 + MLP(norm2(h1)) + branch(h1), with h1 the stream after attention.

    Attributes:
        branches: Block index to branch, [B, N, d] -> [B, N, d]; its input is not normalised.
        whole: Whether a branch gets all tokens in the last block too, of which only the class token is read;
            needed if its output at a token depends on the other tokens.
    """

    branches: Mapping[int, Callable[[Tensor], Tensor]]
    whole: bool = False

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Add the branches by hooks on ``norm2`` and ``drop_path2`` within the context."""
        require_rung(model, "adapters", self.branches)
        with ExitStack() as stack:
            for index, branch in self.branches.items():
                _add_branch(stack, block_at(model, index), branch, self.whole)
            yield

    def published(self, block: int, stream: Tensor) -> Tensor | None:
        """Return a bottleneck's inner activations for the stream after attention; None without one there."""
        branch = self.branches.get(block)
        if not isinstance(branch, Bottleneck):
            return None
        return branch.inner(stream)


def _add_branch(stack: ExitStack, block: Any, branch: Callable[[Tensor], Tensor], whole: bool) -> None:
    """Add ``branch(h)`` to a block's stream after its MLP, with h the stream after attention.

    Args:
        stack: Holds the hooks.
        block: The block.
        branch: Maps ``[B, N, dim]`` to the same.
        whole: Whether h has all tokens where the block goes on with the class token alone.
    """
    # norm2 gets the residual stream after attention; drop_path2 is the last module before the MLP is added
    pending: list[Tensor] = []

    def see(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        """Keep the stream after attention, ``[B, N, dim]``, until the block's MLP is added to it."""
        pending[:] = [args[0]]

    def add(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """Add the branch to what the MLP gives, ``[B, N, dim]``."""
        return output + branch(pending.pop())

    # with ``whole`` it runs before the hook that keeps only the class token
    stack.enter_context(block.norm2.register_forward_pre_hook(see, prepend=whole))
    stack.enter_context(block.drop_path2.register_forward_hook(add))
