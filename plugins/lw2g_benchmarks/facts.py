"""The published data sets, one record each, from ``data_sets.toml``. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.errors import PluginError
from lw2g.interfaces.dataset import (
    ByHand,
    DataSet,
    FileRoute,
    HubRoute,
    RemoteFile,
    Route,
    Split,
    TorchvisionRoute,
)
from lw2g.interfaces.tables import make_record, read_table

__all__ = ["DATA_SETS", "PUBLISHED", "Published"]

_FILE = "data_sets.toml"
_ROUTES: Mapping[str, type[Any]] = {
    "classes": TorchvisionRoute,
    "repo": HubRoute,
    "where": ByHand,
    "file": FileRoute,
}
"""The kind of a route by the key that it must have."""


@attrs.frozen(kw_only=True)
class Published:
    """A data set with what its benchmark says beside it.

    Attributes:
        data: The data set.
        citation: Where it was published.
        defaults: Defaults of the benchmark's options that are not those of all data sets; ``increment`` at
            least.
    """

    data: DataSet
    citation: str
    defaults: Mapping[str, Any]


def _published(name: str, table: dict[str, Any]) -> Published:
    where = f"lw2g_benchmarks/{_FILE}: {name}"
    beside = {key: table.pop(key, None) for key in ("citation", "defaults")}
    data = make_record(
        DataSet,
        table,
        where,
        name=name,
        splits={key: _split(split, f"{where}.splits.{key}") for key, split in table["splits"].items()},
        routes=tuple(_route(route, f"{where}.routes") for route in table["routes"]),
        beside=_files(table, "beside", where),
    )
    return make_record(Published, beside, where, data=data)


def _split(table: dict[str, Any], where: str) -> Split:
    lists = {key: _files(table, key, where) for key in ("train_lists", "test_lists")}
    return make_record(Split, table, where, **lists)


def _files(table: dict[str, Any], key: str, where: str) -> tuple[RemoteFile, ...]:
    return tuple(make_record(RemoteFile, file, f"{where}.{key}") for file in table.get(key, ()))


def _route(table: dict[str, Any], where: str) -> Route:
    kind = next((kind for key, kind in _ROUTES.items() if key in table), None)
    if kind is None:
        raise PluginError(f"{where}: expected one of the keys {', '.join(_ROUTES)}", "correct the file")
    if kind is FileRoute:
        return FileRoute(file=make_record(RemoteFile, table["file"], f"{where}.file"))
    route: Route = make_record(kind, table, where)
    return route


PUBLISHED: Mapping[str, Published] = {
    name: _published(name, table) for name, table in read_table("lw2g_benchmarks", _FILE).items()
}
"""All data sets and what their benchmarks say beside them, by the name of the benchmark."""

DATA_SETS: Mapping[str, DataSet] = {name: published.data for name, published in PUBLISHED.items()}
