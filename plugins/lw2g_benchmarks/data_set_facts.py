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
    # last: a route to the hub names a file, too
    "file": FileRoute,
}
"""The kind of a route by the key that it must have."""


@attrs.frozen(kw_only=True)
class Published:
    """A data set, and the further facts of its benchmark.

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
    # taken out of the table: what is left in it are fields of the data set, and unknown ones are refused
    of_benchmark = {"citation": table.pop("citation", None), "defaults": table.pop("defaults", None)}
    splits = {}
    for key, split in table["splits"].items():
        splits[key] = _split(split, f"{where}.splits.{key}")
    routes = [_route(route, f"{where}.routes") for route in table["routes"]]
    data = make_record(
        DataSet,
        table,
        where,
        name=name,
        splits=splits,
        routes=tuple(routes),
        beside=_files(table, "beside", where),
    )
    return make_record(Published, of_benchmark, where, data=data)


def _split(table: dict[str, Any], where: str) -> Split:
    return make_record(
        Split,
        table,
        where,
        train_lists=_files(table, "train_lists", where),
        test_lists=_files(table, "test_lists", where),
    )


def _files(table: dict[str, Any], key: str, where: str) -> tuple[RemoteFile, ...]:
    return tuple(make_record(RemoteFile, file, f"{where}.{key}") for file in table.get(key, ()))


def _route(table: dict[str, Any], where: str) -> Route:
    for key, kind in _ROUTES.items():
        if key not in table:
            continue
        if kind is FileRoute:  # the one whose field is a record of its own
            return FileRoute(file=make_record(RemoteFile, table["file"], f"{where}.file"))
        route: Route = make_record(kind, table, where)
        return route
    raise PluginError(f"{where}: expected one of the keys {', '.join(_ROUTES)}", "correct the file")


def _read() -> dict[str, Published]:
    published = {}
    for name, table in read_table("lw2g_benchmarks", _FILE).items():
        published[name] = _published(name, table)
    return published


PUBLISHED: Mapping[str, Published] = _read()
"""All data sets and the further facts of their benchmarks, by the name of the benchmark."""

DATA_SETS: Mapping[str, DataSet] = {name: published.data for name, published in PUBLISHED.items()}
