"""sd-lora: what a direction and a magnitude are, what a task's end changes, and its two variants."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bits import state
from lw2g.interfaces.pool import Pool
from lw2g.lifecycle.runner import start
from lw2g_lora.options import SdLoraConfig
from lw2g_lora.plugin import SD_LORA
from lw2g_lora.sd_lora import RankedSet, SdLora, inner_products


def made(bench, tasks=0, **options):
    """Return a baseline and a pool after some tasks, with sets of rank 4 unless told otherwise."""
    baseline, pool = SdLora(SdLoraConfig(**{"rank": 4, **options}), bench.build), Pool()
    for index in range(tasks):
        bench.learn(baseline, bench.begin(baseline, pool, index))
    return baseline, pool


def logits_of(baseline, pool, bench, index=0):
    with torch.no_grad():
        return baseline.logits(baseline.features(bench.batch(index), pool.route(None)))


def direction(item):
    """The authors' normalised direction: the product over the product of the factors' norms."""
    norms = item.up.norm(dim=(-2, -1), keepdim=True) * item.down.norm(dim=(-2, -1), keepdim=True)
    return item.up @ item.down / norms


def test_the_head_starts_as_released(vit_b):
    """Weights are uniform within sqrt(3 / width), biases zero."""
    baseline = SD_LORA.build(SdLoraConfig(), vit_b())
    assert baseline.head.weight.abs().max() <= (3 / 768) ** 0.5
    assert baseline.head.weight.abs().max() > 0.99 * (3 / 768) ** 0.5
    assert not baseline.head.bias.any()


def test_a_fresh_set_changes_nothing_and_a_forward_draws_nothing(bench):
    """With zero up factors the features are those of the plain ViT; the generator stays where it is."""
    baseline, pool = made(bench)
    pool.grow(baseline.new_set(None))
    batch, state = bench.batch(0), torch.get_rng_state()
    assert torch.equal(baseline.features(batch, pool.route(None)), bench.backbone.features(batch.images))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("boundary", ["carry", "reset"])
def test_a_step_is_the_authors_formula(bench, moved, boundary):
    """Loss and gradients of one step equal those of the formula, to a few 1e-6 of the largest."""
    baseline, pool = made(bench, boundary=boundary)
    for index in range(3):
        context = bench.begin(baseline, pool, index)
        moved(pool[index])
        baseline.phases(context)[0].run(lambda done, total: None)
    baseline.magnitudes.data = torch.tensor([0.7, 1.3, 0.9])
    train = baseline.phases(context)[1]
    for parameter in train.trained:
        parameter.requires_grad_(True)
    loss = train.step(bench.batch(2)).loss
    loss.backward()
    found = [baseline.magnitudes.grad, pool[2].down.grad, pool[2].up.grad, baseline.head.weight.grad]
    ours = [one.clone() for one in found]
    for parameter in train.trained:
        parameter.grad = None
    # by hand: dense increments hooked onto qkv, with the old directions normalised on reset
    old = [direction(item) if boundary == "reset" else item.up @ item.down for item in pool.sets[:2]]
    parts = [*(one.detach() for one in old), pool[2].up @ pool[2].down]
    increment = sum(magnitude * part for magnitude, part in zip(baseline.magnitudes, parts, strict=True))
    dim = bench.backbone.dim
    handles = []
    for block, (query, value) in enumerate(increment):

        def add(module, args, output, query=query, value=value):
            (x,) = args
            q, k, v = output.split(dim, dim=-1)
            return torch.cat([q + x @ query.T, k, v + x @ value.T], dim=-1)

        handles.append(bench.backbone.model.blocks[block].attn.qkv.register_forward_hook(add))
    batch = bench.batch(2)
    scores = baseline.head(bench.backbone.features(batch.images))[:, 4:6]
    expected = functional.cross_entropy(scores, batch.labels - 4)
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=1e-6)
    expected.backward()
    for handle in handles:
        handle.remove()
    theirs = [baseline.magnitudes.grad, pool[2].down.grad, pool[2].up.grad, baseline.head.weight.grad]
    for mine, their in zip(ours, theirs, strict=True):
        assert their.abs().max() > 0
        assert (mine - their).abs().max() <= 5e-6 * their.abs().max()


@pytest.mark.parametrize("new_direction", ["raw", "normalised"])
@pytest.mark.parametrize("boundary", ["carry", "reset"])
def test_carry_keeps_the_function_over_a_boundary(bench, moved, new_direction, boundary):
    """Logits before and after a new task begins are equal on carry; on reset they are not."""
    baseline, pool = made(bench, tasks=2, new_direction=new_direction, boundary=boundary)
    moved(*pool.sets)
    baseline.magnitudes.data[:2] = torch.tensor([0.5, 1.7])
    before = logits_of(baseline, pool, bench)
    context = bench.begin(baseline, pool, 2)
    pool[2].up.data.zero_()  # where it is normalised it is never nothing
    baseline.phases(context)[0].run(lambda done, total: None)
    after = logits_of(baseline, pool, bench)
    change = float((after - before).abs().max())
    assert change < 1e-5 if boundary == "carry" else change > 1e-3


def test_what_a_task_trains(bench):
    """Magnitudes of all sets, the newest set and its classes' rows of the head; the rest keeps its bits."""
    baseline, pool = made(bench, tasks=2)
    context = bench.begin(baseline, pool, 2)
    before, shared = state(*pool.sets), state(baseline)
    bench.learn(baseline, context)
    after = state(*pool.sets)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"2.down", "2.up"}
    changed = (baseline.head.weight != shared["0.head.weight"]).any(dim=1)
    assert changed.tolist() == [False] * 4 + [True] * 2
    assert (baseline.magnitudes != shared["0.magnitudes"]).all()


