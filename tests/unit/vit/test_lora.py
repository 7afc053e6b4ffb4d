"""Low-rank updates equal a ViT whose qkv rows were edited by hand."""

from __future__ import annotations

import pytest
import torch

from lw2g.blocks.lora import inject_factors
from lw2g.errors import ConfigError
from lw2g.vit.backbone import Backbone
from lw2g.vit.low_rank import LayerInjection, LowRank, LowRankInjection
from lw2g.vit.parameters import ParameterInjection

ROWS = {"q": slice(0, 48), "k": slice(48, 96), "v": slice(96, 144)}


@pytest.fixture
def low_rank(randn):
    """Draw the factors of a rank-3 update."""
    return lambda *batch: LowRank(down=randn(*batch, 3, 48) / 7, up=randn(*batch, 48, 3) / 2)


def _edited(make_vit, increments):
    """Wrap a ViT with increments {(block, target): [d, d]} written into the rows of qkv."""
    model = make_vit()
    with torch.no_grad():
        for (block, target), increment in increments.items():
            model.blocks[block].attn.qkv.weight[ROWS[target]] += increment
    return Backbone.wrap(model, name="edited")


def test_equals_edited_rows(backbone, make_vit, images, low_rank):
    """Updates of q, k and v at several blocks equal W + scale * up @ down in those rows."""
    updates = {0: {"k": low_rank(), "v": low_rank()}, 2: {"q": low_rank()}}
    increments = {
        (i, target): 0.5 * update.up @ update.down
        for i, targets in updates.items()
        for target, update in targets.items()
    }
    ours = backbone.features(images, [LowRankInjection(updates, scale=0.5)])
    theirs = _edited(make_vit, increments).features(images)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(ours, backbone.features(images), atol=1e-2)


def test_sums_of_updates(backbone, make_vit, images, low_rank, randn):
    """Several updates of one target add up, dense increments included, in any order."""
    parts = [low_rank(), randn(48, 48) / 50, low_rank()]
    total = parts[0].up @ parts[0].down + parts[1] + parts[2].up @ parts[2].down
    expected = _edited(make_vit, {(1, "v"): total}).features(images)
    for order in (parts, parts[::-1]):
        ours = backbone.features(images, [LowRankInjection({1: {"v": order}})])
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-5)


