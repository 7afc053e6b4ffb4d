"""Tiny ViTs with random weights, and a way to see whether a model was left as it was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from lw2g.vit.backbone import Backbone

SIZE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 4, "num_heads": 4, "num_classes": 0}


@pytest.fixture
def make_vit() -> Callable[..., VisionTransformer]:
    """Build a ViT whose weights are far enough from timm's initialisation for attention to be uneven."""

    def make(**changes: Any) -> VisionTransformer:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            model = VisionTransformer(**{**SIZE, **changes})
            for parameter in model.parameters():
                nn.init.normal_(parameter, mean=float(parameter.ndim == 1) * 0.1, std=0.2)
        return model.eval()

    return make


@pytest.fixture
def backbone(make_vit: Callable[..., VisionTransformer]) -> Backbone:
    """Wrap a tiny ViT: 17 tokens, width 48, 4 blocks, 4 heads."""
    return Backbone.wrap(make_vit(), name="tiny")


@pytest.fixture
def images() -> Tensor:
    """Three images for the tiny ViT."""
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def randn() -> Callable[..., Tensor]:
    """Draw from one seeded generator."""
    generator = torch.Generator().manual_seed(5)
    return lambda *shape: torch.randn(*shape, generator=generator)


@pytest.fixture
def snapshot() -> Callable[[nn.Module], Any]:
    """Describe a model by its module objects, state-dict keys, tensors' versions and hooks."""

    def describe(model: nn.Module) -> Any:
        modules = [(name, id(module)) for name, module in model.named_modules()]
        versions = [(name, id(t), t._version, t.requires_grad) for name, t in model.named_parameters()]
        hooks = {
            (name, kind): len(getattr(module, kind))
            for name, module in model.named_modules()
            for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        }
        return modules, versions, list(model.state_dict()), hooks

    return describe
