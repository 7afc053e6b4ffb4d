"""The layers of an experiment before its components are known: file, explicit options, preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.errors import nearest, shown
from lw2g.interfaces.component import BaselineComponent

__all__ = [
    "SECTIONS",
    "Preset",
    "choose_preset",
    "nest",
    "preset_tables",
    "table_of",
]

SECTIONS = (
    "baseline",
    "retrieval",
    "policy",
    "evidence",
    "constraints",
    "benchmark",
    "backbone",
    "growth",
    "routing",
    "run",
    "trackers",
)
_TUNED_SECTIONS = ("baseline", "retrieval", "constraints", "growth")
_OFFICIAL_SECTIONS = (*_TUNED_SECTIONS, "benchmark", "backbone")
_NESTED = ("evidence", "constraints", "trackers")


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

    @property
    def family(self) -> str:
        """The family of benchmarks; empty where the baseline has no values."""
        return self.label.partition(" ")[2]


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
    problems.append(f"{path}: expected a table but got {shown(value)}")
    return {}


def preset_tables(
    values: Mapping[str, Any], preset: Preset, baseline: str, problems: list[str]
) -> dict[str, Any]:
    """Return the values of a preset, or of a protocol around it, as nested tables."""
    found: list[str] = []
    sections = _OFFICIAL_SECTIONS if preset.official else _TUNED_SECTIONS
    nest(preset.values, found, sections=sections)
    problems.extend(f"{text} (in the preset {preset.label!r} of baseline {baseline!r})" for text in found)
    return nest(values, [], sections=_OFFICIAL_SECTIONS)
