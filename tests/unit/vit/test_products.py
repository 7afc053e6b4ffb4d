"""Products of oneDNN give what torch's own give, and are taken only where they are known to be faster."""

from __future__ import annotations

import copy

import pytest
import torch

from lw2g.vit import products
from lw2g.vit.low_rank import LayerInjection, LowRank
from lw2g.vit.parameters import ParameterInjection
from lw2g.vit.prefix import PrefixInjection

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
needs_bf16 = pytest.mark.skipif(not products.has_packed_products(), reason="oneDNN has no bf16 here")


@needs_onednn
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


@pytest.mark.parametrize("reduced", [False, pytest.param(True, marks=needs_bf16)])
@needs_onednn
def test_a_trained_bias_gets_its_gradient(backbone, images, randn, reduced):
    """Where a method trains biases of the frozen layers, their gradients are torch's."""
    if reduced:
        backbone.to_bf16()
    name = "blocks.1.attn.qkv.bias"
    bias = randn(3 * backbone.dim).requires_grad_()

    def gradient():
        features = backbone.features(images, [ParameterInjection({name: bias})])
        return torch.autograd.grad(features.square().sum(), [bias])[0]

    expected = gradient()
    found = backbone.to_onednn() and gradient()
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=0.05 if reduced else 1e-4, atol=1e-3)


@pytest.mark.parametrize("reduced", [False, pytest.param(True, marks=needs_bf16)])
@needs_onednn
def test_an_update_within_the_product_is_that_of_a_hook(backbone, images, randn, reduced):
    """Features and gradients, of biases and earlier blocks too, also of a layer with several updates."""
    if reduced:
        backbone.to_bf16()
    key = randn(5, 48).requires_grad_()
    bias = randn(4 * backbone.dim).requires_grad_()
    updates = {}
    for name, (outer, inner) in {
        "qkv": (144, 48),
        "proj": (48, 48),
        "fc1": (192, 48),
        "fc2": (48, 192),
    }.items():
        down = (randn(2, inner) / 7).requires_grad_()
        updates[name] = LowRank(down=down, up=randn(outer, 2).requires_grad_())
    second = LowRank(down=(randn(len(images), 3, 48) / 7).requires_grad_(), up=randn(len(images), 192, 3))
    trained = [
        key,
        bias,
        second.down,
        *(factor for each in updates.values() for factor in (each.down, each.up)),
    ]
    twice = {"fc1": updates["fc1"]}
    injections = [
        PrefixInjection({0: (key, key)}),
        LayerInjection({1: updates}, scale=0.5),
        LayerInjection({1: twice}),
        LayerInjection({1: {"fc1": second}}),
        ParameterInjection({"blocks.1.mlp.fc1.bias": bias}),
    ]

    def values():
        features = backbone.features(images, injections)
        return features.detach(), *torch.autograd.grad(features.float().square().sum(), trained)

    expected = values()
    backbone.to_onednn()
    found = values()
    tolerance = 0.06 if reduced else 1e-4
    for one, two in zip(found, expected, strict=True):
        assert two.abs().max() > 1e-3
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance * float(two.abs().max()))
    assert all(getattr(module, "update", None) is None for module in backbone.model.modules())


@needs_bf16
def test_an_update_acts_where_a_layer_falls_back_to_torch(randn):
    """Rows in another dtype than the packed weight: torch multiplies, and the update is added."""
    layer = torch.nn.Linear(8, 6).requires_grad_(False)
    layer.__class__ = products.OneDNNLinear
    rows, down, up = randn(5, 8).double(), randn(2, 8).double(), randn(6, 2).double()
    layer.double().weight.requires_grad_()  # a weight that is trained itself is torch's, too
    with layer.updated(down, up):
        found = layer(rows)
    torch.testing.assert_close(found, rows @ (layer.weight + up @ down).T + layer.bias)
    torch.testing.assert_close(layer(rows), rows @ layer.weight.T + layer.bias)


@needs_bf16
def test_in_bf16_nothing_changes_but_time(backbone, images, randn):
    """Features and gradients are torch's to the bit; a copied layer, or a changed weight, is packed anew."""
    key = randn(5, 48).requires_grad_()

    def values():
        features = backbone.features(images, [PrefixInjection({1: (key, key)})])
        return features.detach(), *torch.autograd.grad(features.square().sum(), [key])

    backbone.to_bf16()
    expected = values()
    backbone.to_onednn()
    assert all(map(torch.equal, values(), expected))
    layer = backbone.model.blocks[0].mlp.fc1
    twin = copy.deepcopy(layer)
    rows = randn(7, 48).bfloat16()
    assert torch.equal(twin(rows), layer(rows))
    expected = layer.bias - layer(rows)
    for turned in (twin, layer):
        with torch.no_grad():
            if turned is twin:
                twin.weight = torch.nn.Parameter(-twin.weight, requires_grad=False)
            else:
                layer.weight.neg_()
        assert torch.allclose(turned(rows) - turned.bias, expected, atol=0.05)


@pytest.mark.parametrize(
    ("text", "capability", "found"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f\n", "AVX512", True),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f\n", "AVX2", False),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512f\n", "AVX512", False),
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


@needs_onednn
def test_a_layer_that_is_trained_again_gets_its_gradient(backbone, images):
    """A weight that is unfrozen after it was packed is torch's own again, in gradient and value."""
    plain = copy.deepcopy(backbone)
    backbone.to_onednn()
    backbone.features(images)  # packs the weights
    found = []
    for model in (plain, backbone):
        weight = model.model.blocks[1].mlp.fc1.weight.requires_grad_()
        (gradient,) = torch.autograd.grad(model.features(images).square().sum(), [weight])
        with torch.no_grad():
            weight -= 0.1 * gradient / gradient.norm()
        found.append((gradient, model.features(images).detach()))
    assert float(found[0][0].norm()) > 1e-3
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)
