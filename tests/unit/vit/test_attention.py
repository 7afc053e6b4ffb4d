"""Attention is plain or fused by processor, precision and gradients; the features are the same."""

from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from lw2g.vit.attention import fuses_forwards
from lw2g.vit.backbone import Backbone
from lw2g.vit.prefix import PrefixInjection

AMX = "vendor_id : GenuineIntel\nflags : fpu avx512_bf16 amx_bf16\n"
ZEN_4 = "vendor_id : AuthenticAMD\nflags : fpu avx512_bf16\n"


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [(AMX, 197, True), (AMX, 128, True), (AMX, 37, False), (ZEN_4, 197, False), (None, 197, False)],
)
def test_the_processor_decides(tmp_path, text, tokens, expected):
    """AMX and many tokens, where it was measured to be faster; plain where the system tells nothing."""
    info = tmp_path / "cpuinfo"
    if text is not None:
        info.write_text(text)
    assert fuses_forwards(tokens, info) is expected


@pytest.fixture
def fusing(backbone, monkeypatch):
    """A backbone in bf16 as on a processor that fuses, and the number of fused attentions that it has run."""
    calls = []
    fused = F.scaled_dot_product_attention

    def counted(*args, **options):
        calls.append(options)
        return fused(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    backbone._fuses_forwards = True
    return backbone, calls


def test_only_forwards_without_gradients_are_fused(fusing, images, randn):
    """Training stays plain, with its bits; so does float32, which is timm's on every processor."""
    backbone, calls = fusing
    assert backbone.attention == "timm's"
    backbone.to_bf16()
    assert backbone.attention == "fused without gradients"
    key, value = randn(2, 48).requires_grad_(), randn(2, 48)
    injections = [PrefixInjection({1: (key, value)})]
    trained = backbone.features(images, injections)
    gradient = torch.autograd.grad(trained.sum(), [key])[0]
    assert not calls
    with torch.no_grad():
        read = backbone.features(images, injections)
    # the one row of the last block is fused, too
    assert len(calls) == backbone.depth
    backbone._fuses_forwards = False
    assert backbone.attention == "plain"
    with torch.no_grad():
        assert torch.equal(backbone.features(images, injections), trained.detach())
    plain = backbone.features(images, injections)
    assert torch.equal(plain, trained)
    assert torch.equal(torch.autograd.grad(plain.sum(), [key])[0], gradient)
    # bf16 itself is off by 1e-2 of the size of features
    assert (read - trained).norm() < 2e-2 * trained.norm()


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "beit_base_patch16_224", "vit_tiny_patch16_224"])
def test_rotation_and_biases_are_those_of_plain_attention(name):
    """A table of biases goes to fused attention as a mask, with prefixes and for the last row, too."""
    small = {"img_size": 56 if "eva" in name else 64, "embed_dim": 48, "depth": 2, "num_heads": 4}
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=0, **small)
    for parameter in model.parameters():
        # larger than timm's, so that attention is uneven and biases count
        nn.init.normal_(parameter, mean=float(parameter.ndim == 1) * 0.1, std=0.2)
    backbone = Backbone.wrap(model, name=name, pool="token").to_bf16()
    images = torch.randn(3, 3, backbone.image_size, backbone.image_size)
    injections = [PrefixInjection({0: (torch.randn(2, 48), torch.randn(2, 48))})]
    with torch.no_grad():
        backbone._fuses_forwards = False
        expected = backbone.features(images, injections)
        backbone._fuses_forwards = True
        found = backbone.features(images, injections)
    assert not torch.equal(found, expected)
    assert (found - expected).norm() < 5e-3 * expected.norm()
