"""Features of several layers, joined: class tokens and means of patch tokens of one forward.

The layers are the outputs of the blocks before any norm, and then the output of the final norm. Each part
has zero mean and unit variance within its vector: there are no statistics to learn, so that nothing depends
on the order of tasks. LayUP (Ahrens et al., arXiv:2312.08888) joins class tokens of the last blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.vit.anatomy import blocks_of, num_tokens
from lw2g.vit.injection import Injection, class_token_index, real_tokens
from lw2g.vit.pool_words import Pool
from lw2g.vit.pooling import class_tokens

__all__ = ["JoinedLayers", "joined_stages"]

_EPS = 1e-6
"""As in the norms of ViTs; in front of it a part of equal numbers becomes zeros."""


class JoinedLayers:
    """Joins the parts of the last layers in one forward.

    Args:
        model: The timm ViT.
        layers: How many of its last layers, 1 for the final norm's output alone.
        pool: Which parts: ``token``, ``avg`` or ``both``.
        injections: Those of the forward, which may add rows.
    """

    def __init__(
        self, model: nn.Module, layers: int, pool: Pool, injections: Sequence[Injection] = ()
    ) -> None:
        self._model: Any = model
        self._layers = layers
        self._pool = pool
        self._injections = injections
        self._tokens = num_tokens(model)
        self._parts: list[Tensor] = []

    @property
    def read_one_row(self) -> bool:
        """Whether of every layer one class token alone is read."""
        return self._pool == "token" and class_tokens(self._model) == 1

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Take the parts of each layer but the last one as a forward within the context passes it.

        Enter it after injections, so that their hooks run first.
        """
        blocks = list(blocks_of(self._model))
        with ExitStack() as stack:
            for block in blocks[len(blocks) - (self._layers - 1) :]:
                stack.enter_context(block.register_forward_hook(self._gather))
            yield

    def features(self, x: Tensor, norm: nn.Module | None = None) -> Tensor:
        """Return the joined features, float32 ``[B, width]``: layer by layer, class tokens before patches.

        Args:
            x: The output of the last block.
            norm: Stands in place of the model's final norm.
        """
        tokens, patches = self._groups(x)
        # only of rows that are read: a norm takes each by itself
        if norm is None:
            tokens = self._model.fc_norm(self._model.norm(tokens))
            means = self._model.fc_norm(_means(self._model.norm(patches)))
        else:
            tokens = norm(tokens.float())
            means = _means(norm(patches.float()))
        self._take(tokens, means)
        # all at once: each is a vector of its own, and a call for each took longer than the norm
        return _unit(torch.stack(self._parts, dim=1)).flatten(1)

    def _gather(self, module: nn.Module, args: Any, output: Tensor) -> None:
        tokens, patches = self._groups(output)
        self._take(tokens, _means(patches))

    def _groups(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return class tokens ``[B, c, dim]`` and patches ``[B, p, dim]``; none of what is not pooled."""
        x = real_tokens(x, self._tokens, class_token_index(self._injections, x.shape[1], self._tokens))
        num_tokens = 0 if self._pool == "avg" else class_tokens(self._model)
        # class tokens and registers stand before the patches
        first_patch = x.shape[1] if self._pool == "token" else self._model.num_prefix_tokens
        return x[:, :num_tokens], x[:, first_patch:]

    def _take(self, tokens: Tensor, means: Tensor) -> None:
        """Add parts ``[B, parts, dim]``, in copies, so that tokens can be freed."""
        for row in tokens.unbind(1):
            self._parts.append(row.to(torch.float32, copy=True))
        self._parts += means.unbind(1)


def joined_stages(model: Any, images: Tensor, layers: int) -> Tensor:
    """Return the joined features of a network whose blocks are not known, float32 ``[B, width]``.

    The layers are the stages that timm returns, the parts their means over positions; the last part is the
    model's own feature.

    Args:
        model: The timm model.
        images: ``[B, 3, S, S]``.
        layers: How many of its last layers.
    """
    last, stages = model.forward_intermediates(images, indices=layers - 1, norm=False, output_fmt="NCHW")
    parts = [_unit(stage.float().mean(dim=(2, 3))) for stage in stages]
    parts.append(_unit(model.forward_head(last, pre_logits=True)))
    return torch.cat(parts, dim=1)


def _unit(part: Tensor) -> Tensor:
    """Bring vectors ``[..., dim]`` to zero mean and unit variance each."""
    return functional.layer_norm(part.float(), part.shape[-1:], eps=_EPS)


def _means(patches: Tensor) -> Tensor:
    """Return the mean of patch tokens, float32 ``[B, 1, dim]``; ``[B, 0, dim]`` of none."""
    if not patches.shape[1]:
        return patches.float()
    return patches.float().mean(dim=1, keepdim=True)
