"""Sizes of the baselines on a ViT-B/16: what the authors' papers and logs state."""

from __future__ import annotations

import pytest
import torch

from lw2g.registry.catalogue import load_catalogue
from tasks import tasks_of

HEAD = 76_900
"""One linear layer over 100 classes; over 200 it is twice as large."""

SIZES = [
    # baseline, options, classes, numbers in a set, in the baseline once a task has begun, in the learned keys
    ("dual-prompt", {}, 100, 120 * 768, 15_360 + HEAD, 7_680),  # ten sets: 1,021,540 in all
    ("dual-prompt", {}, 200, 120 * 768, 15_360 + 2 * HEAD, 7_680),  # 1,098,440
    ("s-prompt-plus-plus", {}, 100, 153_600, HEAD, 7_680),  # 1,620,580
    ("s-prompt-plus-plus", {}, 200, 153_600, 2 * HEAD, 7_680),  # 1,697,480
    ("hide-prompt", {"length": 5}, 100, 38_400, HEAD, None),  # 460,900 but for what infers tasks
    ("hide-prompt", {"length": 20}, 200, 153_600, 2 * HEAD, None),  # 1,689,800
    ("coda-prompt", {}, 100, 500 * 768, HEAD, None),
    ("coda-prompt", {}, 200, 500 * 768, 2 * HEAD, None),
    ("os-prompt", {}, 100, 450 * 768, HEAD, None),  # CODA's less one mask per component
    ("cprompt", {}, 100, 76_800, 2 * 7_690, 76_800),  # a classifier a task, an auxiliary one, a key a class
    ("cprompt", {}, 200, 76_800, 2 * 15_380, 153_600),
    ("l2p", {}, 100, 38_400 + 7_680, HEAD, None),
    ("c-lora", {"targets": ("k", "v")}, 100, 2_359_296, HEAD, None),
    ("c-lora", {"targets": ("q", "k", "v")}, 100, 3_538_944, HEAD, None),
    ("c-lora", {"targets": ("v",)}, 100, 1_179_648, HEAD, None),
    ("inflora", {"blocks": (0, 1, 2, 3, 4)}, 100, 76_800 + 5 * 10 * 768, HEAD, None),
    ("inflora", {"blocks": ()}, 100, 184_320 + 12 * 10 * 768, HEAD, None),
    ("hide-lora", {"rank": 4}, 100, 80 * 768, HEAD, None),
    ("hide-lora", {"rank": 5}, 100, 100 * 768, HEAD, None),  # ten sets: 844,900
    ("hide-lora", {"rank": 8}, 100, 160 * 768, HEAD, None),
    ("sd-lora", {}, 100, 10 * 36_864, 10 + HEAD, None),
    ("finetune", {}, 100, 368_640, HEAD, None),  # EWC-LoRA's trained numbers: 376,330 with ten classes
    ("ewc", {}, 100, 368_640 + 24 * 768**2, HEAD, None),  # and the sum of earlier tasks' updates
    ("lwf", {}, 100, 368_640, HEAD + 368_640 + HEAD, None),  # and the model that a task begins with
    ("ease", {"bottleneck": 64}, 100, 1_189_632, 7_681, None),
    ("ease", {"bottleneck": 16}, 100, 304_320, 7_681, None),
    ("aper-adapter", {}, 100, 12 * 99_136, 7_681, None),
    ("ssiat", {}, 100, 1_189_632, 76_800, None),
    ("aper-vpt-deep", {"length": 5}, 100, 46_080, 7_681, None),
    ("aper-vpt-deep", {"length": 30}, 100, 276_480, 7_681, None),
    ("ranpac", {"adapt": "adapter", "features": 70}, 100, 1_189_632, 7_681, None),
    ("ranpac", {"adapt": "vpt-deep", "features": 70}, 100, 46_080, 7_681, None),
    ("ranpac", {"adapt": "none", "features": 70}, 100, 0, 0, None),
    ("one-prompt", {}, 100, 140 * 768, HEAD, None),
]


def size(module: torch.nn.Module) -> int:
    """The number of numbers that a module learns."""
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "options", "classes", "of_set", "of_baseline", "of_keys"),
    SIZES,
    ids=[f"{name}-{classes}{options or ''}" for name, options, classes, *_ in SIZES],
)
def test_sizes_are_those_of_the_authors(vit_b, name, options, classes, of_set, of_baseline, of_keys):
    """A set, the baseline and the learned keys of its retrieval, for ten tasks."""
    catalogue, context = load_catalogue(), vit_b(10, classes)
    component = catalogue.get("baseline", name)
    baseline = component.build(component.config(**options), context)
    baseline.begin_task(tasks_of([classes // 10])[0])
    assert (size(baseline.new_set(None)), size(baseline)) == (of_set, of_baseline)
    if of_keys is not None:
        retrieval = catalogue.get("retrieval", component.retrieval)
        assert size(retrieval.build(retrieval.config(), context)) == of_keys


def test_one_pool_of_prompts_does_not_grow_with_the_stream(vit_b):
    """L2P has as many numbers for twenty tasks as for ten."""
    component = load_catalogue().get("baseline", "l2p")
    baselines = [component.build(component.config(), vit_b(tasks, 100)) for tasks in (10, 20)]
    assert [size(one) + size(one.new_set(None)) for one in baselines] == [122_980, 122_980]
