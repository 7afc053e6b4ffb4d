"""A tiny frozen ViT for low-rank baselines, and ways to move and to copy what sets hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lw2g_testing.tiny import tiny_backbone


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Draws of a test depend on that test alone."""
    torch.manual_seed(2)


@pytest.fixture
def bench(bench_of):
    """A random ViT of six blocks and width 32, and the stream, with a fixed global seed."""
    return bench_of(tiny_backbone())


@pytest.fixture
def moved() -> Callable[..., None]:
    """Give sets random values, so that they differ and their up factors are not zero."""

    def move(*sets: torch.nn.Module, scale: float = 0.2) -> None:
        for item in sets:
            for parameter in item.parameters():
                parameter.data = scale * torch.randn_like(parameter)

    return move
