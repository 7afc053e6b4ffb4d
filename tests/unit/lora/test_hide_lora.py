"""hide-lora: sizes, averaging, statistics and replay, reuse."""

from __future__ import annotations

import attrs
import pytest
import torch

from bits import same, state
from lw2g.interfaces.pool import Pool
from lw2g.maths.hindrance import hfc
from lw2g.maths.subspace import Subspace
from lw2g_lora.hide_lora import HideLora
from lw2g_lora.options import HideLoraConfig

SMALL = HideLoraConfig(rank=4, batch_size=4, epochs=2, replay_epochs=2, clusters=2, ensemble=0.25)


@pytest.mark.parametrize("rank", [4, 5, 8])
def test_a_set_starts_as_released(vit_b, rank):
    """Down factors are uniform within 1 / sqrt(rank), and the product is scaled by 1 / rank."""
    baseline = HideLora(HideLoraConfig(rank=rank), vit_b())
    made = baseline.new_set(None)
    assert 0.99 * rank**-0.5 < float(made.down.detach().abs().max()) <= rank**-0.5
    assert baseline.updates.scale == 1 / rank


def test_averaging_is_of_factors(bench, moved):
    """A new set becomes (1 - a) of itself and a of the others' mean, factor by factor."""
    baseline, pool, context = bench.begun(HideLora, SMALL, 3)
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
    baseline, pool, context = bench.begun(HideLora, attrs.evolve(SMALL, contrastive=0.0), 2)
    moved(*pool.sets)
    batch = bench.batch(1)
    plain = bench.probe_loss(baseline, batch, pool.force(1), 1)
    assert torch.equal(baseline.phases(context)[0].step(batch).loss, plain)


def test_a_fresh_random_set_has_no_angle(bench):
    """Up is zero: down's gradient is zero and its angle undefined, up's is not zero."""
    baseline, pool, context = bench.begun(HideLora, SMALL)
    loss = baseline.phases(context)[0].step(bench.batch(0)).loss
    down, up = torch.autograd.grad(loss, (pool[0].down, pool[0].up))
    assert not down.any()
    assert up.abs().max() > 1e-4
    site = baseline.sites(pool[0])[0]
    assert hfc([site.rows(down)], [Subspace.empty(32)]).degrees is None
