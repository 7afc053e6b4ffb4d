"""The layers of an experiment before its components are known: file, explicit options, preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.config.structure import unstructure
from lw2g.errors import nearest
from lw2g.interfaces.component import BaselineComponent

__all__ = [
    "SECTIONS",
    "Preset",
    "choose_preset",
    "nest",
    "preset_differences",
    "preset_tables",
    "table_of",
]

SECTIONS = (
    "baseline",
    "retrieval",
    "policy",
    "constraints",
    "benchmark",
    "backbone",
    "growth",
    "run",
    "trackers",
)
_PRESET_SECTIONS = ("baseline", "retrieval", "constraints", "benchmark", "growth")
_NESTED = ("constraints", "trackers")


@attrs.frozen(kw_only=True)
class Preset:
    """The values a baseline brings for one family of benchmarks.

    Attributes:
        label: ``"official cifar100"``, ``"tuned glyphs"``, or ``"general"`` where the baseline has none.
        values: Dotted keys and values.
    """

    label: str = "general"
    values: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def official(self) -> bool:
        """Whether the values are the authors' own."""
        return self.label.startswith("official ")


def choose_preset(baseline: BaselineComponent, family: str) -> Preset:
    """Return the authors' values for a family of benchmarks, else ours, else none (ruling o)."""
    for kind, presets in (("official", baseline.presets), ("tuned", baseline.tuned)):
        if family in presets:
            return Preset(label=f"{kind} {family}", values=dict(presets[family]))
    return Preset()


def nest(
    dotted: Mapping[str, Any], problems: list[str], *, sections: tuple[str, ...] = SECTIONS
) -> dict[str, Any]:
    """Turn dotted keys into nested tables; what does not fit the layout is reported and left out.

    ``{"growth.energy": 0.9, "constraints.cpk.phi": 0.4}`` gives ``{"growth": {"energy": 0.9}, "constraints":
    {"cpk": {"phi": 0.4}}}``.
    """
    tables: dict[str, Any] = {}
    for path, value in dotted.items():
        section, *keys = path.split(".")
        depth = 2 if section in _NESTED else 1
        if section not in sections:
            problems.append(f"{path}: no such section{nearest(section, sections)}")
        elif len(keys) > depth or "" in keys:
            form = f"{section}.NAME.OPTION" if depth == 2 else f"{section}.OPTION"
            problems.append(f"{path}: expected a key of the form {form}")
        elif len(keys) < depth and not isinstance(value, Mapping):
            form = f"{section}.NAME.OPTION" if depth == 2 else f"{section}.OPTION"
            hint = f" (did you mean {section}.name={value}?)" if depth == 1 else ""
            problems.append(f"{path}: expected a key of the form {form}{hint}")
        else:
            _put(tables, [section, *keys], value)
    return tables


def _put(tables: dict[str, Any], keys: list[str], value: Any) -> None:
    *path, last = keys
    for key in path:
        tables = tables.setdefault(key, {})
    if isinstance(value, Mapping):
        inner = tables.setdefault(last, {})
        for key, item in value.items():
            _put(inner, [key], item)
    else:
        tables[last] = value


def table_of(value: Any, path: str, problems: list[str]) -> dict[str, Any]:
    """Return a copy of a table, or report that there is none and return an empty one."""
    if isinstance(value, Mapping):
        return dict(value)
    problems.append(f"{path}: expected a table but got {value!r}")
    return {}


def preset_tables(preset: Preset, baseline: str, problems: list[str]) -> dict[str, Any]:
    """Return a preset's values as nested tables."""
    found: list[str] = []
    tables = nest(preset.values, found, sections=_PRESET_SECTIONS)
    problems.extend(f"{text} (in the preset {preset.label!r} of baseline {baseline!r})" for text in found)
    return tables


def preset_differences(preset: Preset, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List where a configuration differs from an official preset; components not in use do not count.

    Args:
        preset: The preset; any but an official one gives an empty list.
        config: The configuration as nested plain values.
    """
    found: list[dict[str, Any]] = []
    for path, published in preset.values.items() if preset.official else ():
        *tables, key = path.split(".")
        table: Any = config
        for name in tables:
            table = table.get(name) or {}
        plain = _plain(published)
        if key in table and table[key] != plain:
            note = f"differs from the authors' value for {preset.label.removeprefix('official ')}"
            found.append({"option": path, "value": table[key], "published": plain, "note": note})
    return found


def _plain(value: Any) -> Any:
    plain: Any = unstructure(value)
    return list(plain) if isinstance(plain, tuple) else plain
