"""The model's own feature and those of several layers, of one forward: what a choice between them needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from torch import Tensor, nn

from lw2g.vit.anatomy import blocks_of, has_blocks
from lw2g.vit.backbone import Backbone
from lw2g.vit.pooling import joined_width, pooled, resolve_pool

__all__ = ["gathering_own", "joined_layers", "with_layers"]


def joined_layers(backbone: Backbone, widest: int) -> int:
    """Return how many of the last layers can be joined, class tokens and patches, within a width; 1 for none.

    Args:
        backbone: A backbone; of a network without blocks, whose stages have widths of their own, none are.
        widest: The most numbers of an image.
    """
    model = backbone.model
    if not has_blocks(model):
        return 1
    pool = resolve_pool(model, "default", 2)
    of_two = joined_width(model, backbone.dim, 2, pool)
    return max(1, min(backbone.depth + 1, widest // (of_two // 2)))


def with_layers(backbone: Backbone, layers: int) -> Backbone:
    """Return a backbone of the same model, whose features are of several of its last layers.

    Args:
        backbone: One of one layer.
        layers: How many.
    """
    model = backbone.model
    pool = resolve_pool(model, "default", layers)
    width = joined_width(model, backbone.dim, layers, pool)
    known = attrs.evolve(backbone.fingerprint, layers=layers, pool=pool, width=width)
    return Backbone(model, name=backbone.name, fingerprint=known)


@contextmanager
def gathering_own(backbone: Backbone) -> Iterator[list[Tensor]]:
    """Gather the feature of one layer of each batch whose joined features are computed within the context.

    Args:
        backbone: One of one layer, whose model is the one that computes.
    """
    model: Any = backbone.model
    gathered: list[Tensor] = []

    def gather(module: nn.Module, args: Any, output: Tensor) -> None:
        gathered.append(pooled(model, model.norm(output), backbone.fingerprint.pool).float())

    # before hooks of the forward, which ends with the last block
    handle = list(blocks_of(model))[-1].register_forward_hook(gather)
    try:
        yield gathered
    finally:
        handle.remove()
