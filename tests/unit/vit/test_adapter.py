"""Adapters equal the block formula written out."""

from __future__ import annotations

import torch
from torch import nn

from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.taps import Tap


def _branch(randn, scale=0.1):
    down, up = nn.Linear(48, 5), nn.Linear(5, 48)
    with torch.no_grad():
        for parameter in (*down.parameters(), *up.parameters()):
            parameter.copy_(randn(*parameter.shape))
    return lambda h: scale * up(torch.relu(down(h))), (down, up)


def _formula(model, images, branches):
    h = model._pos_embed(model.patch_embed(images))
    for i, block in enumerate(model.blocks):
        h1 = h + block.attn(block.norm1(h))
        h = h1 + block.mlp(block.norm2(h1)) + (branches[i](h1) if i in branches else 0)
    return model.norm(h)


def test_equals_the_formula(backbone, images, randn):
    """h = h1 + MLP(norm2(h1)) + branch(h1), the branch reading the un-normalised stream after attention."""
    branches = {i: _branch(randn)[0] for i in (0, 1, 3)}
    ours = backbone.tokens(images, [AdapterInjection(branches)])
    torch.testing.assert_close(ours, _formula(backbone.model, images, branches), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(ours, backbone.tokens(images), atol=1e-2)


def test_zero_up_is_a_no_op(backbone, images, randn):
    """An adapter whose up-projection is zero leaves all tokens bit-equal."""
    branch, (_, up) = _branch(randn)
    nn.init.zeros_(up.weight)
    nn.init.zeros_(up.bias)
    injection = AdapterInjection(dict.fromkeys(range(4), branch))
    assert torch.equal(backbone.tokens(images, [injection]), backbone.tokens(images))


def test_scale_covers_the_bias(backbone, images, randn):
    """What the branch returns is added as it is: a scale multiplies the bias of the up-projection too."""
    bias = randn(48)
    taps = [Tap(2, "block_in"), Tap(3, "block_in")]
    plain = backbone.activations(images, taps)
    read = backbone.activations(images, taps, [AdapterInjection({2: lambda h: 0.1 * bias.expand_as(h)})])
    assert torch.equal(read[taps[0]], plain[taps[0]])
    torch.testing.assert_close(
        read[taps[1]] - plain[taps[1]], (0.1 * bias).expand(3, 17, 48), atol=1e-4, rtol=1e-4
    )


def test_two_adapters_at_one_block_add_up(backbone, images, randn):
    """Branches of two injections at one block are summed."""
    (a, _), (b, _) = _branch(randn), _branch(randn)
    separate = backbone.features(images, [AdapterInjection({1: a}), AdapterInjection({1: b})])
    together = backbone.features(images, [AdapterInjection({1: lambda h: a(h) + b(h)})])
    torch.testing.assert_close(separate, together, atol=1e-5, rtol=1e-5)


def test_gradients_reach_the_branch(backbone, images, randn):
    """Parameters of the branch get gradients, those of the backbone none."""
    branch, (down, up) = _branch(randn)
    backbone.features(images, [AdapterInjection({1: branch})]).square().sum().backward()
    assert all(p.grad.norm() > 0 for p in (*down.parameters(), *up.parameters()))
    assert all(p.grad is None for p in backbone.parameters())
