"""s-prompt-plus-plus: sizes, and its place beside dual-prompt."""

from __future__ import annotations

import pytest
import torch

from lw2g.blocks.prefixes import chosen_prefixes, inject_prefixes
from lw2g.interfaces.pool import Pool
from lw2g.vit.taps import Tap
from lw2g_prompts.dual_prompt import DualPrompt
from lw2g_prompts.options import DualPromptConfig, SPromptPlusPlusConfig
from lw2g_prompts.plugin import S_PROMPT_PLUS_PLUS
from lw2g_prompts.s_prompt import SPromptPlusPlus
from lw2g_retrieval.centroids import Centroids
from lw2g_retrieval.classifier import Classifier
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.options import CentroidsConfig, ClassifierConfig, KeyCosineConfig


@pytest.mark.parametrize(("num_classes", "total"), [(100, 1_620_580), (200, 1_697_480)])
def test_counts_are_those_of_the_official_run(vit_b, num_classes, total):
    """Prompts, keys and head add up to the published number."""
    context = vit_b(10, num_classes)
    modules = [SPromptPlusPlus(SPromptPlusPlusConfig(), context), KeyCosine(KeyCosineConfig(), context)]
    modules += [modules[0].new_set(None) for _ in range(10)]
    assert sum(p.numel() for module in modules for p in module.parameters()) == total


def test_it_is_dual_prompt_without_the_shared_prompt(bench):
    """On the same blocks from the same seed both give the same logits and losses, to the bit."""
    results = []
    for kind, config in (
        (SPromptPlusPlus, SPromptPlusPlusConfig(blocks=(2, 3, 4))),
        (DualPrompt, DualPromptConfig(shared_blocks=())),
    ):
        torch.manual_seed(3)
        baseline, pool = kind(config, bench.build), Pool()
        context = bench.begin(baseline, pool, 0)
        losses = [baseline.phases(context)[0].step(bench.batch(0)).loss.item()]
        bench.learn(baseline, context)
        losses.append(baseline.phases(context)[0].step(bench.batch(0)).loss.item())
        results.append((losses, baseline.logits(baseline.features(bench.batch(1), pool.force(0)))))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


def test_queries_of_the_first_block_do_not_depend_on_the_set(bench):
    """Any two sets see the same queries in block 0, and different ones from block 1 on."""
    baseline, pool = SPromptPlusPlus(SPromptPlusPlusConfig(init_from="random"), bench.build), Pool()
    bench.begin(baseline, pool, 0)
    bench.begin(baseline, pool, 1)
    taps = [Tap(block=0, kind="query"), Tap(block=1, kind="query")]
    images = bench.batch(0).images
    first, second = (
        bench.backbone.activations(
            images, taps, [inject_prefixes(baseline.blocks, *chosen_prefixes(pool.force(set_id)))]
        )
        for set_id in (0, 1)
    )
    assert torch.equal(first[taps[0]], second[taps[0]])
    assert not torch.allclose(first[taps[1]], second[taps[1]], atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (KeyCosine, KeyCosineConfig()),
        (KeyCosine, KeyCosineConfig(keys="per-set")),
        (Centroids, CentroidsConfig(clusters=2)),
        (Classifier, ClassifierConfig(epochs=5, replay_epochs=2, clusters=2, lr=0.1)),
    ],
)
def test_every_retrieval_strategy_fits(bench, kind, config):
    """The baseline runs with each strategy through growth and reuse and gets a seen task per sample."""
    baseline = SPromptPlusPlus(SPromptPlusPlusConfig(epochs=1), bench.build)
    retrieval, pool = kind(config, bench.build), Pool()
    for index, reuse in enumerate((None, None, 0)):
        context = bench.begin(baseline, pool, index, reuse=reuse, retrieval=retrieval)
        bench.learn(baseline, context, epochs=5)
        found = retrieval.retrieve(bench.batch(index).query, range(index + 1), context.task_of_class())
        assert found.shape == (4,)
        assert set(found.tolist()) <= set(range(index + 1))
        logits = baseline.logits(baseline.features(bench.batch(index), pool.route(pool.sets_of(found))))
        assert logits.shape == (4, 6)


def test_presets_hold_no_unpublished_value():
    """LW2G published no energy or phi for this method, so none is preset."""
    for preset in (*S_PROMPT_PLUS_PLUS.presets.values(), *S_PROMPT_PLUS_PLUS.tuned.values()):
        assert not [key for key in preset if key.startswith(("growth.", "constraints."))]
