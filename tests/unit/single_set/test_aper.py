"""aper-vpt-deep and aper-adapter: sizes, forwards, the one adaptation, and what freezing implies."""

from __future__ import annotations

import copy
from functools import partial
from itertools import permutations

import pytest
import torch
from torch.nn import functional

from lw2g.blocks.heads import CosineClassifier
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import ComputePhase
from lw2g.interfaces.pool import Pool
from lw2g.training.progress import Reporter
from lw2g.training.runner import start
from lw2g_single_set.aper import AperAdapter, AperVptDeep
from lw2g_single_set.controls import SimpleCIL
from lw2g_single_set.options import AdapterOptions, SimpleCILConfig, TokenOptions
from lw2g_single_set.plugin import APER_ADAPTER, APER_VPT_DEEP

VARIANTS = {
    "aper-vpt-deep": partial(AperVptDeep, TokenOptions(lr=0.05)),
    "aper-adapter": partial(AperAdapter, AdapterOptions(bottleneck=8, lr=0.5)),
}
PAIRS = [(0, 1), (2, 3), (4, 5)]
both = pytest.mark.parametrize("name", list(VARIANTS))


def randomised(module, scale=0.3):
    """Move every parameter, so that what starts at zero does something."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return module


def learned(stream, make, tasks=None, epochs=2):
    """Return baseline and pool after some tasks, learned one after the other."""
    baseline, pool = make(stream.build), Pool()
    for index in range(len(stream.tasks) if tasks is None else tasks):
        stream.learn(baseline, stream.begin(baseline, pool, index), epochs)
    return baseline, pool


@torch.no_grad()
def predictions(baseline, pool, stream, images, seen):
    """Return predicted class numbers."""
    batch = Batch(
        labels=torch.zeros(len(images)),
        samples=torch.arange(len(images)),
        images=lambda: images,
        query=lambda: stream.backbone.features(images),
    )
    features = baseline.features(batch, pool.route(None))
    found = baseline.logits(features)[:, :seen].argmax(1)
    return torch.tensor(stream.order)[found]


def test_counts_are_those_of_the_release(vit_b):
    """Tokens, adapters and the classifier of the first task have the official numbers of parameters."""

    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    for length, total in ((5, 46_080), (30, 276_480)):
        assert count(AperVptDeep(TokenOptions(length=length), vit_b()).new_set(None)) == total
    adapters = AperAdapter(AdapterOptions(), vit_b()).new_set(None)
    assert [sum(one[block].numel() for one in adapters.parameters()) for block in range(12)] == [99_136] * 12
    assert count(adapters) == 1_189_632
    assert count(CosineClassifier(10, 768)) == 7_681


def test_starts_are_those_of_the_release(vit_b):
    """Tokens are zero; of an adapter only the down weight is not; sigma is one."""
    assert not AperVptDeep(TokenOptions(), vit_b()).new_set(None).token.any()
    adapter = AperAdapter(AdapterOptions(), vit_b()).new_set(None)
    assert not any(part.any() for part in (adapter.down_bias, adapter.up, adapter.up_bias))
    # kaiming-uniform with a = sqrt 5 is U(-b, b) with b = 1 / sqrt(fan in)
    assert float(adapter.down[3].detach().abs().max()) == pytest.approx(768**-0.5, rel=1e-2)
    classifier = CosineClassifier(10, 768)
    assert float(classifier.weight.detach().abs().max()) == pytest.approx(768**-0.5, rel=1e-2)
    assert classifier.sigma.tolist() == [1]


@pytest.mark.parametrize("last", [True, False])
def test_tokens_join_for_one_block_each(stream_of, last):
    """A loop that appends (or prepends) a block's tokens and drops them after it gives the features."""
    stream = stream_of(PAIRS)
    baseline, model = VARIANTS["aper-vpt-deep"](stream.build), stream.backbone.model
    tokens = randomised(baseline.new_set(None))
    images = stream.images([0, 1])
    h = model._pos_embed(model.patch_embed(images))
    for block, rows in zip(model.blocks, tokens.token, strict=True):
        rows = rows.expand(len(h), -1, -1)
        h = block(torch.cat([h, rows] if last else [rows, h], dim=1))
        h = h[:, : -rows.shape[1]] if last else h[:, rows.shape[1] :]
    assert h.shape[1] == stream.backbone.num_tokens
    torch.testing.assert_close(baseline.adapted(images, tokens), model.norm(h)[:, 0], atol=1e-4, rtol=1e-4)


