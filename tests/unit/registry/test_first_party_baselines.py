"""The baselines that lw2g brings: how they infer tasks and grow, and which values they come with."""

from __future__ import annotations

import pytest
from torch import nn

from lw2g.interfaces.component import Lazy
from lw2g.registry.catalogue import load_catalogue

NAMES = sorted(load_catalogue().names("baseline"))

GROWING = {
    "c-lora": None,
    "coda-prompt": None,
    "cprompt": "class-keys",
    "dual-prompt": "key-cosine",
    "ease": None,
    "hide-lora": "lora-classifier",
    "hide-prompt": "classifier",
    "inflora": None,
    "mos": None,
    "os-prompt": None,
    "s-prompt-plus-plus": "key-cosine",
    "sd-lora": None,
    "tuna": None,
}
"""By default tasks are inferred by this strategy, or not at all."""

FIXED = {
    "aper-adapter", "aper-vpt-deep", "ewc", "finetune", "joint", "joint-lora", "l2p", "lwf", "no-prompt",
    "one-prompt", "ranpac", "replay", "sema", "simple-cil", "slca-plus-plus", "ssiat", "vpt-nsp2",
}  # fmt: skip


def test_first_party_baselines():
    """Fixed ones infer no task, two see all tasks at once, and the embedded benchmarks have quick values."""
    listed = load_catalogue().components()
    brought = {one.component.name: one.component for one in listed if one.origin.first_party}
    baselines = {name: one for name, one in brought.items() if hasattr(one, "growth")}
    assert {name: one.retrieval for name, one in baselines.items() if one.growth == "sets"} == GROWING
    assert {name: one.retrieval for name, one in baselines.items() if one.growth == "fixed"} == dict.fromkeys(
        FIXED
    )
    assert [name for name, one in baselines.items() if one.joint] == ["joint", "joint-lora"]
    quick = {name for name, one in baselines.items() if set(one.tuned) == {"digits", "glyphs", "folder"}}
    assert quick == baselines.keys() - {"simple-cil"}  # which trains nothing
    official = {name for name, one in baselines.items() if {"cifar100", "imagenet-r"} <= set(one.presets)}
    assert official == baselines.keys() - {"vpt-nsp2"}


@pytest.mark.parametrize("name", NAMES)
def test_a_method_reads_in_few_classes(name):
    """Above torch's module stand three classes of ours at most: the method, one base, the contract."""
    build = load_catalogue().get("baseline", name).build
    assert isinstance(build, Lazy)
    method = build.load()
    assert issubclass(method, nn.Module)  # the record names the class, not a function that chooses one
    ours = [kind.__name__ for kind in method.__mro__ if kind.__module__.startswith("lw2g")]
    assert len(ours) <= 3, ours
