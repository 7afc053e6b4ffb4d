"""Adapters equal the block formula written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lw2g.errors import ConfigError
from lw2g.vit.adapter import AdapterInjection, Bottleneck
from lw2g.vit.taps import Tap


def _branch(randn, scale=0.1):
    down, up = nn.Linear(48, 5), nn.Linear(5, 48)
    with torch.no_grad():
        for parameter in (*down.parameters(), *up.parameters()):
            parameter.copy_(randn(*parameter.shape))
    return lambda h: scale * up(torch.relu(down(h))), (down, up)


def _bottleneck(randn, *batch):
    shapes = {"down": (5, 48), "down_bias": (5,), "up": (48, 5), "up_bias": (48,)}
    return Bottleneck(scale=0.1, **{name: randn(*batch, *shape) for name, shape in shapes.items()})


def test_taps_lie_where_an_adapter_reads(backbone, images, randn):
    """``block_mid`` is what the down-projection multiplies, ``published`` what the up-projection does."""
    one, taps = (
        _bottleneck(randn),
        [Tap(1, kind) for kind in ("block_in", "block_mid", "mlp_in", "published")],
    )
    read = backbone.activations(images, taps, [AdapterInjection({1: one})])
    start, mid, normed, inner = (read[tap] for tap in taps)
    block = backbone.model.blocks[1]
    torch.testing.assert_close(mid, start + block.attn(block.norm1(start)))
    assert torch.equal(normed, block.norm2(mid))
    torch.testing.assert_close(inner, torch.relu(mid @ one.down.T + one.down_bias))
    assert inner.shape[-1] == 5
    assert bool((inner == 0).any())


def test_what_is_published_needs_a_publisher(backbone, images, randn):
    """Without one injection that publishes at the block there is nothing to read."""
    tap, other = Tap(1, "published"), AdapterInjection({0: _bottleneck(randn), 1: lambda h: h})
    for injections in ([], [other]):
        with pytest.raises(ConfigError, match=r"blocks\.1\.published.*here 0 do"):
            backbone.activations(images, [tap], injections)


@pytest.mark.parametrize("whole", [True, False])
def test_the_last_block_shows_all_tokens_where_asked(backbone, images, randn, whole):
    """Features read the class token alone; a branch over all tokens gets them, and adds the same."""
    rows, one = [], _bottleneck(randn)

    def branch(stream):
        rows.append(stream.shape[1])
        return one(stream)

    found = backbone.features(images, [AdapterInjection({3: branch}, whole=whole)])
    assert rows == [17 if whole else 1]
    torch.testing.assert_close(found, backbone.tokens(images, [AdapterInjection({3: one})])[:, 0])
