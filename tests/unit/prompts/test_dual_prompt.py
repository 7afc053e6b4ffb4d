"""dual-prompt: sizes, gradients, sites, options and presets."""

from __future__ import annotations

import attrs
import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.interfaces.options import published_differences
from lw2g.interfaces.pool import Pool
from lw2g_prompts.dual_prompt import DualPrompt
from lw2g_prompts.options import DualPromptConfig
from lw2g_prompts.plugin import DUAL_PROMPT
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.options import KeyCosineConfig


def count(module):
    """Return the number of trainable numbers of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("num_classes", "total"), [(100, 1_021_540), (200, 1_098_440)])
def test_counts_are_those_of_the_official_run(vit_b, num_classes, total):
    """E-prompt, G-prompt, keys and head add up to what the authors' logs print."""
    context = vit_b(10, num_classes)
    baseline = DualPrompt(DualPromptConfig(), context)
    prompt = baseline.new_set(None)
    assert count(prompt) == 92_160 == 120 * 768
    assert count(baseline.shared_prompt) == 15_360
    keys = KeyCosine(KeyCosineConfig(), context)
    assert 10 * count(prompt) + count(baseline) + count(keys) == total


def test_gradients_reach_only_what_the_task_owns(bench):
    """Other sets, other keys and head rows of other classes get no gradient at all."""
    baseline = DualPrompt(DualPromptConfig(), bench.build)
    keys, pool = KeyCosine(KeyCosineConfig(), bench.build), Pool()
    for index in range(2):
        context = bench.begin(baseline, pool, index, retrieval=keys)
    (phase,) = baseline.phases(context)
    batch = bench.batch(1)
    (phase.step(batch).loss + keys.loss(batch, context)).backward()
    assert pool[0].key.grad is None
    assert pool[0].value.grad is None
    assert keys.key[0].grad is None
    assert keys.key[2].grad is None
    assert float(keys.key[1].grad.norm()) > 0
    rows = baseline.head.weight.grad.norm(dim=1)
    assert rows[[0, 1, 4, 5]].tolist() == [0, 0, 0, 0]
    assert (rows[[2, 3]] > 0).all()
    for parameter in (*pool[1].parameters(), *baseline.shared_prompt.parameters()):
        assert float(parameter.grad.norm()) > 0


def test_loss_is_cross_entropy_over_the_tasks_classes(bench):
    """The host loss equals a log-softmax over the task's own logits, computed by hand."""
    baseline, pool = DualPrompt(DualPromptConfig(), bench.build), Pool()
    context = bench.begin(baseline, pool, 0)
    batch = bench.batch(0)
    logits = baseline.logits(baseline.features(batch, pool.force(0)))[:, :2]
    by_hand = -logits.log_softmax(1)[torch.arange(4), batch.labels].mean()
    torch.testing.assert_close(baseline.phases(context)[0].step(batch).loss, by_hand)
    torch.testing.assert_close(bench.probe_loss(baseline, batch, pool.force(0), 0), by_hand)


def test_sites_are_key_halves_of_both_prompts(bench):
    """E-prompt sites belong to the set, G-prompt sites are shared, and values are no sites."""
    baseline = DualPrompt(DualPromptConfig(), bench.build)
    prompt = baseline.new_set(None)
    own, shared = baseline.sites(prompt), baseline.shared_sites()
    assert [(site.name, site.owner) for site in own] == [
        (f"blocks.{block}.prefix_key", "set") for block in (2, 3, 4)
    ]
    assert [(site.name, site.owner) for site in shared] == [
        (f"blocks.{block}.prefix_key", "shared") for block in (0, 1)
    ]
    assert all(site.parameter is prompt.key for site in own)
    assert [site.rows(site.parameter).shape for site in shared] == [(5, 48), (5, 48)]


def test_a_new_set_starts_from_the_most_recently_trained(bench):
    """After a reuse it is the reused set, not the newest one, that is copied."""
    baseline, pool = DualPrompt(DualPromptConfig(init_from="previous"), bench.build), Pool()
    bench.begin(baseline, pool, 0)
    with torch.no_grad():
        pool.grow(baseline.new_set(None))
    pool.reuse(0)
    assert torch.equal(baseline.new_set(baseline.source_of(pool)).key, pool[0].key)
    free = DualPrompt(DualPromptConfig(init_from="random"), bench.build)
    assert free.source_of(pool) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": (2, 6)}, "baseline.blocks: block 6 is outside the backbone's 6 blocks; use 0 to 5"),
        ({"shared_blocks": (9,)}, "baseline.shared_blocks: block 9 is outside"),
        ({"blocks": (2, 2)}, r"baseline.blocks: blocks \(2, 2\) repeat"),
        ({"shared_blocks": (1, 2)}, "baseline.shared_blocks: block 2 is in baseline.blocks too"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(bench, change, message):
    """A wrong block is named with its option and a remedy."""
    with pytest.raises(ConfigError, match=message):
        DualPrompt(DualPromptConfig(**change), bench.build)


@pytest.mark.parametrize(("index", "factor"), [(0, 0.1), (1, 1.0)])
def test_effective_learning_rate_and_schedule(bench, index, factor):
    """The learning rate scales with the batch; the official step on CUB acts in the first task alone."""
    config = DualPromptConfig(lr=0.03, batch_size=24, schedule="step", schedule_tasks="first")
    baseline, pool = DualPrompt(config, bench.build), Pool()
    for task in range(index + 1):
        context = bench.begin(baseline, pool, task)
    (phase,) = baseline.phases(context)
    assert phase.groups[0].lr == pytest.approx(2.8125e-3)
    assert [phase.schedule(1.0, epoch, 50) for epoch in (30, 31, 49)] == [1.0, factor, factor]


def test_presets_carry_the_authors_values():
    """Every preset key of the baseline is an option, and phi is one minus the released threshold."""
    for preset in (*DUAL_PROMPT.presets.values(), *DUAL_PROMPT.tuned.values()):
        own = {key.removeprefix("baseline."): v for key, v in preset.items() if key.startswith("baseline.")}
        assert attrs.evolve(DualPromptConfig(), **own) is not None
    released = {"cifar100": 0.5, "imagenet-r": 0.6, "cub200": 0.3}
    phi = {family: DUAL_PROMPT.presets[family]["constraints.cpk.phi"] for family in released}
    assert phi == pytest.approx({family: 1 - threshold for family, threshold in released.items()})


def test_default_options_differ_in_nothing_from_the_published_method():
    """A default run lists no deviation; shorter prompts are one."""
    assert published_differences(DualPromptConfig(), "baseline") == []
    found = published_differences(DualPromptConfig(length=5), "baseline")
    assert [(one["option"], one["value"], one["published"]) for one in found] == [("baseline.length", 5, 20)]
