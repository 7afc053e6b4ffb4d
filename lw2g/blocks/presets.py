"""Building block: presets of baselines per benchmark, from a TOML file in their package. Imports no torch.

The file has one table per baseline; official values name their source::

    [my-method]
    source = "the authors' configurations"

    [[my-method.official]]
    on = ["cifar100", "imagenet-r"]      # families of benchmarks
    like = ["natural", "hide-cifar"]     # rows to start from
    baseline = { epochs = 20, lr = 0.01 }

    [[my-method.tuned]]
    on = ["digits"]
    baseline.epochs = 5

If several entries name a family, later values override earlier ones. A row holds values that several entries
share, mostly the ``benchmark`` options of one way to prepare images, and may itself be ``like`` others. Rows
are ``[rows.NAME]`` in the same file, or lw2g's own in ``lw2g/blocks/rows.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from lw2g.errors import PluginError, nearest, shown
from lw2g.interfaces.component import Presets
from lw2g.interfaces.tables import leaves, read_table

__all__ = ["FilePresets", "PresetFile", "shared_rows"]

Kind = Literal["official", "tuned"]

_OWN = ("baseline", "retrieval", "growth", "constraints")
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "official": ("benchmark", "backbone", *_OWN),
    "tuned": _OWN,
}
_KEYS = ("source", "official", "tuned")


class PresetFile:
    """The presets of a plugin's baselines, read on first access.

    >>> presets = PresetFile("my_package").official("my-method")  # nothing has been read yet
    """

    def __init__(self, package: str, file: str = "presets.toml") -> None:
        """Name the file and the package that it lies in."""
        self._package = package
        self._file = file
        self._baselines: set[str] = set()
        self._tables: dict[str, dict[str, Any]] | None = None

    def official(self, baseline: str) -> FilePresets:
        """Return the authors' values for a baseline, by benchmark family."""
        return self._presets(baseline, "official")

    def tuned(self, baseline: str) -> FilePresets:
        """Return our own values for a baseline on benchmarks that its authors never ran."""
        return self._presets(baseline, "tuned")

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return ``source``, ``official`` and ``tuned`` of each baseline.

        Raises:
            PluginError: The file has an unusable entry; the message names file and key.
        """
        if self._tables is None:
            where = f"{self._package}/{self._file}"
            tables = read_table(self._package, self._file)
            rows = _rows(_table(tables.pop("rows", {}), f"{where}: rows"), f"{where}: rows", shared_rows())
            for name in tables:
                # by now every record has asked: what is left over is misspelt
                if name not in self._baselines:
                    hint = nearest(name, self._baselines)
                    raise PluginError(f"{where}: no record asks for {name!r}{hint}", "correct the file")
            self._tables = {name: _method(table, f"{where}: {name}", rows) for name, table in tables.items()}
        return self._tables

    def _presets(self, baseline: str, kind: Kind) -> FilePresets:
        self._baselines.add(baseline)
        return FilePresets(self, baseline, kind)


class FilePresets(Mapping[str, Mapping[str, Any]]):
    """Presets of one baseline in a file, read on first access."""

    def __init__(self, file: PresetFile, baseline: str, kind: Kind) -> None:
        """Name the file, the baseline and the kind of its presets."""
        self._file = file
        self._baseline = baseline
        self._kind = kind

    @property
    def source(self) -> str:
        """Where the official values come from; empty where there are none."""
        return str(self._file.read().get(self._baseline, {}).get("source", ""))

    def _values(self) -> Presets:
        presets: Presets = self._file.read().get(self._baseline, {}).get(self._kind, {})
        return presets

    def __getitem__(self, family: str) -> Mapping[str, Any]:
        return self._values()[family]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())


@cache
def shared_rows() -> Presets:
    """Return lw2g's own rows: name -> dotted keys and values."""
    return _rows(read_table("lw2g.blocks", "rows.toml"), "lw2g.blocks/rows.toml", {})


def _rows(tables: Mapping[str, Any], where: str, shared: Presets) -> Presets:
    """Return the rows, each with the values of the earlier rows that it is ``like``."""
    rows = dict(shared)
    for name, table in tables.items():
        at = f"{where}: {name}"
        rows[name] = _values(_table(table, at), at, rows, _SECTIONS["official"])
    return rows


def _method(value: Any, where: str, rows: Presets) -> dict[str, Any]:
    """Return the table of a method, checked, with the entries of its sections by family of data sets."""
    table = _table(value, where)
    for key in table:
        if key not in _KEYS:
            raise PluginError(f"{where}.{key}: no such key{nearest(key, _KEYS)}", "correct the file")
    if "official" in table and not isinstance(table.get("source"), str):
        raise PluginError(f"{where}.source: say in words where the official values come from")
    for kind in _SECTIONS.keys() & table.keys():
        table[kind] = _families(table[kind], f"{where}.{kind}", rows)
    return table


def _families(entries: Any, where: str, rows: Presets) -> Presets:
    """Return values of options by family of data sets, from tables that each name families under ``on``."""
    if not isinstance(entries, list):
        raise PluginError(f"{where}: expected a list of tables", f"write [[{where.partition(': ')[2]}]]")
    presets: dict[str, dict[str, Any]] = {}
    for entry in entries:
        entry = _table(entry, where)
        families = _names(entry.pop("on", None), f"{where}.on")
        values = _values(entry, where, rows, _SECTIONS[where.rpartition(".")[2]])
        for family in families:
            presets.setdefault(family, {}).update(values)
    return {family: dict(sorted(values.items(), key=_section)) for family, values in presets.items()}


def _section(item: tuple[str, Any]) -> int:
    return _SECTIONS["official"].index(item[0].partition(".")[0])


def _values(table: dict[str, Any], where: str, rows: Presets, sections: tuple[str, ...]) -> dict[str, Any]:
    """Return the dotted values of a row or an entry, over those of the rows that it is ``like``."""
    values: dict[str, Any] = {}
    for name in _names(table.pop("like", []), f"{where}.like"):
        if name not in rows:
            raise PluginError(
                f"{where}.like: no row is called {name!r}{nearest(name, rows)}", "correct the file"
            )
        values |= rows[name]
    for key, value in leaves(table):
        section, *rest = key.split(".")
        if section not in sections:
            raise PluginError(
                f"{where}.{key}: no such section{nearest(section, sections)}", "correct the file"
            )
        # options of constraints stand in a table for each
        depth = 2 if section == "constraints" else 1
        if len(rest) != depth:
            raise PluginError(f"{where}.{key}: expected the name of an option", "correct the file")
        if section == "backbone" and rest != ["name"]:
            raise PluginError(f"{where}.{key}: of a backbone only the name can be set", "correct the file")
        values[key] = value
    return values


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PluginError(f"{where}: expected a table but got {shown(value)}", "correct the file")
    return dict(value)


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise PluginError(f"{where}: expected a list of names but got {shown(value)}", "correct the file")
    return value
