"""Whether benchmark, backbone and method fit each other: images, or stored features in place of images.

Each component declares what it holds, takes or needs; nothing here knows one by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lw2g.config.settings import ExperimentConfig
from lw2g.interfaces.component import BaselineComponent, BenchmarkComponent, ConstraintComponent
from lw2g.registry.catalogue import Catalogue

__all__ = ["idle_constraints", "input_problems", "trains_no_later_set"]


def input_problems(catalogue: Catalogue, config: ExperimentConfig) -> Iterator[str]:
    """Yield what does not fit, a line each.

    Args:
        catalogue: Where the components in use come from.
        config: Names them.
    """
    benchmark = catalogue.get("benchmark", config.benchmark.name)
    backbone = catalogue.get("backbone", config.backbone.name)
    takes_vectors = backbone.fit_vectors is not None
    if not benchmark.vectors:
        if takes_vectors:
            stored = [repr(one.name) for one in _benchmarks(catalogue) if one.vectors]
            yield (
                f"backbone: {backbone.name!r} holds no network, and benchmark {benchmark.name!r} has images; "
                f"name another, or a benchmark of stored features ({', '.join(stored)})"
            )
        return
    if not takes_vectors:
        yield (
            f"backbone: {backbone.name!r} takes images, and benchmark {benchmark.name!r} holds features "
            "already; leave the backbone out"
        )
    # asked of the options, too: a method may need images with one of its heads and not with another
    baseline = catalogue.get("baseline", config.baseline.name)
    if not _does_without_images(baseline, config.baseline.config):
        names = sorted(_described(one) for one in _baselines(catalogue) if one.without_images is not None)
        yield (
            f"baseline: {_as_configured(baseline)} needs images, and benchmark {benchmark.name!r} has stored "
            f"features alone; without images run {', '.join(names)}"
        )


def idle_constraints(catalogue: Catalogue, config: ExperimentConfig) -> str:
    """Return that constraints have nothing to hold, where a method leaves features as they are; else nothing.

    Args:
        catalogue: Where the components in use come from.
        config: Names them.
    """
    baseline = catalogue.get("baseline", config.baseline.name)
    if not config.constraints:
        return ""
    # what reads un-prompted features alone trains no parameter inside the backbone
    if _does_without_images(baseline, config.baseline.config):
        return f"constraints: baseline {_described(baseline)} trains nothing to constrain; leave it out"
    chosen = [catalogue.get("constraint", constraint.name) for constraint in config.constraints]
    idle = [repr(constraint.name) for constraint in chosen if _reaches_nothing(constraint, baseline)]
    if not idle:
        return ""
    named = ", ".join(idle)
    return f"constraints: no step of baseline {baseline.name!r} is constrained by {named}; leave it out"


def trains_no_later_set(baseline: BaselineComponent, options: Any) -> bool:
    """Whether a method trains no parameter inside the backbone in tasks after the first, with its options."""
    return baseline.joint or baseline.trains_once or _does_without_images(baseline, options)


def _reaches_nothing(constraint: ConstraintComponent, baseline: BaselineComponent) -> bool:
    """Whether a constraint lacks what it acts on: sites, or tasks after the first."""
    if constraint.needs_sites and not baseline.has_sites:
        return True
    return constraint.needs_old_tasks and (baseline.joint or baseline.trains_once)


def _does_without_images(baseline: BaselineComponent, options: Any) -> bool:
    """Whether a method takes stored features, with the options that it has."""
    if baseline.without_images is None:
        return False
    return all(getattr(options, name) == value for name, value in baseline.without_images.items())


def _as_configured(baseline: BaselineComponent) -> str:
    """Return a method that needs images, with the options that decide it."""
    if not baseline.without_images:
        return repr(baseline.name)
    return f"{baseline.name!r} without {_settings(baseline)}"


def _described(baseline: BaselineComponent) -> str:
    """Return a method that needs no images, with the options under which it needs none."""
    settings = _settings(baseline)
    if not settings:
        return repr(baseline.name)
    return f"{baseline.name!r} with {settings}"


def _settings(baseline: BaselineComponent) -> str:
    wanted = baseline.without_images or {}
    return ", ".join(f"baseline.{name}={value}" for name, value in wanted.items())


def _baselines(catalogue: Catalogue) -> Iterator[BaselineComponent]:
    for entry in catalogue.whole.components():
        if isinstance(entry.component, BaselineComponent):
            yield entry.component


def _benchmarks(catalogue: Catalogue) -> Iterator[BenchmarkComponent]:
    for entry in catalogue.whole.components():
        if isinstance(entry.component, BenchmarkComponent):
            yield entry.component
