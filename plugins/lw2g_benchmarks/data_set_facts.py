"""The published data sets, one record each, from ``data_sets.toml``. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.plugin import DataSet, make_record, read_table

__all__ = ["DATA_SETS", "PUBLISHED", "Published"]

_FILE = "data_sets.toml"


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
    data = DataSet.from_table(name, table, where)
    return make_record(Published, of_benchmark, where, data=data)


def _read() -> dict[str, Published]:
    published = {}
    for name, table in read_table("lw2g_benchmarks", _FILE).items():
        published[name] = _published(name, table)
    return published


PUBLISHED: Mapping[str, Published] = _read()
"""All data sets and the further facts of their benchmarks, by the name of the benchmark."""

DATA_SETS: Mapping[str, DataSet] = {name: published.data for name, published in PUBLISHED.items()}
