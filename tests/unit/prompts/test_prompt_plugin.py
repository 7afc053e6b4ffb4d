"""The plugin registers the prompt baselines."""

from __future__ import annotations

from lw2g_prompts.plugin import lw2g_baselines


def test_three_baselines_are_offered():
    """Names, default retrieval strategies, and quick presets for the embedded benchmarks."""
    components = {component.name: component for component in lw2g_baselines()}
    assert {name: component.retrieval for name, component in components.items()} == {
        "dual-prompt": "key-cosine",
        "s-prompt-plus-plus": "key-cosine",
        "hide-prompt": "classifier",
    }
    assert all(component.growth == "sets" for component in components.values())
    assert all({"digits", "glyphs", "folder"} <= set(component.tuned) for component in components.values())
