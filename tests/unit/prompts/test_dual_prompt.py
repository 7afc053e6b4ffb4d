"""dual-prompt: sizes, gradients, sites, options and presets."""

from __future__ import annotations

import pytest
import torch

from lw2g.errors import ConfigError
from lw2g_prompts.dual_prompt import DualPrompt
from lw2g_prompts.options import DualPromptConfig


def test_loss_is_cross_entropy_over_the_tasks_classes(bench):
    """The host loss equals a log-softmax over the task's own logits, computed by hand."""
    baseline, pool, context = bench.begun(DualPrompt, DualPromptConfig())
    batch = bench.batch(0)
    logits = baseline.logits(baseline.features(batch, pool.force(0)))[:, :2]
    by_hand = -logits.log_softmax(1)[torch.arange(4), batch.labels].mean()
    torch.testing.assert_close(baseline.phases(context)[0].step(batch).loss, by_hand)
    torch.testing.assert_close(bench.probe_loss(baseline, batch, pool.force(0), 0), by_hand)


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
