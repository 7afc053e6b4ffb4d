"""Components with options and nothing to build: a catalogue for tests of what configurations mean."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import attrs
import pytest
from attrs.validators import ge, le

from lw2g.config.resolve import resolve
from lw2g.config.settings import ExperimentConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.component import (
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    ConstraintComponent,
    EvidenceComponent,
    NoOptions,
    PolicyComponent,
    RetrievalComponent,
    TrackerComponent,
)
from lw2g.interfaces.options import option
from lw2g.registry.catalogue import load_catalogue
from lw2g.registry.markers import hookimpl

__all__ = [
    "CATALOGUE",
    "BaselineConfig",
    "CpkConfig",
    "MarginConfig",
    "OtherConfig",
    "RetrievalConfig",
    "TimmConfig",
    "catalogue",
    "component",
    "names",
    "refusal",
    "write",
]


@attrs.frozen(kw_only=True)
class BaselineConfig:
    epochs: int = option(50, "h", validator=ge(1))
    lr: float = 0.03
    clip: float | None = None


@attrs.frozen(kw_only=True)
class OtherConfig:
    length: int = 20


@attrs.frozen(kw_only=True)
class CpkConfig:
    phi: float = option(0.5, "h", validator=[ge(0), le(1)])
    on: Literal["update", "gradient"] = "update"


@attrs.frozen(kw_only=True)
class TimmConfig:
    model: str = ""
    mean: tuple[float, float, float] | None = None


@attrs.frozen(kw_only=True)
class RetrievalConfig:
    centroids: int = 10


@attrs.frozen(kw_only=True)
class MarginConfig:
    margin: float = 0.0


def _build(*arguments):
    raise AssertionError("resolving builds nothing")


def component(kind, name, config=NoOptions, **more):
    return kind(name=name, config=config, summary="s", build=_build, **more)


def catalogue():
    """Return a catalogue with two growing baselines, one fixed one and what they need."""
    preset = {
        "baseline.epochs": 40,
        "growth.energy": 0.9,
        "growth.energy_pre": 0.8,
        "constraints.cpk.phi": 0.2,
        "retrieval.centroids": 7,
        "benchmark.length": 5,
        "backbone.name": "sup21k",
    }
    hooks = {
        "lw2g_baselines": [
            component(
                BaselineComponent,
                "hide-prompt",
                BaselineConfig,
                retrieval="classifier",
                presets={"cifar100": preset},
                tuned={"glyphs": {"baseline.epochs": 5}},
            ),
            component(BaselineComponent, "weighted", OtherConfig),
            component(BaselineComponent, "single", OtherConfig, growth="fixed"),
            component(
                BaselineComponent,
                "misled",
                BaselineConfig,
                tuned={"glyphs": {"baseline.epoch": 5, "run.seed": 1, "growth.energy": 3}},
            ),
        ],
        "lw2g_retrievals": [
            component(RetrievalComponent, "classifier", RetrievalConfig),
            component(RetrievalComponent, "key-cosine"),
        ],
        "lw2g_policies": [
            component(PolicyComponent, "min", MarginConfig),
            component(PolicyComponent, "always", adds_always=True, default_constraints=(), measures=()),
        ],
        "lw2g_evidence": [
            component(EvidenceComponent, "hindrance"),
            component(EvidenceComponent, "energy", OtherConfig),
        ],
        "lw2g_constraints": [
            component(ConstraintComponent, "orthogonal"),
            component(ConstraintComponent, "cpk", CpkConfig),
            component(ConstraintComponent, "pgp"),
        ],
        "lw2g_benchmarks": [
            component(BenchmarkComponent, "glyphs", family="glyphs"),
            component(
                BenchmarkComponent,
                "cifar100",
                OtherConfig,
                family="cifar100",
                like_for_like={"benchmark.length": 9, "backbone.name": "sup21k-augreg"},
            ),
            component(BenchmarkComponent, "new-one", family="new"),
        ],
        "lw2g_backbones": [
            component(BackboneComponent, "micro"),
            component(BackboneComponent, "sup21k"),
            component(BackboneComponent, "sup21k-augreg"),
            component(BackboneComponent, "timm", TimmConfig),
        ],
        "lw2g_trackers": [
            component(TrackerComponent, "mlflow", OtherConfig),
            component(TrackerComponent, "board"),
        ],
    }
    module = ModuleType("fakes")
    for name, records in hooks.items():
        setattr(module, name, hookimpl((lambda found: lambda: found)(records)))
    loaded = load_catalogue(plugins=[module], entry_points=False)
    assert loaded.problems == ()
    return loaded


CATALOGUE = catalogue()


def write(tmp_path, text):
    """Write a TOML file."""
    path = tmp_path / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**arguments):
    """Return the lines of the error that a resolution ends with."""
    with pytest.raises(ConfigError) as caught:
        resolve(CATALOGUE, **arguments)
    return [line.strip() for line in str(caught.value).splitlines()]


def names(config: ExperimentConfig):
    """Return the names of all components of a configuration."""
    retrieval = config.retrieval and config.retrieval.name
    constraints = [chosen.name for chosen in config.constraints]
    return (
        config.baseline.name,
        retrieval,
        config.policy.name,
        constraints,
        config.benchmark.name,
        config.backbone.name,
    )
