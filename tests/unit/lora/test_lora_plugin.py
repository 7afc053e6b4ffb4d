"""The plugin registers the low-rank baselines."""

from __future__ import annotations

from lw2g_lora.plugin import lw2g_baselines


def test_the_low_rank_baselines_are_offered():
    """Names, default retrieval, growth in sets, and presets for official and embedded benchmarks."""
    components = {component.name: component for component in lw2g_baselines()}
    assert {name: component.retrieval for name, component in components.items()} == {
        "c-lora": None,
        "inflora": None,
        "hide-lora": "lora-classifier",
        "sd-lora": None,
        "slca-plus-plus": None,
    }
    for name, component in components.items():
        assert component.growth == ("fixed" if name == "slca-plus-plus" else "sets")
        assert {"cifar100", "imagenet-r"} <= set(component.presets)
        assert {"digits", "glyphs", "folder"} == set(component.tuned)
