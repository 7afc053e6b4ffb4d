"""Grids: from one TOML file to the cells of a sweep, each a configuration under the hash of what it says.

A grid has three parts. ``[base]`` is a configuration that all cells share. ``[[rows]]`` are alternatives with
settings of their own. ``[axes]`` are lists of values that multiply the rows; a row that sets an axis's option
itself is not multiplied by it, and a row's own ``axes`` replace or join the grid's. Settings are written as
in a configuration, or short: ``baseline = "hide-prompt"``, ``seed = 1``, ``constraints = ["pgp"]``. A grid
that ``extends`` another one has all of it: its own base and axes over the other's, its rows after those.
``[executor]`` says where it runs (:mod:`lw2g.sweep.executors`), and is no part of what is run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.layers import SECTIONS, nest
from lw2g.config.structure import NONE
from lw2g.config.toml import read_toml
from lw2g.errors import ConfigError, nearest, shown

__all__ = ["Cell", "Settings", "read_executor", "read_grid", "settings_of"]

Settings = dict[str, Any]
"""Values by dotted keys."""

_NAMED = ("baseline", "retrieval", "policy", "benchmark", "backbone")
_SHORT = {name: f"{name}.name" for name in _NAMED} | {
    "weights": "backbone.weights",
    **{name: f"run.{name}" for name in ("seed", "device", "precision", "protocol")},
}
_PARTS = ("base", "axes", "rows", "extends", "executor")
_SEED = "run.seed"
_ORDER = {"baseline.name": 0, "policy.name": 1, "retrieval.name": 2, "constraints": 3}
_DIGITS = 12
_LONGEST = 40


@attrs.frozen(kw_only=True)
class Cell:
    """One configuration of a grid.

    Attributes:
        settings: What the grid says of it, by dotted keys; nothing that is left to defaults.
        label: What tells it from the other cells, in words.
    """

    settings: Mapping[str, Any]
    label: str

    @property
    def name(self) -> str:
        """Its directory: baseline and policy as far as named, and the hash of the settings.

        Only what the grid says is hashed, so that an option which lw2g gains later moves no directory.
        """
        content = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        parts = [
            str(self.settings[f"{part}.name"])
            for part in ("baseline", "policy")
            if f"{part}.name" in self.settings
        ]
        return "-".join(
            [re.sub(r"[^\w.-]", "_", part) for part in parts]
            + [hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]]
        )

    def tables(self) -> dict[str, Any]:
        """Return the settings as the nested tables of a configuration file.

        Raises:
            ConfigError: A key is none of a configuration.
        """
        problems: list[str] = []
        found = nest({key: value for key, value in self.settings.items() if key != "constraints"}, problems)
        names = self.settings.get("constraints", ())
        lost = found.get("constraints", {}).keys() - set(names)
        if lost:
            problems.append(
                f"constraints: options for {', '.join(sorted(lost))}, which is not in use; name all in use: "
                "constraints = [...]"
            )
        if problems:
            raise ConfigError("; ".join(problems))
        if "constraints" in self.settings:
            found["constraints"] = {
                name: found.get("constraints", {}).get(name, {}) for name in names
            } or NONE
        return found


def read_grid(path: Path, overrides: Mapping[str, Any] | None = None) -> list[Cell]:
    """Return the cells of a grid: rows in their order, all of the first seed, then all of the second.

    Args:
        path: A TOML file.
        overrides: Settings of every cell, which win over the grid's; cells that become alike are one.

    Raises:
        ConfigError: It is no grid.
    """
    grid = _read(path, ())
    last = settings_of(overrides or {}, "--set")
    found: dict[str, _Found] = {}
    for row in grid.rows or [_Row()]:
        for one in _cells(row, grid, last):
            found.setdefault(json.dumps(one.settings, sort_keys=True), one)
    if not found:
        raise ConfigError(f"{str(path)!r} has no cells; an axis or the rows are empty")
    idle = {key for one in found.values() for key in one.idle}
    idle -= {key for one in found.values() for key in one.settings}
    if idle:
        raise ConfigError(f"{min(idle)}: no cell uses that constraint; name it: constraints = [...]")
    return _labelled(sorted(found.values(), key=lambda one: one.turn))


def read_executor(path: Path) -> Settings:
    """Return what a grid says of the executor, empty where it says nothing.

    Raises:
        ConfigError: It is no grid.
    """
    return _read(path, ()).executor


@attrs.frozen(kw_only=True)
class _Row:
    """A row of a grid."""

    settings: Settings = attrs.field(factory=dict)
    axes: dict[str, list[Settings]] = attrs.field(factory=dict)
    label: str = ""


@attrs.frozen(kw_only=True)
class _Grid:
    """What a file says, and those that it extends."""

    base: Settings
    axes: dict[str, list[Settings]]
    rows: list[_Row]
    executor: Settings


def _read(path: Path, before: tuple[Path, ...]) -> _Grid:
    """Return what a file says; ``before`` are those that extend it."""
    if path.resolve() in before:
        raise ConfigError(f"{str(path)!r} extends itself; take one `extends` out")
    told = read_toml(path)
    unknown = sorted(told.keys() - {*_PARTS})
    if unknown:
        raise ConfigError(
            f"{str(path)!r}: {unknown[0]!r} is no part of a grid{nearest(unknown[0], _PARTS)}; a grid has "
            "[base], [axes], [[rows]], [executor] and extends"
        )
    rows = told.get("rows", [])
    if not isinstance(rows, list):
        raise ConfigError("rows: expected tables [[rows]]; write two brackets")
    mine = _Grid(
        base=settings_of(_table(told.get("base", {}), "base"), "base"),
        axes=_axes(_table(told.get("axes", {}), "axes"), "axes"),
        rows=[_row(_table(row, f"rows {number}"), f"rows {number}") for number, row in enumerate(rows, 1)],
        executor=dict(_table(told.get("executor", {}), "executor")),
    )
    if "extends" not in told:
        return mine
    other = _read(path.parent / str(told["extends"]), (*before, path.resolve()))
    return _Grid(
        base=other.base | mine.base,
        axes=other.axes | mine.axes,
        rows=other.rows + mine.rows,
        executor=mine.executor or other.executor,
    )


def _row(row: Mapping[str, Any], where: str) -> _Row:
    return _Row(
        settings=settings_of(
            {key: value for key, value in row.items() if key not in ("label", "axes")}, where
        ),
        axes=_axes(_table(row.get("axes", {}), f"{where}.axes"), f"{where}.axes"),
        label=str(row.get("label", "")),
    )


@attrs.frozen(kw_only=True)
class _Found:
    """A cell without its label.

    Attributes:
        settings: Its settings.
        turn: The place of its seed among those of its row.
        label: The row's label, empty where it has none.
        own: Keys that the row says.
        varied: Keys that axes say.
        idle: Options of constraints that it does not use; they are not among the settings.
    """

    settings: Settings
    turn: int
    label: str
    own: tuple[str, ...]
    varied: tuple[str, ...]
    idle: tuple[str, ...]

    def words(self, *, whole: bool) -> str:
        """Return what the cell is: its row's label or names, and what axes say; or all that its row says."""
        own = self.own if whole else [key for key in self.own if _tells(key) and not self.label]
        keys = dict.fromkeys((*own, *self.varied))
        ordered = sorted(keys, key=lambda key: (key == _SEED, _ORDER.get(key, len(_ORDER))))
        return ", ".join(
            [self.label] * bool(self.label) + [_said(key, self.settings[key]) for key in ordered]
        )


