"""The plugin registers the prompt baselines."""

from __future__ import annotations

from lw2g_prompts.plugin import lw2g_baselines


def test_the_prompt_baselines_are_offered():
    """Names, default retrieval strategies, and quick presets for the embedded benchmarks."""
    components = {component.name: component for component in lw2g_baselines()}
    assert {name: component.retrieval for name, component in components.items()} == {
        "dual-prompt": "key-cosine",
        "s-prompt-plus-plus": "key-cosine",
        "hide-prompt": "classifier",
        "coda-prompt": None,
        "os-prompt": None,
        "cprompt": "class-keys",
        "l2p": None,
    }
    assert [name for name, component in components.items() if component.growth == "fixed"] == ["l2p"]
    assert all({"digits", "glyphs", "folder"} <= set(component.tuned) for component in components.values())
