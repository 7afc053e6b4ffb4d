"""Official presets: the learning rates of every epoch, as the authors' schedulers give them.

The lists are those of the authors' recipes; tests/unit/blocks/test_schedules.py runs such schedulers.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from lw2g.blocks.schedules import chosen_schedule
from lw2g_lora.plugin import HIDE_LORA
from lw2g_prompts.plugin import DUAL_PROMPT, HIDE_PROMPT, L2P, S_PROMPT_PLUS_PLUS

DROP_AT_31 = [1.0] * 31 + [0.1] * 19


def options_of(component, family, section="baseline", config=None):
    """Return a component's options under an official preset."""
    preset = component.presets[family]
    own = {key.split(".")[1]: value for key, value in preset.items() if key.startswith(f"{section}.")}
    return (config or component.config)(**own)


def factors(component, family, task, share=1.0):
    """Return the factors of all epochs on a group whose rate is a share of the prompts'."""
    options = options_of(component, family)
    base = options.lr * options.batch_size / 256 * share
    schedule = chosen_schedule(options, task)
    return [schedule(base, epoch, options.epochs) / base for epoch in range(options.epochs)]


@pytest.mark.parametrize(
    ("component", "family", "expected"),
    [
        (DUAL_PROMPT, "cifar100", [[1.0] * 40] * 2),
        (DUAL_PROMPT, "imagenet-r", [[1.0] * 50] * 2),
        (DUAL_PROMPT, "cub200", [DROP_AT_31, [1.0] * 50]),
        (S_PROMPT_PLUS_PLUS, "cub200", [DROP_AT_31, [1.0] * 50]),
        (L2P, "cub200", [[1.0] * 5] * 2),
        (L2P, "five-datasets", [[1.0] * 5] * 2),
        (HIDE_PROMPT, "cifar100", [DROP_AT_31] * 2),
        (HIDE_PROMPT, "cub200", [DROP_AT_31] * 2),
        (HIDE_LORA, "cifar100", [[1.0] * 20] * 2),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "name", ""),
)
def test_steps_drop_where_the_authors_do(component, family, expected):
    """At epoch index 31, in every task or, where the scheduler is lost with its optimizer, in the first."""
    for task, factors_of_task in enumerate(expected):
        assert factors(component, family, task) == pytest.approx(factors_of_task)


@pytest.mark.parametrize(("share", "end"), [(1.0, 0.0040), (0.1, 0.0360)])
def test_hide_prompt_ends_at_one_rate_for_prompts_and_head(share, end):
    """ImageNet-R: a cosine one epoch late towards a rate of 1e-5, which is more of the head's."""
    found = factors(HIDE_PROMPT, "imagenet-r", 3, share)
    assert found[:2] == [1.0, 1.0]
    assert found[-1] == pytest.approx(end, abs=5e-5)
    assert all(later < earlier for earlier, later in pairwise(found[1:]))


def test_hide_lora_warms_up_and_has_the_rates_of_eight_processes():
    """ImageNet-R: five epochs from 1e-6; 8 x 24 images a step at the rate that was scaled for 24."""
    options = options_of(HIDE_LORA, "imagenet-r")
    assert (options.batch_size, options.replay_batch) == (192, 120)
    assert options.effective_lr == pytest.approx(9.375e-4)
    found = factors(HIDE_LORA, "imagenet-r", 1)
    first = [0.0011, 0.0011, 0.2009, 0.4006, 0.6004, 0.8002, 0.9758, 0.9652, 0.9530]
    assert found[:9] == pytest.approx(first, abs=1e-4)
    assert found[-3:] == pytest.approx([0.0262, 0.0194, 0.0146], abs=3e-4)
    preset = HIDE_LORA.presets["imagenet-r"]
    assert preset["retrieval.batch_size"] * preset["retrieval.lr"] / 256 == pytest.approx(2.8125e-3)