def _labelled(found: Sequence[_Found]) -> list[Cell]:
    """Return the cells, each with as few words as tell it from the others."""
    counts = Counter(one.words(whole=False) for one in found)
    return [
        Cell(settings=one.settings, label=one.words(whole=counts[one.words(whole=False)] > 1) or "base")
        for one in found
    ]


def _cells(row: _Row, grid: _Grid, last: Settings) -> Iterator[_Found]:
    """Yield the cells of a row."""
    mine = {key: values for key, values in grid.axes.items() if key not in row.settings} | row.axes
    for choice in itertools.product(*(enumerate(values) for values in mine.values())):
        varied = {key: value for _, values in choice for key, value in values.items()}
        turns = dict(zip(mine, (place for place, _ in choice), strict=True))
        settings = grid.base | row.settings | varied | last
        idle = [key for key in settings if _is_idle(key, settings.get("constraints"))]
        yield _Found(
            settings={key: value for key, value in settings.items() if key not in idle},
            turn=turns.get(_SEED, 0),
            label=row.label,
            own=tuple(key for key in row.settings if key not in idle),
            varied=tuple(key for key in varied if key not in idle),
            idle=tuple(idle),
        )


def _is_idle(key: str, used: Sequence[str] | None) -> bool:
    """Whether a key is an option of a constraint that is not among those in use."""
    section, _, rest = key.partition(".")
    return section == "constraints" and used is not None and rest != "" and rest.partition(".")[0] not in used


def _tells(key: str) -> bool:
    return key.endswith(".name") or key == "constraints"


def _said(key: str, value: Any) -> str:
    """Return a setting in words: names alone, others with the last part of their key."""
    if key == "constraints":
        return "+".join(value) or "no constraints"
    text = str(value)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return text if _tells(key) else f"{key.rpartition('.')[2]} {text}"


def _axes(table: Mapping[str, Any], where: str) -> dict[str, list[Settings]]:
    """Return the settings of each value of each axis, under the axis's own dotted key."""
    found: dict[str, list[Settings]] = {}
    for key, values in _leaves(table):
        if not isinstance(values, list):
            raise ConfigError(f"{where}.{key}: expected a list of values but got {shown(values)}")
        found[_SHORT.get(key, key)] = [settings_of({key: value}, f"{where}.{key}") for value in values]
    return found


def settings_of(table: Mapping[str, Any], where: str) -> Settings:
    """Return settings, nested, dotted or short, by dotted keys; ``constraints`` lists those in use.

    Raises:
        ConfigError: A key is none of a configuration.
    """
    found: Settings = {}
    for key, value in table.items():
        if key.partition(".")[0] not in SECTIONS and key not in _SHORT:
            raise ConfigError(f"{where}: no such section {key!r}{nearest(key, (*SECTIONS, *_SHORT))}")
        if key == "constraints":
            found[key] = _names(value, where)
        if isinstance(value, Mapping):
            found |= _dotted(key, value)
        elif key != "constraints":
            found[_SHORT.get(key, key)] = value
    return found


def _names(value: Any, where: str) -> list[str]:
    """Return the names of the constraints in use: given in a list, as tables of options, or as ``none``."""
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | Mapping) else []
    if not all(isinstance(name, str) for name in names) or not isinstance(value, str | list | Mapping):
        raise ConfigError(f"{where}.constraints: expected names of constraints but got {shown(value)}")
    return [name for name in names if name != NONE]


def _dotted(prefix: str, table: Mapping[str, Any]) -> Settings:
    found: Settings = {}
    for key, value in table.items():
        path = f"{prefix}.{key}"
        found |= _dotted(path, value) if isinstance(value, Mapping) and value else {path: value}
    return found


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table but got {shown(value)}")
    return value


def listed(names: Sequence[str], longest: int = 3) -> str:
    """Return names in one line, the first few of them."""
    more = f" and {len(names) - longest} more" if len(names) > longest else ""
    return f"{', '.join(map(repr, names[:longest]))}{more}"
