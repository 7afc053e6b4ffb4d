"""Products of oneDNN give what torch's own give, and are taken only where they are known to be faster."""

from __future__ import annotations

import pytest
import torch

from lw2g.vit import products
from lw2g.vit.prefix import PrefixInjection


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_features_and_gradients_are_those_of_torch(backbone, images, randn):
    """Features and gradients agree to float32's rounding; names of parameters stay."""
    names, key = list(backbone.model.state_dict()), randn(5, 48).requires_grad_()

    def values():
        features = backbone.features(images, [PrefixInjection({1: (key, key)})])
        return features, *torch.autograd.grad(features.square().sum(), [key])

    expected = values()
    backbone.to_onednn()
    assert (list(backbone.model.state_dict()), products.products_of(backbone.model)) == (names, "oneDNN's")
    torch.testing.assert_close(values(), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(backbone.to_bf16().features(images), backbone.features(images))


@pytest.mark.parametrize(
    ("text", "capability", "found"),
    [
        ("vendor_id\t: AuthenticAMD\n", "AVX512", True),
        ("vendor_id\t: AuthenticAMD\n", "AVX2", False),
        ("vendor_id\t: GenuineIntel\n", "AVX512", False),
        ("", "AVX512", False),
    ],
)
def test_where_they_are_known_to_be_faster(tmp_path, monkeypatch, text, capability, found):
    """AVX-512 on a processor that is not Intel's, in a torch with MKL and oneDNN."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    for library in (torch.backends.mkl, torch.backends.mkldnn):
        monkeypatch.setattr(library, "is_available", lambda: True)
    info = tmp_path / "cpuinfo"
    info.write_text(text)
    assert products.has_faster_products(info) is found
