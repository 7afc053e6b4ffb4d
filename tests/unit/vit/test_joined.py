"""Features of several layers: the parts of one forward of timm's, each alike in scale; or one line."""

from __future__ import annotations

import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.vit.backbone import Backbone
from lw2g.vit.pooling import class_tokens
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection
from lw2g_testing.tiny import tiny_backbone
from timm_families import FAMILIES, build_family

SMALL = [family for family in FAMILIES if family.changes]


def joined(backbone: Backbone, images: torch.Tensor, injections=()) -> torch.Tensor:
    with torch.no_grad(), backbone.joining():
        return backbone.features(images, injections)


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Bring rows to zero mean and unit variance, by the formula."""
    centred = rows.float() - rows.float().mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def photos(side: int, count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("family", SMALL, ids=lambda family: family.timm_name)
def test_parts_are_those_of_timms_intermediates(family):
    """Of every block the class tokens and the mean of the patches, no register, then those of the norm."""
    if not family.is_known:
        pytest.skip(f"the installed timm has no {family.timm_name}")
    plain = build_family(family)
    if not plain.depth:
        pytest.skip("features alone")
    model, images = plain.model, photos(family.image_size, 2)
    backbone = Backbone.wrap(model, name="all layers", image_size=family.image_size, layers="all")
    found = joined(backbone, images)
    prefix = model.num_prefix_tokens
    with torch.no_grad():
        _, layers = model.forward_intermediates(
            images, return_prefix_tokens=bool(prefix), norm=False, output_fmt="NLC"
        )
        last = model.forward_features(images)
    expected = []
    first = class_tokens(model) if prefix and backbone.fingerprint.pool == "both" else 0
    for layer in layers:
        patches, rows = layer if isinstance(layer, tuple) else (layer, layer[:, :0])
        expected += [*rows[:, :first].unbind(1), patches.mean(1)]
    expected += [model.fc_norm(row) for row in last[:, :first].unbind(1)]
    expected.append(model.fc_norm(last[:, prefix:].mean(1)))
    assert len(layers) + 1 == backbone.fingerprint.layers == backbone.depth + 1
    assert found.shape == (2, backbone.width)
    torch.testing.assert_close(found, torch.cat([unit(row) for row in expected], 1), atol=2e-4, rtol=1e-4)
    assert torch.equal(backbone.features(images), plain.features(images))


@pytest.mark.parametrize("timm_name", ["resnet18", "vit_dpwee_patch16_reg1_gap_256"])
def test_stages_of_other_networks_are_timms(timm_name):
    """Where blocks are not known, a part is the mean of a stage over positions; the last is the feature."""
    names = {family.timm_name: family for family in FAMILIES}
    if timm_name not in names or not names[timm_name].is_known:
        pytest.skip(f"the installed timm has no {timm_name}")
    model = build_family(names[timm_name]).model
    images = photos(names[timm_name].image_size, 2)
    backbone = Backbone.wrap(model, name="stages", image_size=images.shape[-1], layers=3)
    with torch.no_grad():
        _, stages = model.forward_intermediates(images, indices=2, norm=False, output_fmt="NCHW")
    expected = [unit(stage.flatten(2).mean(2)) for stage in stages]
    expected.append(unit(backbone.features(images)))
    found = joined(backbone, images)
    assert found.shape == (2, backbone.width)
    torch.testing.assert_close(found, torch.cat(expected, 1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pool", ["default", "token", "avg"])
def test_one_layer_of_one_pooling_has_the_bits_of_before(pool, dtype):
    """Within `joining` and without, the feature is the pooled one, and as wide as a token."""
    model = tiny_backbone(depth=2, spread=0.1).model
    before = Backbone.wrap(model, name="plain", pool=pool)
    backbone = Backbone.wrap(model, name="one layer", pool=pool, layers=1)
    images = photos(16)
    if dtype == torch.bfloat16:
        before.to_bf16()
    assert torch.equal(joined(backbone, images), before.features(images))
    assert backbone.width == backbone.dim
    assert not backbone.joins


def test_last_layers_are_the_end_of_all_layers():
    """k layers are the last k; class tokens and means of patches are the parts of both."""
    model = tiny_backbone(depth=4, spread=0.1).model
    images = photos(16)
    every = {pool: joined(Backbone.wrap(model, name=pool, pool=pool, layers="all"), images) for pool in POOLS}
    parts = every["both"].reshape(3, 5, 2, 32)
    torch.testing.assert_close(parts[:, :, 0].flatten(1), every["token"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(parts[:, :, 1].flatten(1), every["avg"])
    for layers in (1, 2, 4):
        backbone = Backbone.wrap(model, name="last", pool="both", layers=layers)
        assert backbone.width == layers * 64
        torch.testing.assert_close(joined(backbone, images), parts[:, -layers:].flatten(1))


POOLS = ("token", "avg", "both")


@pytest.mark.parametrize("position", ["before-cls", "after-cls"])
@pytest.mark.parametrize("pool", POOLS)
def test_prompts_that_stay_enter_no_part(pool, position):
    """Under prompt tokens a part is of the model's own rows as a tap at the next block reads them."""
    model = tiny_backbone(depth=3, spread=0.1).model
    backbone = Backbone.wrap(model, name="prompted", pool=pool, layers="all")
    images = photos(16)
    rows = torch.randn(2, 32, generator=torch.Generator().manual_seed(1))
    injection = TokenInjection({0: rows}, position=position, keep=True)
    found = joined(backbone, images, [injection]).reshape(3, 4, -1, 32)
    taps = [Tap(1, "block_in"), Tap(2, "block_in")]
    seen = backbone.activations(images, taps, [injection])
    for layer, tap in enumerate(taps):
        own = {"token": [seen[tap][:, 0]], "avg": [seen[tap][:, 1:].mean(1)]}
        own["both"] = own["token"] + own["avg"]
        expected = torch.stack([unit(row) for row in own[pool]], 1)
        torch.testing.assert_close(found[:, layer], expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found, joined(backbone, images).reshape(found.shape), atol=1e-3)


