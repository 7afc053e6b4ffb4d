"""hide-lora: sizes, averaging, statistics and replay, reuse."""

from __future__ import annotations

import attrs
import pytest
import torch

from bits import same, state
from lw2g.blocks.contrastive import self_identification_loss
from lw2g.geometry.hindrance import hfc
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.pool import Pool
from lw2g_lora.hide_lora import HideLora
from lw2g_lora.options import HideLoraConfig

SMALL = HideLoraConfig(rank=4, batch_size=4, epochs=2, replay_epochs=2, clusters=2, ensemble=0.25)


@pytest.mark.parametrize("rank", [4, 5, 8])
def test_a_set_starts_as_released(vit_b, rank):
    """Down factors are uniform within 1 / sqrt(rank), and the product is scaled by 1 / rank."""
    baseline = HideLora(HideLoraConfig(rank=rank), vit_b())
    made = baseline.new_set(None)
    assert 0.99 * rank**-0.5 < float(made.down.detach().abs().max()) <= rank**-0.5
    assert baseline.scale == 1 / rank


def test_phases_come_in_order(bench):
    """Train, average, take statistics, replay; one learning rate, clipped at 2."""
    baseline, pool = HideLora(HideLoraConfig(rank=4), bench.build), Pool()
    phases = baseline.phases(bench.begin(baseline, pool, 0))
    assert [phase.name for phase in phases] == ["lora", "lora-ensemble", "statistics", "replay"]
    group, head = phases[0].groups
    assert group.lr == head.lr == pytest.approx(9.38e-4, rel=1e-3)
    assert (phases[0].clip_norm, phases[0].host) == (2.0, True)
    cosine = HideLora(HideLoraConfig(rank=4, schedule="cosine"), bench.build)
    train = cosine.phases(bench.begin(cosine, Pool(), 0))[0]
    assert train.schedule(group.lr, 51, 50) == pytest.approx(1e-5)


def test_a_new_set_starts_from_the_previous_one(bench, moved):
    """Down and up of the last trained set are copied; at random, up is zero."""
    for init, alike in (("previous", True), ("random", False)):
        baseline, pool = HideLora(attrs.evolve(SMALL, init_from=init), bench.build), Pool()
        bench.begin(baseline, pool, 0)
        moved(pool[0])
        bench.begin(baseline, pool, 1)
        assert same(state(pool[0]), state(pool[1])) == alike
        assert bool(pool[1].up.any()) == alike


def test_averaging_is_of_factors(bench, moved):
    """A new set becomes (1 - a) of itself and a of the others' mean, factor by factor."""
    baseline, pool = HideLora(SMALL, bench.build), Pool()
    for index in range(3):
        context = bench.begin(baseline, pool, index)
    moved(*pool.sets)
    others, version = state(pool[0], pool[1]), pool.version(2)
    down = 0.75 * pool[2].down + 0.25 * (pool[0].down + pool[1].down) / 2
    up = 0.75 * pool[2].up + 0.25 * (pool[0].up + pool[1].up) / 2
    products = 0.75 * pool[2].increments() + 0.25 * (pool[0].increments() + pool[1].increments()) / 2
    baseline.average(context)
    torch.testing.assert_close(pool[2].down, down)
    torch.testing.assert_close(pool[2].up, up)
    assert not torch.allclose(pool[2].increments(), products, atol=1e-3)
    assert same(state(pool[0], pool[1]), others)
    assert pool.version(2) > version


@pytest.mark.parametrize("case", ["first", "reused", "random"])
def test_what_is_not_averaged(case, bench, moved):
    """The first set, a reused one (it is protected), and sets that start at random (their factors differ)."""
    baseline = HideLora(
        attrs.evolve(SMALL, init_from="random" if case == "random" else "previous"), bench.build
    )
    pool = Pool()
    context = bench.begin(baseline, pool, 0)
    if case != "first":
        context = bench.begin(baseline, pool, 1)
    if case == "reused":
        context = bench.begin(baseline, pool, 2, reuse=0)
    moved(*pool.sets)
    before = state(*pool.sets)
    baseline.average(context)
    assert same(state(*pool.sets), before)


def test_training_uses_the_set_as_it_is(bench, moved):
    """Unlike HiDe-Prompt's, the average plays no part in the training forward."""
    baseline, pool = HideLora(attrs.evolve(SMALL, contrastive=0.0), bench.build), Pool()
    for index in range(2):
        context = bench.begin(baseline, pool, index)
    moved(*pool.sets)
    batch = bench.batch(1)
    plain = bench.probe_loss(baseline, batch, pool.force(1), 1)
    assert torch.equal(baseline.phases(context)[0].step(batch).loss, plain)


def test_the_contrastive_term_uses_centroids_of_old_classes_only(bench):
    """The added loss is the term against exactly the stored centroids of earlier classes."""
    baseline, pool = HideLora(attrs.evolve(SMALL, contrastive=0.5), bench.build), Pool()
    bench.learn(baseline, bench.begin(baseline, pool, 0))
    context, batch = bench.begin(baseline, pool, 1), bench.batch(1)
    baseline.statistics.fit(2, torch.randn(4, 32))
    output = baseline.phases(context)[0].step(batch)
    expected = self_identification_loss(output.features, baseline.statistics.centroids([0, 1]))
    plain = baseline.step(batch, context).loss
    torch.testing.assert_close(output.loss - plain, 0.5 * expected, atol=1e-6, rtol=1e-4)
    assert expected.item() > 1e-3


def test_a_fresh_random_set_has_no_angle(bench):
    """Up is zero: down's gradient is zero and its angle undefined, up's is not zero."""
    baseline, pool = HideLora(SMALL, bench.build), Pool()
    context = bench.begin(baseline, pool, 0)
    loss = baseline.phases(context)[0].step(bench.batch(0)).loss
    down, up = torch.autograd.grad(loss, (pool[0].down, pool[0].up))
    assert not down.any()
    assert up.abs().max() > 1e-4
    site = baseline.sites(pool[0])[0]
    assert hfc([site.rows(down)], [Subspace.empty(32)]).degrees is None
