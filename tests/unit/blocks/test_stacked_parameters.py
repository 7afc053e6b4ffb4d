"""Parameters of all blocks are cast and cut apart once, to the bits of doing so for each block."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch.nn import functional

from lw2g.blocks.adapters import bottlenecks_of
from lw2g.blocks.prefixes import inject_prefixes
from lw2g.blocks.weighted_prefixes import ComponentSet, weighted_injection
from lw2g.vit.adapter import AdapterInjection, Bottleneck
from lw2g.vit.low_rank import LayerInjection, LowRank, _Adder
from lw2g.vit.parameters import ParameterInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g_testing.tiny import tiny_backbone

BLOCKS = (0, 2)
precisions = pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])


@pytest.fixture(scope="module")
def network():
    """Return a ViT of width 32 in float32 and in bf16, and images for it."""
    torch.manual_seed(3)
    return {False: tiny_backbone(), True: tiny_backbone().to_bf16()}, torch.randn(4, 3, 16, 16)


def assert_same_bits(network, bf16, made_once, one_by_one, parameters):
    """Compare features and gradients of two ways to make an injection of the same parameters."""
    backbone, images = network[0][bf16], network[1]
    found = []
    for make in (made_once, one_by_one):
        within = torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext()
        with within:
            features = backbone.features(images, [make()])
        gradients = torch.autograd.grad(features.square().sum(), parameters)
        found.append((features.detach(), *gradients))
    assert all(bool(gradient.any()) for gradient in found[0][1:])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def drawn(*shape):
    """Return random parameters."""
    return (torch.randn(*shape) / 3).requires_grad_()


@precisions
@pytest.mark.parametrize("batch", [(), (4,)], ids=["one set", "per sample"])
def test_prefixes(network, bf16, batch):
    """Prefix keys and values have the bits of those selected block by block."""
    key, value = drawn(*batch, 2, 5, 32), drawn(*batch, 2, 5, 32)

    def one_by_one():
        pairs = {block: (key[..., i, :, :], value[..., i, :, :]) for i, block in enumerate(BLOCKS)}
        return PrefixInjection(pairs)

    assert_same_bits(network, bf16, lambda: inject_prefixes(BLOCKS, key, value), one_by_one, (key, value))


@precisions
@pytest.mark.parametrize("batch", [(), (4,)], ids=["one set", "per sample"])
def test_adapters(network, bf16, batch):
    """Bottlenecks have the bits of those selected block by block."""
    shapes = {"down": (2, 8, 32), "down_bias": (2, 8), "up": (2, 32, 8), "up_bias": (2, 32)}
    tensors = {name: drawn(*batch, *shape) for name, shape in shapes.items()}

    def made_once():
        return AdapterInjection(dict(zip(BLOCKS, bottlenecks_of(tensors, 2), strict=True)))

    def one_by_one():
        branches = {}
        for place, block in enumerate(BLOCKS):
            axis = len(batch)
            own = {name: tensor.select(axis, place) for name, tensor in tensors.items()}
            branches[block] = Bottleneck(**own, scale=0.1)
        return AdapterInjection(branches)

    assert_same_bits(network, bf16, made_once, one_by_one, tuple(tensors.values()))


@precisions
@pytest.mark.parametrize("onednn", [False, True], ids=["behind the layer", "within the product"])
def test_low_rank_updates(network, bf16, onednn):
    """Updates of whole layers have the bits of factors scaled and cast block by block."""
    backbones, images = network
    if onednn:
        backbones = {bf16: copy.deepcopy(backbones[bf16]).to_onednn()}
    depth = backbones[bf16].depth
    widths = {"fc1": (32, 128), "qkv": (32, 96)}
    down = {name: drawn(depth, 3, width) for name, (width, _) in widths.items()}
    up = {name: drawn(depth, out, 3) for name, (_, out) in widths.items()}

    def one_by_one():
        updates = {
            block: {name: LowRank(down=down[name][block], up=up[name][block]) for name in down}
            for block in range(depth)
        }
        return LayerInjection(updates, scale=0.8)

    made_once = LayerInjection.of_stacks(down, up, scale=0.8)
    assert made_once.scale == 1
    with torch.no_grad():
        merged = [make() for make in (lambda: LayerInjection.of_stacks(down, up, scale=0.8), one_by_one)]
        one, other = (backbones[bf16].features(images, [injection]) for injection in merged)
    assert torch.equal(one, other)
    assert_same_bits(
        (backbones, images),
        bf16,
        lambda: LayerInjection.of_stacks(down, up, scale=0.8),
        one_by_one,
        (*down.values(), *up.values()),
    )


@precisions
def test_an_input_is_cast_for_a_layer_and_its_update_together(network, bf16, monkeypatch):
    """What both take has the bits of two casts, and so has the sum of their gradients."""
    down, up = drawn(3, 4, 32), drawn(3, 96, 4)
    cast = []

    def shared():
        monkeypatch.setattr(_Adder, "share", share)
        return LayerInjection.of_stacks({"qkv": down}, {"qkv": up})

    def apart():
        monkeypatch.setattr(_Adder, "share", lambda *_: None)
        return LayerInjection.of_stacks({"qkv": down}, {"qkv": up})

    def share(*given, before=_Adder.share):
        cast.append(before(*given))
        return cast[-1]

    assert_same_bits(network, bf16, shared, apart, (down, up))
    assert [one is not None for one in cast] == [bf16] * 3


@precisions
def test_biases_of_products_are_cast_together(network, bf16, monkeypatch):
    """Biases and norms that are replaced have the bits of each cast in its product, and so have gradients."""
    state = dict(network[0][False].model.named_parameters())
    chosen = [name for name in state if name.endswith("bias") and not name.startswith(("norm", "head"))]
    values = {name: state[name].detach().add(0.1).requires_grad_() for name in chosen}
    model = network[0][bf16].model
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16), ParameterInjection(values).install(model):
        block = model.blocks[0]
        assert block.norm1.bias.dtype == torch.float32
        assert block.attn.qkv.bias.dtype == (torch.bfloat16 if bf16 else torch.float32)

    def apart():
        monkeypatch.setattr("lw2g.vit.parameters._biases_cast_together", lambda places, values: values)
        return ParameterInjection(values)

    assert_same_bits(network, bf16, lambda: ParameterInjection(values), apart, tuple(values.values()))


@precisions
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("masked", [True, False])
def test_weighted_prefixes(network, bf16, count, masked):
    """Weighted sums have the bits of components joined, normalised and cast block by block."""
    sets = [ComponentSet(num_blocks=2, components=6, length=4, dim=32, masked=masked) for _ in range(count)]
    for parameter in (each for item in sets for each in item.parameters()):
        torch.nn.init.normal_(parameter)
    query = torch.randn(4, 32)

    def prefix(place):
        def joined(name):
            return torch.cat([getattr(item, name)[place] for item in sets])

        unit, key = functional.normalize(query, dim=-1), functional.normalize(joined("key"), dim=-1)
        weights = unit @ key.mT
        if masked:
            mask = joined("mask")
            size = (unit.square() @ mask.square().mT).clamp_min(1e-12).sqrt()
            weights = unit @ (mask * key).mT / size
        halves = (joined(name) for name in ("prefix_key", "prefix_value"))
        return tuple(torch.einsum("bm,mld->bld", weights, half) for half in halves)

    parameters = tuple(each for item in sets for each in item.parameters())
    assert_same_bits(
        network,
        bf16,
        lambda: weighted_injection(BLOCKS, sets, query),
        lambda: PrefixInjection({block: prefix(place) for place, block in enumerate(BLOCKS)}),
        parameters,
    )
