"""coda-prompt: sizes, its masked query, its two forwards per image, and the orthogonality penalty."""

from __future__ import annotations

import attrs
import pytest
import torch

from lw2g.blocks.weighted_prefixes import Components, Queries
from lw2g_prompts.coda_prompt import CodaPrompt, orthogonality
from lw2g_prompts.options import CodaPromptConfig


def test_the_head_starts_as_torch_does(vit_b):
    """Weights and biases are uniform within 1 / sqrt(width)."""
    head = CodaPrompt(CodaPromptConfig(), vit_b(1, 100)).head
    for values in (head.weight, head.bias):
        assert 0.9 / 768**0.5 < float(values.detach().abs().max()) <= 1 / 768**0.5


def test_two_forwards_per_image(bench):
    """In training and in evaluation alike: one for the query, one with prefixes."""
    baseline, pool, context = bench.begun(CodaPrompt, CodaPromptConfig())
    rows = []
    handle = bench.backbone.model.norm.register_forward_hook(lambda *args: rows.append(len(args[2])))
    try:
        baseline.phases(context)[0].step(bench.batch(0))
        baseline.features(bench.batch(0), pool.route(None))
    finally:
        handle.remove()
    assert rows == [4, 4, 4, 4]


def test_the_query_is_the_unprompted_feature_under_the_mask(bench):
    """All blocks use one query, the prefix is the weighted sum written out, and masks get a gradient."""
    baseline, pool, _ = bench.begun(CodaPrompt, CodaPromptConfig())
    batch, seen = bench.batch(0), {}
    baseline.head(
        bench.backbone.features(batch.images, [baseline.injection(batch, pool.sets, seen)])
    ).sum().backward()
    assert all(query is batch.query for query in seen.values())
    assert sorted(seen) == [0, 1, 2, 3, 4]
    own = pool[0]
    weights = Components.of([own]).weights(3, Queries.of(batch.query))
    key, _ = baseline.injection(batch, pool.sets).prefixes[3](torch.zeros(4, 17, 48))
    torch.testing.assert_close(key, (weights @ own.prefix_key[3].flatten(1)).reshape(4, 4, 48))
    for parameter in own.parameters():
        assert (parameter.grad.flatten(1).norm(dim=1) > 0).all()


def test_orthogonality_of_known_rows():
    """Orthonormal rows cost nothing, n zero rows 1 / n, two equal unit rows one half."""
    assert float(orthogonality(torch.eye(3, 7))) == 0
    assert float(orthogonality(torch.zeros(5, 7))) == pytest.approx(1 / 5)
    assert float(orthogonality(torch.eye(1, 7).repeat(2, 1))) == pytest.approx(1 / 2)


def test_the_penalty_is_zero_at_the_start_and_covers_frozen_rows(bench):
    """An orthogonal start costs nothing over all sets; a new set that copies an old one does."""
    baseline, pool, _ = bench.begun(CodaPrompt, CodaPromptConfig(orthogonality=2.0), 2)
    batch = bench.batch(1)
    assert baseline.regulariser(batch, pool.sets, {}).item() < 1e-11
    pool[1].load_state_dict(pool[0].state_dict())
    # each row has one double: 20 of 400 entries are one off, at 5 blocks for 3 kinds of rows
    expected = 2.0 * 5 * 3 * 20 / 400
    assert baseline.regulariser(batch, pool.sets, {}).item() == pytest.approx(expected, rel=1e-4)


def test_the_penalty_is_added_to_cross_entropy_and_is_no_evidence(bench):
    """Weight 0 is the masked cross-entropy alone; the probe loss never has the penalty."""
    baseline, pool, context = bench.begun(CodaPrompt, CodaPromptConfig())
    batch = bench.batch(0)
    logits = baseline.logits(baseline.features(batch, pool.route(None)))[:, :2]
    plain = -logits.log_softmax(1)[torch.arange(4), batch.labels].mean()
    with torch.no_grad():
        pool[0].key.mul_(2)
    torch.testing.assert_close(baseline.step(batch, context).loss, plain)
    baseline.config = attrs.evolve(baseline.config, orthogonality=1.0)
    # ten keys of length two: ten of 100 entries are three off
    torch.testing.assert_close(baseline.step(batch, context).loss, plain + 5 * 0.9, atol=1e-4, rtol=0)
    torch.testing.assert_close(bench.probe_loss(baseline, batch, pool.route(None), 0), plain)
