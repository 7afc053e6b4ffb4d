"""Protocols: the authors' values of a method, or what all methods of a benchmark have in common."""

from __future__ import annotations

import pytest

from fake_components import CATALOGUE, BaselineConfig, OtherConfig, RetrievalConfig, component, refusal, write
from lw2g.config.resolve import resolve
from lw2g.interfaces.component import BaselineComponent, BenchmarkComponent


def test_like_for_like_keeps_the_method_and_takes_the_benchmarks_values_for_the_rest():
    """The method's epochs and thresholds stay; benchmark and backbone are the same for every method."""
    resolved = resolve(CATALOGUE, benchmark="cifar100", overrides={"run.protocol": "like-for-like"})
    config = resolved.config
    assert (config.run.protocol, resolved.preset) == ("like-for-like", "official cifar100")
    assert (config.baseline.config, config.growth.energy) == (BaselineConfig(epochs=40), 0.9)
    assert config.retrieval.config == RetrievalConfig(centroids=7)
    assert (config.benchmark.config, config.backbone.name) == (OtherConfig(length=9), "sup21k-augreg")
    other = resolve(CATALOGUE, baseline="weighted", benchmark="cifar100").config
    assert (other.run.protocol, other.benchmark) == ("like-for-like", config.benchmark)
    assert other.backbone == config.backbone
    assert [(entry["option"], entry["published"]) for entry in resolved.preset_differences] == [
        ("benchmark.length", 5),
        ("backbone.name", "sup21k"),
    ]
    assert resolved.protocol_changes == []


@pytest.mark.parametrize(("protocol", "expected"), [("official", (5, 40)), ("like-for-like", (9, None))])
def test_what_a_user_changes_of_a_protocol_is_known(protocol, expected):
    """The option of the benchmark departs from either protocol; epochs are the method's in like-for-like."""
    overrides = {"run.protocol": protocol, "benchmark.length": 6, "baseline.epochs": 2}
    resolved = resolve(CATALOGUE, benchmark="cifar100", overrides=overrides, backbone="micro")
    length, epochs = expected
    backbone = "sup21k" if protocol == "official" else "sup21k-augreg"
    wanted = [("benchmark.length", 6, length), ("backbone.name", "micro", backbone)]
    if epochs is not None:
        wanted.insert(0, ("baseline.epochs", 2, epochs))
    found = [(entry["option"], entry["value"], entry["protocol"]) for entry in resolved.protocol_changes]
    assert found == wanted


def test_official_needs_the_authors_values():
    """Named where nobody published any, it is refused; auto says like-for-like there."""
    assert refusal(overrides={"run.protocol": "official"}) == [
        "run.protocol: baseline 'hide-prompt' has no values of its authors for 'glyphs' "
        "(only for: cifar100); leave the protocol out"
    ]
    assert resolve(CATALOGUE).config.run.protocol == "like-for-like"
    assert resolve(CATALOGUE, benchmark="cifar100").config.run.protocol == "official"
    assert refusal(benchmark="cifar100", overrides={"run.protocol": "fair"}) == [
        "run.protocol: expected one of 'auto', 'official', 'like-for-like' but got 'fair'"
    ]


def test_a_file_can_name_the_protocol(tmp_path):
    """The file's protocol holds until an option says otherwise."""
    path = write(tmp_path, "[benchmark]\nname = 'cifar100'\n[run]\nprotocol = 'like-for-like'\n")
    assert resolve(CATALOGUE, file=path).config.backbone.name == "sup21k-augreg"
    explicit = resolve(CATALOGUE, file=path, overrides={"run.protocol": "official"}).config
    assert (explicit.run.protocol, explicit.backbone.name) == ("official", "sup21k")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (lambda: component(BaselineComponent, "x", presets={"f": {"backbone.image_size": 3}}), "image_size"),
        (
            lambda: component(BenchmarkComponent, "x", family="f", like_for_like={"run.seed": 3}),
            "only benchmark",
        ),
    ],
)
def test_records_set_what_a_protocol_can_hold(record, message):
    """A preset may name a backbone, a benchmark may hold itself and the backbone equal; nothing else."""
    with pytest.raises(ValueError, match=message):
        record()
