"""The hooks a plugin may implement: each returns a list of component records, and takes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lw2g.interfaces.component import (
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    ConstraintComponent,
    EvidenceComponent,
    PolicyComponent,
    RetrievalComponent,
    TrackerComponent,
)
from lw2g.registry.markers import hookspec

__all__ = [
    "HOOKS",
    "lw2g_backbones",
    "lw2g_baselines",
    "lw2g_benchmarks",
    "lw2g_constraints",
    "lw2g_evidence",
    "lw2g_policies",
    "lw2g_retrievals",
    "lw2g_trackers",
]


@hookspec
def lw2g_baselines() -> Sequence[BaselineComponent]:
    """Return the baselines of this plugin."""
    return []


@hookspec
def lw2g_retrievals() -> Sequence[RetrievalComponent]:
    """Return the retrieval strategies of this plugin."""
    return []


@hookspec
def lw2g_policies() -> Sequence[PolicyComponent]:
    """Return the growth policies of this plugin."""
    return []


@hookspec
def lw2g_evidence() -> Sequence[EvidenceComponent]:
    """Return the measures of this plugin."""
    return []


@hookspec
def lw2g_constraints() -> Sequence[ConstraintComponent]:
    """Return the constraints of this plugin."""
    return []


@hookspec
def lw2g_benchmarks() -> Sequence[BenchmarkComponent]:
    """Return the benchmarks of this plugin."""
    return []


@hookspec
def lw2g_backbones() -> Sequence[BackboneComponent]:
    """Return the backbones of this plugin."""
    return []


@hookspec
def lw2g_trackers() -> Sequence[TrackerComponent]:
    """Return the trackers of this plugin."""
    return []


HOOKS: Mapping[str, type[Component]] = MappingProxyType(
    {
        "lw2g_baselines": BaselineComponent,
        "lw2g_retrievals": RetrievalComponent,
        "lw2g_policies": PolicyComponent,
        "lw2g_evidence": EvidenceComponent,
        "lw2g_constraints": ConstraintComponent,
        "lw2g_benchmarks": BenchmarkComponent,
        "lw2g_backbones": BackboneComponent,
        "lw2g_trackers": TrackerComponent,
    }
)
"""The record that each hook returns a list of."""
