"""aper-vpt-deep and aper-adapter: sizes, forwards, the one adaptation, and what freezing implies."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch.nn import functional

from lw2g.blocks.heads import CosineClassifier
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import ComputePhase
from lw2g.interfaces.pool import Pool
from lw2g_single_set.aper import Aper
from lw2g_single_set.options import AdapterOptions, SimpleCILConfig, TokenOptions
from lw2g_single_set.simple_cil import SimpleCIL

VARIANTS = {
    "aper-vpt-deep": partial(Aper, TokenOptions(lr=0.05), adapt="vpt-deep"),
    "aper-adapter": partial(Aper, AdapterOptions(bottleneck=8, lr=0.5), adapt="adapter"),
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


def test_starts_are_those_of_the_release(vit_b):
    """Tokens are zero; of an adapter only the down weight is not; sigma is one."""
    assert not Aper(TokenOptions(), vit_b(), adapt="vpt-deep").new_set(None).token.any()
    adapter = Aper(AdapterOptions(), vit_b(), adapt="adapter").new_set(None)
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
    torch.testing.assert_close(
        baseline.adaptation.features(images, tokens), model.norm(h)[:, 0], atol=1e-4, rtol=1e-4
    )


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
    torch.testing.assert_close(
        baseline.adaptation.features(images, adapters), model.norm(h)[:, 0], atol=1e-4, rtol=1e-4
    )


def test_dropout_belongs_to_training(stream_of):
    """Features do not depend on the mode of any module; a training pass differs from the next."""
    stream = stream_of(PAIRS)
    baseline = VARIANTS["aper-adapter"](stream.build)
    adapters, images = randomised(baseline.new_set(None)).train(), stream.images([0, 1])
    still = baseline.adaptation.features(images, adapters)
    assert torch.equal(still, baseline.adaptation.features(images, adapters.eval()))
    moving = [baseline.adaptation.features(images, adapters, training=True) for _ in range(2)]
    assert not torch.allclose(moving[0], moving[1], atol=1e-3)
    assert not torch.allclose(moving[0], still, atol=1e-3)


@both
def test_the_loss_is_the_official_one(stream_of, name):
    """Cross-entropy of sigma times cosine, which reaches the set and sigma."""
    stream = stream_of(PAIRS)
    baseline, pool = VARIANTS[name](stream.build), Pool()
    context = stream.begin(baseline, pool, 0)
    phase, means = baseline.phases(context)
    assert isinstance(means, ComputePhase)
    batch = stream.batch((0, 1))
    torch.manual_seed(5)
    loss = phase.step(batch).loss
    torch.manual_seed(5)
    features = baseline.adaptation.features(batch.images, pool[0], training=True)
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
@pytest.mark.parametrize("size", [3, None])
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
            whole = torch.cat(
                [stream.backbone.features(images), baseline.adaptation.features(images, pool[0])], dim=1
            )
        torch.testing.assert_close(
            baseline.closed_form.total[position], whole.double().sum(0), rtol=1e-5, atol=1e-5
        )
    assert baseline.closed_form.total.shape == (6, 64)


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
