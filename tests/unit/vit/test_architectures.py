"""Every architecture that presets name, at small size: all injections and taps equal a ViT written out."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.backbone import Backbone
from lw2g.vit.low_rank import LowRank, LowRankInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection

D, HEADS, DEPTH, SIDE = 48, 4, 3, 4
NAMES = {
    "vit_base_patch16_224": 1,
    "vit_tiny_patch16_224": 1,
    "vit_base_patch16_clip_quickgelu_224": 1,
    "vit_base_patch16_clip_224": 1,
    "vit_base_patch14_dinov2": 1,
    "vit_base_patch14_reg4_dinov2": 5,
    "deit_small_patch16_224": 1,
}


def written_out(model, images, tokens, prefix, update, branch):
    """Run a ViT block by block, all injections at block 1; return tokens, and what attention read there."""
    x = model.norm_pre(model._pos_embed(model.patch_embed(images)))
    for index, block in enumerate(model.blocks):
        if index == 1:
            x = torch.cat([x[:, :1], tokens.expand(len(x), -1, -1), x[:, 1:]], dim=1)
        seen = block.norm1(x)
        q, k, v = block.attn.qkv(seen).split(D, dim=-1)
        if index == 1:
            read, v = (seen, q), v + seen @ update.down.T @ update.up.T
            before = (one.expand(len(x), -1, -1) for one in prefix)
            k, v = (torch.cat(pair, dim=1) for pair in zip(before, (k, v), strict=True))
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = ((q @ k.transpose(-2, -1)) * block.attn.scale).softmax(-1) @ v
        x = x + block.ls1(block.attn.proj(mixed.transpose(1, 2).flatten(2)))
        x = x + block.ls2(block.mlp(block.norm2(x))) + (branch(x) if index == 1 else 0)
        if index == 1:
            x = torch.cat([x[:, :1], x[:, 1 + len(tokens) :]], dim=1)
    return model.norm(x), read


@pytest.fixture(params=NAMES)
def small(request):
    """The architecture with random weights, narrow and shallow, and its number of tokens before patches."""
    patch = 14 if "patch14" in request.param else 16
    shape = {"embed_dim": D, "depth": DEPTH, "num_heads": HEADS, "img_size": SIDE * patch}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = timm.create_model(request.param, num_classes=0, **shape)
        for parameter in model.parameters():  # LayerScale begins at 1e-5, where nothing would be seen
            nn.init.normal_(parameter, mean=float(parameter.ndim == 1) * 0.3, std=0.2)
    return Backbone.wrap(model, name=request.param), NAMES[request.param]


def test_all_injections_and_taps_equal_a_vit_written_out(small, randn):
    """Tokens, prefixes, updates and adapters together: with pre-norm, LayerScale, registers, QuickGELU."""
    backbone, kept = small
    model, images = backbone.model, randn(2, 3, backbone.image_size, backbone.image_size)
    tokens, prefix, down = randn(3, D), (randn(2, D), randn(2, D)), randn(D, D) / 7
    update = LowRank(down=randn(2, D) / 7, up=randn(D, 2))

    def branch(h):
        return torch.relu(h @ down)

    injections = [
        TokenInjection({1: tokens}, keep=False),
        PrefixInjection({1: prefix}),
        LowRankInjection({1: {"v": update}}),
        AdapterInjection({1: branch}),
    ]
    expected, (seen, queries) = written_out(model, images, tokens, prefix, update, branch)
    torch.testing.assert_close(backbone.tokens(images, injections), expected, atol=1e-4, rtol=1e-4)
    assert backbone.num_tokens == SIDE**2 + kept
    taps = {Tap(1, "attn_in"): seen, Tap(1, "query"): queries}
    found = backbone.activations(images, taps, injections)
    for tap, whole in taps.items():
        own = torch.cat([whole[:, :1], whole[:, 1 + len(tokens) :]], dim=1)
        torch.testing.assert_close(found[tap], own, atol=1e-4, rtol=1e-4)
    plain = model.forward_head(model.forward_features(images), pre_logits=True)
    torch.testing.assert_close(backbone.features(images), plain)
    assert not torch.allclose(backbone.features(images, injections), plain, atol=1e-2)


def test_dinov2_takes_less_than_half_its_own_size():
    """Its positions, 37 by 37 at 518 pixels, are those of 16 by 16 patches at 224."""
    with torch.device("meta"):
        model = timm.create_model("vit_base_patch14_dinov2", num_classes=0, img_size=224)
    assert model.pos_embed.shape == (1, 257, 768)