def test_adapters_add_a_tenth_of_their_branch(stream_of):
    """The block written out, where 0.1 multiplies the bias of the up-projection too."""
    stream = stream_of(PAIRS)
    baseline, model = VARIANTS["aper-adapter"](stream.build), stream.backbone.model
    adapters = randomised(baseline.new_set(None))
    images = stream.images([0, 1])
    h = model._pos_embed(model.patch_embed(images))
    for index, block in enumerate(model.blocks):
        h1 = h + block.attn(block.norm1(h))
        inner = (h1 @ adapters.down[index].T + adapters.down_bias[index]).clamp(min=0)
        branch = 0.1 * (inner @ adapters.up[index].T) + 0.1 * adapters.up_bias[index]
        h = h1 + block.mlp(block.norm2(h1)) + branch
    torch.testing.assert_close(baseline.adapted(images, adapters), model.norm(h)[:, 0], atol=1e-4, rtol=1e-4)


def test_dropout_belongs_to_training(stream_of):
    """Features do not depend on the mode of any module; a training pass differs from the next."""
    stream = stream_of(PAIRS)
    baseline = VARIANTS["aper-adapter"](stream.build)
    adapters, images = randomised(baseline.new_set(None)).train(), stream.images([0, 1])
    still = baseline.adapted(images, adapters)
    assert torch.equal(still, baseline.adapted(images, adapters.eval()))
    moving = [baseline.adapted(images, adapters, training=True) for _ in range(2)]
    assert not torch.allclose(moving[0], moving[1], atol=1e-3)
    assert not torch.allclose(moving[0], still, atol=1e-3)


@both
def test_the_adaptation_is_the_official_one(stream_of, name):
    """SGD with momentum, weight decay on all, a cosine to zero, and CE of sigma times cosine."""
    stream = stream_of(PAIRS)
    baseline, pool = VARIANTS[name](stream.build), Pool()
    context = stream.begin(baseline, pool, 0)
    phase, means = baseline.phases(context)
    assert isinstance(means, ComputePhase)
    assert (phase.optimizer, phase.momentum, phase.clip_norm, phase.host) == ("sgd", 0.9, None, True)
    assert [group.weight_decay for group in phase.groups] == [5e-4]
    assert {id(p) for p in phase.trained} == {
        id(p) for module in (pool[0], baseline.classifier) for p in module.parameters()
    }
    assert [phase.schedule(1.0, epoch, 20) for epoch in (0, 10, 20)] == pytest.approx([1, 0.5, 0])
    batch = stream.batch((0, 1))
    torch.manual_seed(5)
    loss = phase.step(batch).loss
    torch.manual_seed(5)
    features = baseline.adapted(batch.images, pool[0], training=True)
    cosines = functional.cosine_similarity(features[:, None], baseline.classifier.weight[None], dim=-1)
    torch.testing.assert_close(loss, functional.cross_entropy(cosines, batch.labels))
    loss.backward()
    assert baseline.classifier.sigma.grad.abs() > 0
    assert all(parameter.grad is not None for parameter in pool[0].parameters())


