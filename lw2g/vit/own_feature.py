"""The model's own feature and those of several layers, of one forward: what a choice between them needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from torch import Tensor, nn

from lw2g.vit.anatomy import blocks_of
from lw2g.vit.backbone import Backbone
from lw2g.vit.pooling import class_tokens, joined_width, pooled, resolve_layers, resolve_pool

__all__ = ["gathering_own", "own_columns", "with_layers"]


def with_layers(backbone: Backbone, layers: int) -> Backbone:
    """Return a backbone of the same model, whose features are of so many of its last layers.

    Args:
        backbone: One whose pooling is the default one.
        layers: How many.

    Raises:
        ConfigError: The model has not as many.
    """
    model = backbone.model
    resolve_layers(model, layers)
    pool = resolve_pool(model, "default", layers)
    width = joined_width(model, backbone.dim, layers, pool)
    known = attrs.evolve(backbone.fingerprint, layers=layers, pool=pool, width=width)
    return Backbone(model, name=backbone.name, fingerprint=known)


def own_columns(backbone: Backbone) -> tuple[int, int]:
    """Return the columns of a joined feature where the last layer's class tokens stand: from, and up to.

    Of a pooling without class tokens it is the mean of the patches; of features that are not joined, or of
    stored ones, it is all of them.
    """
    known = backbone.fingerprint
    if not backbone.joins or backbone.takes_vectors:
        return 0, known.width
    if known.pool == "avg":
        return known.width - known.dim, known.width
    tokens = class_tokens(backbone.model) * known.dim
    last = tokens if known.pool == "token" else tokens + known.dim
    return known.width - last, known.width - last + tokens


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
