"""The layers of an experiment: file, explicit options and preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.config.settings import OWN_SECTIONS, RUN_OPTIONS
from lw2g.config.structure import NONE
from lw2g.config.toml import flat
from lw2g.errors import nearest, shown
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.defaults import METHODS
from lw2g.registry import kinds

__all__ = [
    "GOAL",
    "NAMED_BY",
    "NO_GOAL_IN_FILES",
    "SECTIONS",
    "SHORT",
    "Preset",
    "choose_preset",
    "nest",
    "preset_tables",
    "table_of",
    "with_short",
    "word_of",
    "written_out",
]

SECTIONS = (*kinds.SECTIONS, *OWN_SECTIONS)
_TUNED_SECTIONS = ("baseline", "retrieval", "constraints", "growth")
_OFFICIAL_SECTIONS = (*_TUNED_SECTIONS, "benchmark", "backbone")
_NESTED = tuple(section for section, record in kinds.SECTIONS.items() if record.several)
SHORT: Mapping[str, str] = {
    **{section: f"{section}.name" for section in kinds.SECTIONS if section not in _NESTED},
    "weights": "backbone.weights",
    **{name: f"run.{name}" for name in RUN_OPTIONS},
}
"""What stands for itself, as ``policy = "one"`` at the top of a file, and the dotted key that it sets."""

NAMED_BY: Mapping[str, str] = {"head": "baseline.head", "carry": "baseline.head_carry"}
"""Sections whose components an option of the baseline names, and that option's dotted key."""

GOAL = "tasks"
NO_GOAL_IN_FILES = "tasks is no setting: lw2g run --tasks N"
"""How far a run goes is said when it starts, and stands in no file."""


@attrs.frozen(kw_only=True)
class Preset:
    """A baseline's values for one family of benchmarks.

    Attributes:
        label: ``"official cifar100"``, ``"tuned glyphs"``, or ``"general"`` if the baseline has none.
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
        """The family of benchmarks; empty if the baseline has no values."""
        return self.label.partition(" ")[2]


def with_short(options: Mapping[str, Any], short: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their dotted keys, and over them those that are given without their section.

    This is the form of an option between a command line or a call and the configuration.

    Args:
        options: Options by their dotted keys; ``constraints`` has names.
        short: Options by the names in :data:`SHORT`, or by their dotted keys, and names of ``constraints``
            and ``trackers``; None says nothing.

    >>> with_short({"policy.margin": 3}, {"policy": "one", "weights": None, "trackers": ["mlflow"]})
    {'policy.margin': 3, 'policy.name': 'one', 'trackers.mlflow': {}}
    """
    keyed = dict(options)
    for name, value in short.items():
        if name == "trackers":
            for tracker in value or ():
                keyed.setdefault(f"trackers.{tracker}", {})
        elif value is not None:
            keyed[SHORT.get(name, name)] = value
    return keyed


def word_of(config: Mapping[str, Any]) -> str:
    """Return the word of :data:`METHODS` that stands for a configuration's method; empty where none does."""
    options = flat(config)
    for word, meant in METHODS.items():
        if all(options.get(key) == value for key, value in with_short({}, meant).items()):
            return word
    return ""


def written_out(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with its short forms as tables.

    >>> written_out({"policy": "one", "weights": "w.npz", "constraints": ["pgp"], "backbone": {"name": "b"}})
    {'policy': {'name': 'one'}, 'backbone': {'weights': 'w.npz', 'name': 'b'}, 'constraints': {'pgp': {}}}
    """
    tables: dict[str, Any] = {}
    for key, value in file.items():
        if key in SHORT and not isinstance(value, Mapping):
            section, _, option = SHORT[key].partition(".")
            key = section
            value = {option: value}
        elif key in _NESTED and value != NONE:
            value = _tables_of_names(value)
        if isinstance(value, Mapping) and isinstance(tables.get(key), Mapping):
            # a short form and a table of one section, in either order
            tables[key] = {**tables[key], **value}
        else:
            tables[key] = value
    return tables


def _tables_of_names(value: Any) -> Any:
    """Return a table without options for one or several names; anything else as it is."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return value
    return {name: {} for name in names}


def choose_preset(baseline: BaselineComponent, family: str) -> Preset:
    """Return the authors' values for a family of benchmarks, else ours, else none."""
    for kind, presets in (("official", baseline.presets), ("tuned", baseline.tuned)):
        if family in presets:  # the authors' come first
            return Preset(label=f"{kind} {family}", values=dict(presets[family]))
    return Preset()


def nest(
    dotted: Mapping[str, Any],
    problems: list[str],
    *,
    sections: tuple[str, ...] = SECTIONS,
    behind: str = "",
) -> dict[str, Any]:
    """Turn dotted keys into nested tables; report and omit keys that do not fit the layout.

    ``{"growth.energy": 0.9, "constraints.cpk.phi": 0.4}`` gives ``{"growth": {"energy": 0.9}, "constraints":
    {"cpk": {"phi": 0.4}}}``. ``behind`` is what they stand behind, such as ``"--set "``.
    """
    tables: dict[str, Any] = {}
    for path, value in dotted.items():
        section, *keys = path.split(".")
        # SECTION.OPTION; SECTION.COMPONENT.OPTION where a section has several components
        depth = 2 if section in _NESTED else 1
        if not keys and section not in sections and not nearest(section, sections):
            problems.append(f"{path}: expected a key with its section, such as baseline.epochs")
        elif section not in sections:
            problems.append(f"{path}: no such section{nearest(section, sections)}")
        elif len(keys) > depth or "" in keys:
            problems.append(f"{path}: expected a key of the form {_form(section, depth)}")
        elif len(keys) < depth and not isinstance(value, Mapping):
            hint = ""
            if depth == 1:  # the section alone
                hint = f" (did you mean {behind}{section}.name={value}?)"
            elif section == path and section in NAMED_BY:
                hint = f" (did you mean {behind}{NAMED_BY[section]}={value}?)"
            problems.append(f"{path}: expected a key of the form {_form(section, depth)}{hint}")
        else:
            _put(tables, [section, *keys], value)
    return tables


def _form(section: str, depth: int) -> str:
    if depth == 2:
        return f"{section}.NAME.OPTION"
    return f"{section}.OPTION"


def _put(tables: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set what stands at a path of keys; a table joins the one that is there."""
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
    """Return a copy of a table, or report another value and return an empty table."""
    if isinstance(value, Mapping):
        return dict(value)
    problems.append(f"{path}: expected a table but got {shown(value)}")
    return {}


def preset_tables(
    values: Mapping[str, Any], preset: Preset, baseline: str, problems: list[str]
) -> dict[str, Any]:
    """Return the values of a preset, or of its protocol, as nested tables."""
    misfits: list[str] = []
    sections = _OFFICIAL_SECTIONS if preset.official else _TUNED_SECTIONS
    # the preset is checked even where a protocol gives the values: a plugin's author must hear of a typo
    nest(preset.values, misfits, sections=sections)
    for text in misfits:
        problems.append(f"{text} (in the preset {preset.label!r} of baseline {baseline!r})")
    return nest(values, [], sections=_OFFICIAL_SECTIONS)