@both
def test_later_tasks_add_class_means_alone(stream_of, name):
    """After the first task the set and old means stay as they are, to the bit, and nothing is trained."""
    stream = stream_of(PAIRS)
    baseline, pool = learned(stream, VARIANTS[name], tasks=1)
    before, fresh = copy.deepcopy(pool[0].state_dict()), baseline.new_set(None).state_dict()
    assert any(not torch.equal(before[key], fresh[key]) for key in before)
    for index in (1, 2):
        table, old = baseline.closed_form.total.clone(), 2 * index
        context = stream.begin(baseline, pool, index)
        assert [type(phase) for phase in baseline.phases(context)] == [ComputePhase]
        stream.learn(baseline, context)
        assert torch.equal(baseline.closed_form.total[:old], table[:old])
        assert baseline.closed_form.total[old : old + 2].any(dim=1).all()
        assert not baseline.closed_form.total[old + 2 :].any()
    assert all(torch.equal(before[key], value) for key, value in pool[0].state_dict().items())
    assert list(baseline.parameters()) == []
    assert len(pool) == 1


@both
@pytest.mark.parametrize("size", [1, 3, None])
def test_prototypes_are_means_of_both_halves(stream_of, name, size):
    """A class mean is that of ``[frozen ; adapted]`` over its images, however they were batched."""
    stream = stream_of(PAIRS)
    baseline, pool = VARIANTS[name](stream.build), Pool()
    for index in range(3):
        context = stream.begin(baseline, pool, index, size)
        if index == 0:
            randomised(pool[0])
        baseline.phases(context)[-1].run(lambda done, total: None)
    for position in range(6):
        images = stream.images([position])
        with torch.no_grad():
            whole = torch.cat([stream.backbone.features(images), baseline.adapted(images, pool[0])], dim=1)
        torch.testing.assert_close(
            baseline.closed_form.total[position], whole.double().sum(0), rtol=1e-5, atol=1e-5
        )
    assert baseline.closed_form.total.shape == (6, 64)


def test_the_half_with_the_larger_norm_weighs_more(stream_of):
    """Logits are cosines of the joined vectors: ``(a p + b q) / (|[a;b]| |[p;q]|)``."""
    baseline = VARIANTS["aper-adapter"](stream_of(PAIRS).build)
    a, b, p, q = torch.randn(4, 32) * torch.tensor([[1.0], [9.0], [2.0], [5.0]])
    baseline.closed_form.update(torch.cat([p, q])[None], torch.tensor([0]))
    found = baseline.logits(torch.cat([a, b])[None])[0, 0]
    norms = (a.square().sum() + b.square().sum()).sqrt() * (p.square().sum() + q.square().sum()).sqrt()
    torch.testing.assert_close(found, (a @ p + b @ q) / norms)


def test_an_untouched_adapter_is_simple_cil(stream_of):
    """With the up-projection at zero both halves are equal, and so are all predictions and cosines."""
    stream = stream_of(PAIRS)
    baseline, pool = learned(stream, VARIANTS["aper-adapter"], epochs=0)
    plain, other = learned(stream, partial(SimpleCIL, SimpleCILConfig()))
    batch = stream.batch(range(6))
    with torch.no_grad():
        features = baseline.features(batch, pool.route(None))
    assert torch.equal(features[:, :32], features[:, 32:])
    assert torch.equal(baseline.closed_form.total[:, :32], plain.closed_form.total)
    torch.testing.assert_close(baseline.logits(features), plain.logits(batch.query))
    images = 2 * torch.randn(60, 3, 16, 16)
    found = predictions(baseline, pool, stream, images, 6)
    assert torch.equal(found, predictions(plain, other, stream, images, 6))
    assert len(found.unique()) > 2


@both
def test_the_order_of_later_tasks_does_not_matter(stream_of, name):
    """After all tasks every image gets the same class, whichever order tasks 2 to T came in."""
    results = []
    for later in permutations([(2, 3), (4,), (5, 6, 7)]):
        stream = stream_of([(0, 1), *later])
        baseline, pool = learned(stream, VARIANTS[name])
        images = torch.randn(60, 3, 16, 16, generator=torch.Generator().manual_seed(9))
        results.append(predictions(baseline, pool, stream, 2 * images, 8))
    assert all(torch.equal(found, results[0]) for found in results)
    assert len(results[0].unique()) > 2