def test_the_rate_drops_at_milestones(bench):
    """ImageNet-A's preset: a twentieth from epoch 10 on, and again from 15 on."""
    options = {
        name.partition(".")[2]: value
        for name, value in SD_LORA.presets["imagenet-a"].items()
        if name.startswith("baseline.")
    }
    baseline, pool = made(bench, **options)
    rates = []
    for index in range(2):
        train = baseline.phases(bench.begin(baseline, pool, index))[1]
        rates.append([train.schedule(train.groups[0].lr, epoch, 20) for epoch in (0, 9, 10, 15)])
    assert rates[0] == pytest.approx([0.01, 0.01, 5e-4, 2.5e-5])
    assert rates[1] == pytest.approx([0.005, 0.005, 2.5e-4, 1.25e-5])


@pytest.mark.parametrize(
    ("after", "ranks"), [((4, 8), [10] * 4 + [8] * 4 + [6] * 2), ((3, 7), [10] * 3 + [8] * 4 + [6] * 3)]
)
def test_late_sets_have_lower_ranks(bench, after, ranks):
    """RR: as released the ten sets have 84 directions, by the paper's count 80; a checkpoint keeps them."""
    baseline, pool = made(bench, rank=10, reduced_ranks=(8, 6), reduce_after=after)
    for _ in range(10):
        pool.grow(baseline.new_set(baseline.source_of(pool)))
    assert [item.down.shape[-2] for item in pool.sets] == ranks
    assert sum(ranks) == (84 if after == (4, 8) else 80)
    state = pool.state_dict()
    again = Pool()
    again.restore(list(range(10)), state, lambda: baseline.new_set(None))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in state.items())
    assert [item.down.shape[-2] for item in again.sets] == ranks


def absorbing(bench, moved, boundary="carry", **options):
    """A third task whose set is about to be looked at."""
    baseline, pool = made(bench, absorb=0.01, boundary=boundary, **options)
    for index in range(3):
        context = bench.begin(baseline, pool, index)
        moved(pool[index])
        baseline.phases(context)[0].run(lambda done, total: None)
    baseline.magnitudes.data = torch.tensor([0.7, 1.3, 0.9])
    return baseline, pool, context


