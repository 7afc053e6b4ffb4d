"""Facts of components as lines of text: what their records say apart from the options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lw2g.blocks.presets import FilePresets
from lw2g.config.describe import plain
from lw2g.interfaces.component import (
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    PolicyComponent,
)
from lw2g.interfaces.metric import Metric
from lw2g.registry.catalogue import alias_text

__all__ = ["aliases", "differences", "traits", "values_of"]


def traits(component: Component) -> Iterator[str]:
    """Yield the facts of a component's record apart from name, options and citation."""
    match component:
        case BaselineComponent():
            grows = "composes with every growth policy" if component.growth == "sets" else "does not grow"
            yield f"growth: {component.growth} ({grows})"
            yield f"retrieval: {component.retrieval or 'none (makes no hard choice of a set)'}"
            if isinstance(component.presets, FilePresets):
                yield f"official values: {component.presets.source}"
        case PolicyComponent():
            yield f"constraints it brings: {', '.join(component.default_constraints) or 'none'}"
            named = "by its options" if callable(component.measures) else ", ".join(component.measures)
            yield f"measures it reads: {named or 'none'}"
        case BenchmarkComponent():
            yield f"presets of baselines: {component.family}"
        case BackboneComponent():
            yield from component.facts
        case Metric():
            yield f"computed from: {', '.join(component.needs)}; unit: {component.unit or 'none'}"
        case _:
            return


def values_of(component: Component) -> Iterator[str]:
    """Yield a baseline's presets, or the values that a benchmark fixes under like-for-like."""
    named: dict[str, Mapping[str, Any]] = {}
    match component:
        case BaselineComponent():
            for kind, presets in (("official", component.presets), ("tuned", component.tuned)):
                for family, values in presets.items():
                    named[f"preset {kind} {family}"] = values
        case BenchmarkComponent(like_for_like=fixed) if fixed:
            named["like-for-like"] = fixed
    for name, values in named.items():
        yield f"{name}: " + ", ".join(f"{key}={plain(value)}" for key, value in values.items())


def aliases(component: Component) -> Iterator[str]:
    """Yield the names by which users look for a component, and what to type for each."""
    for alias in component.aliases:
        yield f"known as {alias.name}: {alias.differs}; {alias_text(component, alias)[1]}"


def differences(component: Component) -> Iterator[str]:
    """Yield the differences from the published method that no option changes."""
    when = {"always": "", "reuse": " (where tasks share a set)", "spaces": " (where spaces are kept)"}
    for entry in component.deviations:
        place = f"differs{when[entry.when]}: {entry.topic} {entry.value}"
        yield f"{place}; published: {entry.published}; {entry.note}"
