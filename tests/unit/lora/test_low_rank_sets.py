"""Low-rank sets: what they start as, what they add up to, and what protecting both factors keeps."""

from __future__ import annotations

import copy

import attrs
import pytest
import torch

from lw2g.blocks.lora import summed_factors
from lw2g.blocks.options import LowRankOptions
from lw2g.errors import ConfigError
from lw2g.interfaces.pool import Pool
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import image
from lw2g.vit.taps import Tap
from lw2g_lora.c_lora import CLora
from lw2g_lora.hide_lora import HideLora
from lw2g_lora.inflora import InfLora
from lw2g_lora.options import CLoraConfig, HideLoraConfig, InfLoraConfig

KINDS = {
    "c-lora": (CLora, CLoraConfig(rank=4)),
    "inflora": (InfLora, InfLoraConfig(rank=4)),
    "hide-lora": (HideLora, HideLoraConfig(rank=4, replay_epochs=1, clusters=2)),
}
every = pytest.mark.parametrize("name", KINDS)


def made(name, bench, sets=2, **options):
    """Return a baseline and a pool of fresh sets."""
    kind, config = KINDS[name]
    baseline, pool = kind(attrs.evolve(config, **options), bench.build), Pool()
    for _ in range(sets):
        pool.grow(baseline.new_set(None))
    return baseline, pool


@every
def test_fresh_sets_change_nothing(name, bench):
    """With zero up factors the features are those of the plain ViT, bit for bit."""
    baseline, pool = made(name, bench)
    batch = bench.batch(0)
    assert torch.equal(baseline.features(batch, pool.force(1)), bench.backbone.features(batch.images))


@every
def test_features_are_those_of_edited_rows(name, bench, moved):
    """The network equals one whose k and v rows of qkv were edited by hand; q rows stay as they are."""
    baseline, pool = made(name, bench)
    moved(*pool.sets)
    chosen = pool.sets if name != "hide-lora" else (pool[1],)
    edited = copy.deepcopy(bench.backbone)
    with torch.no_grad():
        for place, block in enumerate(baseline.updates.blocks):
            weight = edited.model.blocks[block].attn.qkv.weight
            for item in chosen:
                dim = bench.backbone.dim
                weight[dim:] += baseline.updates.scale * item.increments()[place].reshape(2 * dim, dim)
    batch = bench.batch(0)
    ours, plain = baseline.features(batch, pool.force(1)), bench.backbone.features(batch.images)
    torch.testing.assert_close(ours, edited.features(batch.images), atol=1e-5, rtol=1e-4)
    assert (ours - plain).abs().max() > 0.01
    tap = Tap(0, "query")
    read = bench.backbone.activations(batch.images, [tap], [baseline.injection(pool.force(1))])
    assert torch.equal(read[tap], bench.backbone.activations(batch.images, [tap])[tap])


def test_frozen_sets_are_stacked_apart(bench, moved):
    """What is not trained goes into a product of its own, without a gradient."""
    _, pool = made("c-lora", bench, sets=3)
    for parameter in (*pool[0].parameters(), *pool[1].parameters()):
        parameter.requires_grad_(False)
    frozen, trained = summed_factors(pool.sets)
    assert [tuple(part.shape) for part in frozen] == [(6, 2, 8, 32), (6, 2, 32, 8)]
    assert not any(part.requires_grad for part in frozen)
    assert all(part.requires_grad for part in trained)
    assert torch.equal(trained[0], pool[2].down)


def test_sites_are_the_factors_and_their_inputs(bench, moved):
    """Down is read at the input of attention over all targets, up per target behind its own down factor."""
    baseline, pool = made("c-lora", bench)
    moved(*pool.sets)
    sites = {site.name: site for site in baseline.sites(pool[0])}
    assert len(sites) == 6 + 12
    down, up = sites["blocks.3.down"], sites["blocks.3.up_v"]
    assert {site.activation.tap for site in (down, up)} == {Tap(3, "attn_in")}
    assert torch.equal(down.rows(pool[0].down), pool[0].down[3].reshape(8, 32))
    assert torch.equal(up.rows(pool[0].up), pool[0].up[3, 1])
    assert (down.measured, down.soft, up.measured, up.soft) == (True, True, False, False)
    moment = SecondMoment(32)
    moment.update(torch.randn(2, 32))
    build = bench.memory.options.build
    expected = image(pool[0].down[3, 1], build(moment))
    torch.testing.assert_close(up.activation.space(moment, build).basis, expected.basis)
    free = CLora(CLoraConfig(rank=4, up_on_reuse="free"), bench.build)
    assert [site.name for site in free.sites(pool[0])] == [f"blocks.{block}.down" for block in range(6)]


@pytest.mark.parametrize("name", ["c-lora", "hide-lora"])
@pytest.mark.parametrize(("rule", "kept"), [("project", True), ("freeze", True), ("free", False)])
def test_both_projections_keep_old_outputs(name, rule, kept, bench, moved):
    """On reuse ``up down x`` stays for every x in the protected space; with a free up factor it moves."""
    replay = {"replay_epochs": 0} if name == "hide-lora" else {}
    baseline, pool = made(name, bench, sets=0, up_on_reuse=rule, rank=16, **replay)
    context = bench.begin(baseline, pool, 0)
    moved(pool[0])
    bench.absorb(baseline, context)
    (space,) = [
        bench.memory.space(0, site) for site in baseline.sites(pool[0]) if site.name == "blocks.2.down"
    ]
    assert 0 < space.rank < 16
    old = space.basis[0].T.float()  # [rank, dim]
    before = pool[0].increments().detach()
    bench.learn(baseline, bench.begin(baseline, pool, 1, reuse=0), sgd=1.0)
    assert len(pool) == 1
    change = (pool[0].increments() - before).detach()[2]
    assert change.abs().max() > 1e-3
    moved_by = float((old @ change.mT).abs().max())
    assert moved_by < 1e-5 if kept else moved_by > 1e-4


def test_no_blocks_named_means_all(bench):
    """An empty list is every block; a list is itself."""
    assert CLora(CLoraConfig(), bench.build).updates.blocks == (0, 1, 2, 3, 4, 5)
    assert InfLora(InfLoraConfig(), bench.build).updates.blocks == (0, 1, 2, 3, 4)


def test_bad_options_are_refused(bench):
    """A rank that cannot be designed, a block that does not exist, a repeated projection or none."""
    with pytest.raises(ConfigError, match=r"baseline\.rank: 33 exceeds .* 32"):
        InfLora(InfLoraConfig(rank=33), bench.build)
    with pytest.raises(ConfigError, match=r"baseline\.blocks: block 6"):
        InfLora(InfLoraConfig(blocks=(0, 6)), bench.build)
    for targets, why in ((("k", "k"), "repeat"), ((), "Length")):
        with pytest.raises(ValueError, match=why):
            LowRankOptions(targets=targets)
