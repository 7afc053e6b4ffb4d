"""A tiny frozen ViT with room for prompts, and the stream that all families share."""

from __future__ import annotations

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from lw2g.vit.backbone import Backbone


@pytest.fixture(scope="session")
def tiny_backbone() -> Backbone:
    """A random ViT of six blocks and width 48."""
    torch.manual_seed(0)
    size = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 6, "num_heads": 4, "num_classes": 0}
    return Backbone.wrap(VisionTransformer(**size), name="tiny random ViT")


@pytest.fixture
def bench(tiny_backbone: Backbone, bench_of):
    """The tiny backbone and the stream, with a fixed global seed."""
    return bench_of(tiny_backbone)
