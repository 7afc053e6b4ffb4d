"""The official row of every method, and what like-for-like holds equal for all of them."""

from __future__ import annotations

import attrs
import pytest

from lw2g.config.resolve import resolve
from lw2g.config.toml import to_mapping
from lw2g.interfaces.options import published_differences
from lw2g.registry.catalogue import load_catalogue
from lw2g_benchmarks.options import TransformOptions
from official_rows import TEST, TRAIN

CATALOGUE = load_catalogue()
FREE = {"order_seed", "split", "base", "increment"}
"""What an official row may leave to the benchmark."""


def methods():
    """Return all first-party baselines."""
    return [CATALOGUE.get("baseline", name) for name in sorted(CATALOGUE.names("baseline"))]


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_official_presets_set_a_whole_row(method):
    """Every option of the transforms, the class order and the backbone is set, and nothing unknown."""
    assert "cifar100" in method.presets  # what all methods are compared on
    for values in method.presets.values():
        options = {key.removeprefix("benchmark.") for key in values if key.startswith("benchmark.")} - FREE
        assert options == {field.name for field in attrs.fields(TransformOptions)} | {"order"}
        assert "backbone.name" in values


def test_every_preset_can_be_reached():
    """Whatever family a method has values for, there is a benchmark of it that takes them."""
    families = {CATALOGUE.get("benchmark", name).family: name for name in CATALOGUE.names("benchmark")}
    for method in methods():
        for family in method.presets:
            found = resolve(
                CATALOGUE, baseline=method.name, benchmark=families[family], overrides={"benchmark.root": "x"}
            )
            assert (found.preset, found.preset_differences) == (f"official {family}", [])


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_protocols_of_every_method_on_cifar100(method):
    """Official differs in repairs of the release alone; like-for-like is one stream and backbone for all."""
    settings = {"benchmark.root": "here"}
    official = resolve(CATALOGUE, baseline=method.name, benchmark="cifar100", overrides=settings)
    assert (official.config.run.protocol, official.preset_differences) == ("official", [])
    assert official.config.backbone.name == method.presets["cifar100"]["backbone.name"]
    for path, chosen in (("baseline", official.config.baseline), ("retrieval", official.config.retrieval)):
        listed = published_differences(chosen.config, path) if chosen is not None else []
        plain = {entry["option"] for entry in listed if entry["note"] == "differs from the published method"}
        assert plain <= official.preset_values.keys()
    equal = resolve(
        CATALOGUE,
        baseline=method.name,
        benchmark="cifar100",
        overrides=settings | {"run.protocol": "like-for-like"},
    )
    found = to_mapping(equal.config)
    assert equal.config.baseline == official.config.baseline
    assert equal.config.retrieval == official.config.retrieval
    assert found["backbone"]["name"] == "sup21k"
    transforms = {**TRAIN["B"], **TEST["B"], "normalise": "native", "train_transform": "rrc", "flip": True}
    expected = {"order": "natural", "increment": 10, **transforms}
    assert {key: found["benchmark"][key] for key in expected} == expected
    assert equal.protocol_changes == []
    assert {entry["option"].split(".")[0] for entry in equal.preset_differences} <= {"benchmark", "backbone"}
    assert ("benchmark.normalise" in {entry["option"] for entry in equal.preset_differences}) == (
        official.preset_values["benchmark.normalise"] != "native"
    )


@pytest.mark.parametrize("name", ["digits", "glyphs", "folder"])
def test_benchmarks_without_official_values_are_like_for_like(name):
    """Nothing a user leaves alone counts as changed; what is changed is named."""
    resolved = resolve(CATALOGUE, benchmark=name)
    assert (resolved.config.run.protocol, resolved.protocol_changes) == ("like-for-like", [])
    changed = resolve(CATALOGUE, benchmark=name, overrides={"benchmark.normalise": "unit"})
    assert changed.protocol_changes == [
        {"option": "benchmark.normalise", "value": "unit", "protocol": "native"}
    ]