@both
def test_the_accuracy_of_a_task_never_rises(quick, catalogue, tmp_path, name):
    """Features are frozen, so new classes only take samples away; forgetting is what the diagonal lost."""
    overrides = {"benchmark.increment": 10, "benchmark.train": 2, "benchmark.tasks": 4}
    record = start(quick(overrides, baseline=name), catalogue, tmp_path / "run")
    rows = [[value for value in row if value is not None] for row in record["accuracy_matrix"]]
    assert [sorted(row, reverse=True) for row in rows] == rows
    lost = [row[0] - row[-1] for row in rows[:-1]]
    assert record["metrics"]["ffm"] == pytest.approx(sum(lost) / 3)
    assert sum(lost) > 0
    assert record["metrics"]["ssp"] == 1
    assert record["metrics"]["pra"] is None
    assert record["task_to_set"] == [0, 0, 0, 0]
    assert {change for changes in record["feature_drift"] for change in changes} == {0.0}


@both
def test_frozen_features_are_computed_once(session_of, name):
    """Evaluation computes the features of a test image a single time, and they are what all anew would be."""
    session = session_of(baseline=name)
    original, sizes = session.baseline.features, []

    def counting(batch, routing):
        sizes.append(len(batch))
        return original(batch, routing)

    session.baseline.features = counting
    for index in range(3):
        session.begin_task(index)
        if index == 0:
            session.pool.grow(randomised(session.new_set(None)))
        else:
            session.pool.reuse(0)
        images = session.image_set([session.stream.tasks[index].train], train=False)
        session.baseline.phases(session.task_context(index, images))[-1].run(lambda done, total: None)
        session.pool.touch(0)
        history = [session.info(earlier) for earlier in range(index + 1)]
        arguments = (session.baseline, session.pool, None, history, Reporter([], [1, 1, 1]))
        sizes.clear()
        found, _ = session.evaluator.evaluate(*arguments)
        new = session.evaluator.sizes(index + 1)[-1]
        assert sizes == [16] * -(-new // 16)  # the new images, padded
        kept = session.evaluator.features_of(len(found.sample)).clone()
        session.evaluator.forget()
        again, _ = session.evaluator.evaluate(*arguments)
        assert torch.equal(kept, session.evaluator.features_of(len(found.sample)))
        assert (found.predicted == again.predicted).all()


def test_presets_hold_the_official_recipes():
    """Every family has its epochs, learning rate, batch size, weight decay and size."""

    def recipes(component, size):
        keys = ("epochs", "lr", "batch_size", "weight_decay", size)
        default = component.config()
        return {
            family: tuple(values.get(f"baseline.{key}", getattr(default, key)) for key in keys)
            for family, values in component.presets.items()
        }

    assert recipes(APER_VPT_DEEP, "length") == {
        "cifar100": (20, 0.01, 48, 5e-4, 5),
        "imagenet-r": (20, 0.05, 24, 5e-4, 30),
        "omnibenchmark": (20, 0.01, 48, 5e-4, 5),
        "cub200-lamda": (5, 0.05, 16, 5e-4, 5),
    }
    assert recipes(APER_ADAPTER, "bottleneck") == {
        "cifar100": (20, 0.01, 48, 5e-4, 64),
        "imagenet-r": (10, 0.05, 16, 5e-3, 64),
        "omnibenchmark": (20, 0.01, 48, 5e-4, 64),
        "cub200-lamda": (20, 0.01, 48, 5e-4, 64),
    }
    for component in (APER_VPT_DEEP, APER_ADAPTER):
        assert set(component.tuned) == {"digits", "glyphs", "folder"}
