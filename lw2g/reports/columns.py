"""The columns of a report: each quantity's place in a record and its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from lw2g.errors import ConfigError, nearest
from lw2g.interfaces.metric import CORE_METRICS, DEFINITIONS, Metric
from lw2g.registry.catalogue import Catalogue

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "Column", "chosen_columns", "further_columns"]


@attrs.frozen(kw_only=True)
class Column:
    """A quantity of a record.

    Attributes:
        name: Its name for users.
        path: Its keys in a record.
        meaning: Its definition, in one line.
        digits: Printed decimals.
        scale: Factor for printing.
        better: 1 where more is better, -1 where less is, 0 where neither is.
        chance: Name of the column that says what guessing gives; empty if none does.
    """

    name: str
    path: tuple[str, ...]
    meaning: str
    digits: int = 2
    scale: float = 1.0
    better: int = 0
    chance: str = ""

    def of(self, record: Mapping[str, Any]) -> float | None:
        """Return its value in a record, or None."""
        value: Any = record
        for key in self.path:
            value = (value or {}).get(key)
        return None if value is None else float(value) * self.scale


_BETTER = {"faa": 1, "faa_samples": 1, "caa": 1, "bwt": 1, "pra": 1, "ffm": -1, "ffm_code": -1}


def _of_metric(metric: Metric) -> Column:
    return Column(
        name=metric.name,
        path=("metrics", metric.name),
        meaning=metric.summary,
        digits=metric.digits,
        better=_BETTER.get(metric.name, 0),
        chance="chance_pra" if metric.name == "pra" else "",
    )


_ALL = (
    *map(_of_metric, CORE_METRICS.values()),
    Column(name="ari", path=("adjusted_rand_index",), meaning=DEFINITIONS["adjusted_rand_index"]),
    Column(
        name="stale",
        path=("stale_classes", "last"),
        meaning="percentage of classes whose features may have drifted since their statistics were taken",
        digits=0,
        scale=100.0,
    ),
    *(
        Column(name=name, path=("storage", name), meaning=meaning, digits=0)
        for name, meaning in (
            ("prompt_vectors", "vectors of the backbone's width in all sets"),
            ("basis_vectors", "basis vectors of the spaces that protect old tasks"),
            ("parameters", "numbers added to the frozen backbone"),
            ("statistics", "further numbers kept: means, covariances, Gram matrices, bases"),
        )
    ),
    *(
        Column(name=name, path=("flops", f"{key}_per_image"), meaning=meaning, scale=1e-6)
        for name, key, meaning in (
            (
                "training_mflop",
                "training",
                "millions of floating point operations of a training step, per image",
            ),
            ("inference_mflop", "inference", "the same of a prediction, retrieval included"),
        )
    ),
    *(
        Column(name=f"{key}_s", path=("seconds", key), meaning=f"seconds of {what}", digits=0)
        for key, what in (
            ("evidence", "deciding on growth"),
            ("training", "the phases of baseline and retrieval"),
            ("subspace", "building spaces and rules"),
            ("evaluation", "predicting test samples"),
            ("total", "the whole run"),
        )
    ),
    Column(
        name="passes",
        path=("routing", "passes_per_image"),
        meaning="forwards through a set per test image, without the query's",
        digits=0,
    ),
    Column(
        name="test_ms",
        path=("seconds", "per_test_image"),
        meaning="milliseconds of these forwards, in batches",
        scale=1e3,
    ),
    Column(name="images_per_s", path=("images_per_second",), meaning="training images a second", digits=0),
)

COLUMNS: Mapping[str, Column] = {column.name: column for column in _ALL}
DEFAULT_COLUMNS = (
    "faa",
    "ffm",
    "ffm_code",
    "bwt",
    "pra",
    "chance_pra",
    "ssp",
    "ari",
    "evidence_s",
    "total_s",
)


def further_columns(records: Iterable[Mapping[str, Any]], catalogue: Catalogue) -> dict[str, Column]:
    """Return a column, by name, for each metric in the records that is not one of lw2g's own.

    Args:
        records: Records, which define the metrics of plugins that are not installed.
        catalogue: Defines the metrics of installed plugins.
    """
    definitions: dict[str, Mapping[str, Any]] = {}
    for record in records:
        definitions |= record.get("metric_definitions", {})
    columns = {}
    for name in sorted(definitions.keys() - CORE_METRICS.keys()):
        if name in catalogue.names("metric"):
            column = _of_metric(catalogue.get("metric", name))
        else:
            definition = definitions[name]
            column = Column(
                name=name,
                path=("metrics", name),
                meaning=definition["definition"],
                digits=definition["digits"],
            )
        free = name if name not in COLUMNS else f"metrics.{name}"
        columns[free] = attrs.evolve(column, name=free)
    return columns


def chosen_columns(wanted: str | Sequence[str] | None, further: Mapping[str, Column]) -> list[Column]:
    """Return the requested columns, by default the usual ones and those of plugins' metrics.

    Raises:
        ConfigError: A column is unknown.
    """
    known = {**COLUMNS, **further}
    names = wanted.split(",") if isinstance(wanted, str) else wanted
    if names is None:
        names = (*DEFAULT_COLUMNS, *further)
    elif list(names) == ["all"]:
        names = tuple(known)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--columns: no column is called {name!r}{nearest(name, known)}",
                f"there are: {', '.join(known)}",
            )
    return [known[name] for name in names]
