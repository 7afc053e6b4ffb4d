"""s-prompt-plus-plus: sizes, and its place beside dual-prompt."""

from __future__ import annotations

import torch

from lw2g_prompts.dual_prompt import DualPrompt
from lw2g_prompts.options import DualPromptConfig, SPromptPlusPlusConfig
from lw2g_prompts.s_prompt import SPromptPlusPlus


def test_it_is_dual_prompt_without_the_shared_prompt(bench):
    """On the same blocks from the same seed both give the same logits and losses, to the bit."""
    results = []
    for kind, config in (
        (SPromptPlusPlus, SPromptPlusPlusConfig(blocks=(2, 3, 4))),
        (DualPrompt, DualPromptConfig(shared_blocks=())),
    ):
        torch.manual_seed(3)
        baseline, pool, context = bench.begun(kind, config)
        losses = [baseline.phases(context)[0].step(bench.batch(0)).loss.item()]
        bench.learn(baseline, context)
        losses.append(baseline.phases(context)[0].step(bench.batch(0)).loss.item())
        results.append((losses, baseline.logits(baseline.features(bench.batch(1), pool.force(0)))))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
