"""hide-prompt: sizes, ensemble and merge, replay, statistics, reuse."""

from __future__ import annotations

import attrs
import pytest
import torch

from bits import same, state
from lw2g.blocks.contrastive import self_identification_loss
from lw2g.interfaces.pool import Pool
from lw2g_lora.hide_lora import HideLora
from lw2g_lora.options import HideLoraConfig
from lw2g_prompts.hide_prompt import HidePrompt
from lw2g_prompts.options import HidePromptConfig

QUICK = HidePromptConfig(epochs=2, replay_epochs=2, clusters=2, batch_size=4, ensemble=0.25)


def test_without_ensemble_weight_the_forward_is_the_plain_one(bench):
    """Weight 0 trains on the stored prefixes themselves."""
    config = attrs.evolve(QUICK, ensemble=0.0, contrastive=0.0)
    baseline, pool, context = bench.begun(HidePrompt, config, 2)
    batch = bench.batch(1)
    plain = bench.probe_loss(baseline, batch, pool.force(1), 1)
    assert torch.equal(baseline.phases(context)[0].step(batch).loss, plain)


def test_the_first_task_has_no_ensemble(bench):
    """With nothing to average, keys and values are the set's own."""
    baseline, pool = HidePrompt(QUICK, bench.build), Pool()
    key, value = baseline.ensemble(bench.begin(baseline, pool, 0))
    assert key is pool[0].key
    assert value is pool[0].value


def test_merge_stores_what_was_trained(bench):
    """The merge is the convex combination with the mean of the other sets, and says that the set changed."""
    baseline, pool, context = bench.begun(HidePrompt, attrs.evolve(QUICK, init_from="random"), 3)
    expected = 0.75 * pool[2].value + 0.25 * (pool[0].value + pool[1].value) / 2
    batch, version = bench.batch(2), pool.version(2)
    in_training = baseline.phases(context)[0].step(batch).features
    others = state(pool[0], pool[1])
    baseline.merge(context)
    torch.testing.assert_close(pool[2].value, expected)
    torch.testing.assert_close(baseline.features(batch, pool.force(2)), in_training)
    assert pool.version(2) > version
    assert same(others, state(pool[0], pool[1]))


def test_a_reused_set_is_neither_mixed_nor_merged(bench):
    """Mixing other sets into a protected one would undo its protection."""
    baseline, pool, _ = bench.begun(HidePrompt, attrs.evolve(QUICK, init_from="random"), 2)
    context = bench.begin(baseline, pool, 2, reuse=0)
    before = state(pool[0])
    baseline.merge(context)
    assert same(before, state(pool[0]))


def test_gradients_stay_with_the_tasks_set(bench):
    """The ensemble and the contrastive term send nothing to other sets, and (1 - a) times to the own."""
    baseline, pool = HidePrompt(QUICK, bench.build), Pool()
    for index in range(2):
        context = bench.begin(baseline, pool, index)
        if index == 0:
            bench.learn(baseline, context)
    for parameter in (*pool[0].parameters(), *pool[1].parameters()):
        parameter.grad = None
    key, value = baseline.ensemble(context)
    (2 * key.sum() + value.sum()).backward()
    assert pool[0].key.grad is None
    torch.testing.assert_close(pool[1].key.grad, torch.full_like(key, 1.5))
    torch.testing.assert_close(pool[1].value.grad, torch.full_like(value, 0.75))


def test_replay_moves_the_head_and_nothing_else(bench):
    """From the second task on the head is corrected; sets and statistics stay; the first task is a no-op."""
    baseline, pool = HidePrompt(QUICK, bench.build), Pool()
    for index in range(2):
        context = bench.begin(baseline, pool, index)
        *_, replay = baseline.phases(context)
        bench.learn(baseline, context)
        before = state(baseline.head), state(baseline.statistics, *pool.sets)
        replay.run(lambda done, total: None)
        assert same(before[0], state(baseline.head)) == (index == 0)
        assert same(before[1], state(baseline.statistics, *pool.sets))


@pytest.mark.parametrize(("kind", "config"), [(HidePrompt, HidePromptConfig), (HideLora, HideLoraConfig)])
def test_contrastive_term_uses_centroids_of_old_classes_only(bench, kind, config):
    """The added loss is the term against exactly the stored centroids of earlier classes."""
    small = config(batch_size=4, epochs=2, replay_epochs=2, clusters=2, contrastive=0.5)
    baseline, pool = kind(small, bench.build), Pool()
    bench.learn(baseline, bench.begin(baseline, pool, 0))
    context = bench.begin(baseline, pool, 1)
    baseline.statistics.fit(2, torch.randn(4, 48))
    output = baseline.phases(context)[0].step(bench.batch(1))
    plain = baseline.class_loss(output.features, bench.batch(1), context.task)
    expected = self_identification_loss(output.features, baseline.statistics.centroids([0, 1]))
    torch.testing.assert_close(output.loss - plain, 0.5 * expected, atol=1e-6, rtol=1e-4)


def test_evidence_is_cross_entropy_alone(bench):
    """The probe loss has neither contrastive term nor ensemble."""
    pools, losses = [], []
    for weight in (0.0, 0.5):
        torch.manual_seed(5)
        config = attrs.evolve(QUICK, contrastive=weight, ensemble=weight, init_from="random")
        baseline, pool, _ = bench.begun(HidePrompt, config, 2)
        losses.append(bench.probe_loss(baseline, bench.batch(1), pool.force(1), 1))
        pools.append(pool)
    assert torch.equal(losses[0], losses[1])