def test_gradients_equal_those_of_the_edited_rows(backbone, images, low_rank):
    """Gradients of the factors follow from the gradient of the dense increment by the chain rule."""
    update = low_rank()
    dense = (update.up @ update.down).requires_grad_()
    down, up = update.down.clone().requires_grad_(), update.up.clone().requires_grad_()
    loss = backbone.features(images, [LowRankInjection({2: {"k": dense}})]).square().sum()
    (full,) = torch.autograd.grad(loss, dense)
    loss = backbone.features(images, [LowRankInjection({2: {"k": LowRank(down=down, up=up)}})]).square().sum()
    of_down, of_up = torch.autograd.grad(loss, (down, up))
    torch.testing.assert_close(of_down, update.up.T @ full, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(of_up, full @ update.down.T, atol=1e-3, rtol=1e-3)


def _features(backbone, images, injection, *, merged):
    with torch.set_grad_enabled(not merged):
        return backbone.features(images, [injection]).detach()


def test_merged_updates_equal_added_ones(backbone, images, low_rank, randn):
    """Without gradients updates are merged into the weights: float32 features agree to 1e-6 of their size."""
    parts = [low_rank(), randn(48, 48) / 50]
    layers = {"fc1": LowRank(down=randn(2, 48) / 7, up=randn(192, 2) / 2)}
    whole = LayerInjection({1: layers}, scale=0.8)
    for injection in (LowRankInjection({0: {"q": parts[0], "v": parts}}, scale=0.5), whole):
        added = _features(backbone, images, injection, merged=False)
        merged = _features(backbone, images, injection, merged=True)
        assert float((merged - added).norm() / added.norm()) < 1e-6


def test_merged_updates_in_bf16_differ_by_its_rounding(make_vit, images, low_rank):
    """In bf16 merged updates are as near to float32's features as added ones are."""
    injection = LowRankInjection({block: {"k": low_rank(), "v": low_rank()} for block in range(3)})
    exact = _features(Backbone.wrap(make_vit(), name="exact"), images, injection, merged=True)
    reduced = Backbone.wrap(make_vit(), name="reduced").to_bf16().to_onednn()
    errors = {
        merged: float((_features(reduced, images, injection, merged=merged) - exact).norm() / exact.norm())
        for merged in (False, True)
    }
    assert errors[True] < 1.5 * errors[False] < 0.05


def test_merged_weights_follow_their_factors(backbone, images, low_rank):
    """A changed factor, another factor of equal values, another scale and a changed backbone are noticed."""
    update = low_rank()

    def agree(update=update, scale=1.0):
        injection = LowRankInjection({1: {"q": update}}, scale=scale)
        merged = _features(backbone, images, injection, merged=True)
        again = _features(backbone, images, injection, merged=True)
        added = _features(backbone, images, injection, merged=False)
        assert torch.equal(merged, again)
        torch.testing.assert_close(merged, added, atol=1e-5, rtol=1e-5)
        return merged

    first = agree()
    update.up.mul_(2)
    assert not torch.equal(agree(), first)
    update.up.requires_grad_().grad = torch.ones_like(update.up)
    torch.optim.SGD([update.up], lr=0.1, fused=True).step()  # which does not count as a change for torch
    stepped = agree()
    assert not torch.equal(stepped, first)
    assert not torch.equal(agree(scale=3.0), stepped)
    assert torch.equal(agree(LowRank(down=update.down.clone(), up=update.up.detach().clone())), stepped)
    with torch.no_grad():
        backbone.model.blocks[1].attn.qkv.weight.mul_(1.5)
    assert not torch.equal(agree(), stepped)


def test_a_merged_weight_leaves_the_layer(make_vit, images, low_rank):
    """After a forward weights, packed forms and features of the plain model are what they were."""
    backbone = Backbone.wrap(make_vit(), name="plain").to_bf16().to_onednn()
    layer = backbone.model.blocks[1].attn.qkv
    before, weight = backbone.features(images), layer.weight
    injection = LowRankInjection({1: {"q": low_rank()}})
    updated = _features(backbone, images, injection, merged=True)
    assert layer.weight is weight
    assert not layer._forward_hooks
    assert torch.equal(backbone.features(images), before)
    assert torch.equal(_features(backbone, images, injection, merged=True), updated)


def test_updates_per_sample_are_added(backbone, images, low_rank):
    """Each sample gets its own factors, with and without gradients."""
    many = low_rank(len(images))
    injection = LowRankInjection({1: {"k": many}})
    single = [
        backbone.features(images[place : place + 1], [LowRankInjection({1: {"k": each}})])
        for place, each in enumerate(
            LowRank(down=down, up=up) for down, up in zip(many.down, many.up, strict=True)
        )
    ]
    for merged in (False, True):
        ours = _features(backbone, images, injection, merged=merged)
        torch.testing.assert_close(ours, torch.cat(single), atol=1e-5, rtol=1e-5)


def test_unknown_target(low_rank):
    """Only q, k and v rows exist."""
    with pytest.raises(ConfigError, match="'proj'"):
        LowRankInjection({0: {"proj": low_rank()}})


@pytest.mark.parametrize(("down", "up"), [((3, 48), (48, 2)), ((48,), (48, 1)), ((1, 1, 3, 48), (48, 3))])
def test_ranks_must_agree(down, up):
    """Factors of different ranks, or that are no matrices, are refused with their shapes."""
    with pytest.raises(ValueError, match=r"of one rank but got \["):
        LowRank(down=torch.zeros(down), up=torch.zeros(up))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("rank", [3, 64])
def test_swapped_factors_are_refused_with_their_order(backbone, images, randn, rank, merged):
    """Whether the rank is below the width or above it; with one down for several targets the axes tell."""
    down, up = randn(1, 2, rank, 48), randn(1, 2, 48, rank)
    assert _features(backbone, images, inject_factors([1], ["q", "v"], [(down, up)]), merged=merged).shape
    swapped = inject_factors([1], ["q", "v"], [(up, down)])
    order = rf"down \[r, 48\], applied first, and up .*got \[48, {rank}\] and \[{rank}, 48\]"
    with pytest.raises(ValueError, match=order):
        _features(backbone, images, swapped, merged=merged)
    with pytest.raises(ValueError, match=r"expected factors \(down .*, up .*\) but got"):
        inject_factors([1], ["q", "v"], [(up, down[:, :1])])


@pytest.mark.parametrize(("blocks", "targets"), [([0, 1], ["q"]), ([1], ["q", "k", "v"])])
def test_factors_of_other_axes_are_refused(randn, blocks, targets):
    """They have a place for each block and each target."""
    with pytest.raises(ValueError, match="expected factors"):
        inject_factors(blocks, targets, [(randn(1, 2, 3, 48), randn(1, 2, 48, 3))])


def test_updates_of_whole_layers(backbone, make_vit, images, randn):
    """Updates of qkv, proj, fc1 and fc2 equal ``W + scale * up @ down`` in those layers."""
    model, updates = make_vit(), {}
    layers = {"qkv": "attn.qkv", "proj": "attn.proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
    with torch.no_grad():
        for name, path in layers.items():
            weight = model.blocks[1].get_submodule(path).weight
            updates[name] = LowRank(down=randn(2, weight.shape[1]) / 7, up=randn(weight.shape[0], 2) / 2)
            weight += 0.5 * updates[name].up @ updates[name].down
    ours = backbone.features(images, [LayerInjection({1: updates}, scale=0.5)])
    theirs = Backbone.wrap(model, name="edited").features(images)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(ours, backbone.features(images), atol=1e-2)


def test_parameters_stand_in_for_a_forward(backbone, images, randn):
    """Other values act within the forward, get gradients, and leave no trace; wrong ones are refused."""
    before = dict(backbone.model.named_parameters())
    values = {
        "cls_token": before["cls_token"].detach() + 1,
        "blocks.1.norm2.weight": before["blocks.1.norm2.weight"].detach() * 2,
        "patch_embed.proj.bias": before["patch_embed.proj.bias"].detach() - 0.5,
    }
    trained = {name: value.requires_grad_(True) for name, value in values.items()}
    found = backbone.features(images, [ParameterInjection(trained)])
    assert all(value.abs().max() > 0 for value in torch.autograd.grad(found.sum(), list(trained.values())))
    assert not torch.allclose(found, backbone.features(images), atol=1e-2)
    for wrong in ({"blocks.1.norm2.weight": randn(3)}, {"blocks.1.norm2.gain": randn(48)}):
        with pytest.raises(ConfigError, match=r"parameter 'blocks\.1\.norm2\.\w+' .* does not fit"):
            backbone.features(images, [ParameterInjection({**values, **wrong})])
    after = dict(backbone.model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is value for name, value in before.items())


def test_a_merged_weight_is_that_of_the_same_rows(backbone, images, low_rank):
    """Equal factors of other rows, or of more of them, make another weight."""
    update = low_rank()
    dense = update.up @ update.down
    for targets in ({"q": update}, {"k": update}, {"k": [update, update]}, {"v": update}, {"v": dense}):
        injection = LowRankInjection({1: targets})
        added = _features(backbone, images, injection, merged=False)
        torch.testing.assert_close(
            _features(backbone, images, injection, merged=True), added, atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("low", [True, False], ids=["low rank", "dense"])
def test_updates_add_up_before_they_are_rounded(make_vit, low):
    """Sixty-four updates in bf16, each of which alone would round to nothing."""
    model = make_vit().to(torch.bfloat16)
    layer = model.blocks[0].attn.qkv
    part = torch.full((48, 48), 1 / 512, dtype=torch.bfloat16)
    update = part
    if low:
        update = LowRank(down=part[:1], up=torch.ones(48, 1, dtype=torch.bfloat16))
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.bias.zero_()
        with LowRankInjection({0: {"k": [update] * 64}}).install(model):
            weight = layer(torch.eye(48, dtype=torch.bfloat16)).T
    assert weight[ROWS["k"]].unique().tolist() == [1.125]
    assert weight[ROWS["q"]].unique().tolist() == [1.0]