def test_class_tokens_alone_need_one_row_of_the_last_block():
    """Without patches the last block computes one row, as without further layers."""
    model = tiny_backbone(depth=2).model
    rows = []
    handle = model.blocks[-1].mlp.register_forward_hook(lambda module, args, out: rows.append(out.shape[1]))
    with handle:
        for pool in POOLS:
            joined(Backbone.wrap(model, name=pool, pool=pool, layers="all"), photos(16))
    assert rows == [1, 5, 5]


def test_a_norm_in_place_of_the_final_one_is_that_of_the_last_layer():
    """A method that trains a norm of its own gets it in the last layer's parts, and in no other."""
    backbone = Backbone.wrap(tiny_backbone(depth=2, spread=0.1).model, name="own norm", layers="all")
    other = torch.nn.LayerNorm(32)
    torch.nn.init.uniform_(other.weight)
    images = photos(16)
    before = backbone.features(images, norm=False)
    with torch.no_grad(), backbone.joining():
        found = backbone.features(images, norm=other)
        kept = backbone.features(images)
    assert torch.equal(found[:, :-64], kept[:, :-64])
    torch.testing.assert_close(found[:, -64:-32], unit(other(before)), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(found[:, -32:], kept[:, -32:], atol=1e-2)


@pytest.mark.parametrize(
    ("timm_name", "options", "message"),
    [
        ("vit", {"layers": 4}, "backbone.layers: 4 is not within 1 to 3.*; lower it, or say all"),
        ("vit", {"layers": 2, "pool": "map"}, "'map' pooling of 2 layers is not offered by"),
        ("siglip", {"layers": 2, "pool": "token"}, "'token' pooling of 2 layers.*; set backbone.pool to"),
        ("siglip", {"pool": "both"}, "'both' pooling is not offered"),
        ("resnet18", {"layers": 7}, "7 is not within 1 to 6.*: 5 stages and the last output"),
        ("resnet18", {"layers": 2, "pool": "both"}, "'both' pooling of 2 layers is not offered"),
    ],
)
def test_what_a_model_has_not_is_one_line(timm_name, options, message):
    """More layers than there are, no class token, no tokens at all: refused before anything is computed."""
    if timm_name == "vit":
        model = tiny_backbone(depth=2).model
    else:
        names = {family.timm_name: family for family in FAMILIES}
        family = next(names[name] for name in names if timm_name in name)
        model = build_family(family).model
    with pytest.raises(ConfigError, match=message):
        Backbone.wrap(model, name=timm_name, image_size=32, **options)
