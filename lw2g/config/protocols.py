"""Protocols: the source of a run's benchmark options and backbone.

``official`` runs a method as its authors did, with their transforms, class order, backbone and schedules.
``like-for-like`` keeps the method's own options (optimizer, epochs, rates, retrieval) and takes backbone,
split, class order, normalisation and augmentation from the benchmark, equal for all methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.config.layers import Preset
from lw2g.config.structure import unstructure
from lw2g.interfaces.component import BaselineComponent, BenchmarkComponent

__all__ = ["AUTO", "LIKE_FOR_LIKE", "OFFICIAL", "Protocol", "choose_protocol", "differences"]

AUTO = "auto"
OFFICIAL = "official"
LIKE_FOR_LIKE = "like-for-like"
_EQUAL_FOR_ALL = ("benchmark", "backbone")
"""The sections in which no method has values of its own under like-for-like."""


@attrs.frozen(kw_only=True)
class Protocol:
    """A protocol for one method on one benchmark.

    Attributes:
        name: ``official`` or ``like-for-like``.
        preset: The method's values for the benchmark.
        fixed_options: The values that the protocol itself sets, by dotted keys: the whole official preset,
            or those that like-for-like holds equal.
        values: All defaults for the user's options, by dotted keys: ``fixed_options`` and the method's own.
    """

    name: str
    preset: Preset
    fixed_options: Mapping[str, Any] = attrs.field(factory=dict)
    values: Mapping[str, Any] = attrs.field(factory=dict)


def choose_protocol(
    wanted: Any,
    preset: Preset,
    baseline: BaselineComponent,
    benchmark: BenchmarkComponent,
    problems: list[str],
) -> Protocol:
    """Return the protocol of a run; ``auto`` is official if the authors' values are known.

    Args:
        wanted: The user's choice; anything but a protocol's name counts as ``auto``.
        preset: The method's values for the benchmark.
        baseline: The method.
        benchmark: The benchmark.
        problems: Receives one line if the official protocol is wanted but the authors' values are unknown.
    """
    if wanted == OFFICIAL and not preset.official:
        families = ", ".join(baseline.presets) or "none"
        problems.append(
            f"run.protocol: baseline {baseline.name!r} has no values of its authors for {benchmark.family!r} "
            f"(only for: {families}); leave the protocol out"
        )
    if preset.official and wanted != LIKE_FOR_LIKE:
        return Protocol(name=OFFICIAL, preset=preset, fixed_options=preset.values, values=preset.values)
    # the method's own values, but for what must be equal for all methods
    values = {key: value for key, value in preset.values.items() if key.split(".")[0] not in _EQUAL_FOR_ALL}
    fixed = benchmark.like_for_like
    return Protocol(name=LIKE_FOR_LIKE, preset=preset, fixed_options=fixed, values={**values, **fixed})


def differences(values: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """List the differences of a configuration from dotted values, for components in use.

    Args:
        values: Dotted keys and values.
        config: The configuration as nested plain values.

    Returns:
        Key, value in the configuration, and the other value, as plain values.
    """
    changes = []
    for path, expected in values.items():
        *tables, key = path.split(".")
        table: Any = config
        for name in tables:
            table = table.get(name) or {}
        # values are compared as the configuration writes them: tuples are lists there
        plain = _plain(expected)
        # a key that is absent belongs to a component that is not in use
        if key in table and table[key] != plain:
            changes.append((path, table[key], plain))
    return changes


def _plain(value: Any) -> Any:
    plain: Any = unstructure(value)
    if isinstance(plain, tuple):  # a configuration that was read has lists
        return list(plain)
    return plain