@pytest.mark.parametrize("boundary", ["carry", "reset"])
def test_a_set_that_the_old_ones_span_is_absorbed(bench, moved, boundary):
    """KD: a combination of old directions leaves nothing, goes into their magnitudes, and no logit moves."""
    baseline, pool, context = absorbing(bench, moved, boundary)
    share = torch.tensor([0.3, -1.2])
    pool[2].down.data = torch.cat([pool[0].down, pool[1].down], dim=-2).detach()
    pool[2].up.data = torch.cat([share[0] * pool[0].up, share[1] * pool[1].up], dim=-1).detach()
    found, left = baseline.residual(context)
    torch.testing.assert_close(found[:, 3, 1].float(), share, atol=1e-5, rtol=1e-5)
    assert left.abs().max() < 1e-8
    before = logits_of(baseline, pool, bench)
    baseline.phases(context)[-1].run(lambda done, total: None)
    assert (pool[2].up.numel(), pool[2].down.numel()) == (0, 0)
    assert (baseline.sites(pool[2]), pool.size) == ((), pool[0].up.numel() * 4)
    again = Pool()
    again.restore([0, 1, 2], pool.state_dict(), lambda: baseline.new_set(None))
    assert torch.equal(logits_of(baseline, again, bench), logits_of(baseline, pool, bench))
    torch.testing.assert_close(logits_of(baseline, pool, bench), before, atol=1e-5, rtol=1e-4)


def test_a_set_beside_the_old_ones_is_kept(bench, moved):
    """KD: directions orthogonal to the old ones leave everything; a first task never absorbs."""
    baseline, pool, context = absorbing(bench, moved)
    span = torch.cat([pool[0].down, pool[1].down], dim=-2).detach()
    off = torch.linalg.qr(span.mT)[0]
    own = pool[2].down.data
    pool[2].down.data = own - own @ off @ off.mT
    _, left = baseline.residual(context)
    torch.testing.assert_close(left, torch.ones_like(left), atol=1e-6, rtol=0)
    before = pool[2].up.detach().clone()
    baseline.phases(context)[-1].run(lambda done, total: None)
    assert torch.equal(pool[2].up, before)
    assert not baseline.offsets.any()
    first = bench.begin(*made(bench, absorb=0.5), 0)
    fresh, _ = made(bench, absorb=0.5)
    assert [phase.name for phase in fresh.phases(first)] == ["lora-start", "lora"]


def test_inner_products_are_those_of_dense_products(bench, moved):
    """Traces of small matrices equal the Frobenius products, also of sets of different ranks."""
    sets = [RankedSet(num_blocks=2, num_targets=2, rank=rank, dim=8, bound=1.0) for rank in (3, 5)]
    moved(*sets)
    dense = [item.increments().double() for item in sets]
    torch.testing.assert_close(
        inner_products(*sets), (dense[0] * dense[1]).sum((-2, -1)), atol=1e-6, rtol=1e-6
    )


def test_it_runs_under_growth_policies(quick, catalogue, tmp_path):
    """Published is a set per task; LW2G measures its factors; all old classes are stale either way."""
    options = {"baseline.rank": 4, "baseline.epochs": 1, "growth.draws": 2}
    record = start(quick(options, baseline="sd-lora", policy="min"), catalogue, tmp_path / "run")
    assert sorted(record["config"]["constraints"]) == ["cpk", "orthogonal"]
    assert record["stale_classes"]["by_task"] == pytest.approx([0, 2 / 5, 5 / 7])  # of 2, 5 and 7 classes
    assert any(one["measures"] for entry in record["decisions"] for one in entry["candidates"])
    listed = {entry["option"] for entry in record["deviations"]}
    assert "baseline.randomness" in listed
