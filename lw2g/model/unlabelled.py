"""Images whose classes nobody knows, as the batch that components take."""

from __future__ import annotations

import torch
from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.vit.backbone import Backbone

__all__ = ["unlabelled"]


def unlabelled(images: Tensor, backbone: Backbone, retrieval: RetrievalStrategy | None) -> Batch:
    """Return transformed images ``[B, 3, S, S]`` as a batch, whose query is made when it is asked for."""
    # as in training, where the retrieval says at which norm it compares queries
    norm = retrieval is None or retrieval.query_norm

    @torch.no_grad()
    def query() -> Tensor:
        # joining: un-prompted features are of all layers where the backbone joins several
        with backbone.joining():
            return backbone.features(images, norm=norm).float()

    return Batch(
        # nobody knows the true ones, and prediction reads none
        labels=torch.zeros(len(images), dtype=torch.int64, device=images.device),
        samples=torch.arange(len(images)),
        images=lambda: images,
        query=query,
    )
