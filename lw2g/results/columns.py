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
        short: What it is in a few plain words; empty where the definition begins with such.
        asked: Whether the user named it, who then sees it without a value, too.
    """

    name: str
    path: tuple[str, ...]
    meaning: str
    digits: int = 2
    scale: float = 1.0
    short: str = ""
    asked: bool = False

    @property
    def in_short(self) -> str:
        """What it is, in one short line."""
        return self.short or self.meaning.partition(":")[0]

    @property
    def is_time(self) -> bool:
        """Whether it is of a clock: runs shared their machine with others, and differences are no finding."""
        return self.path[0] in ("seconds", "images_per_second")

    def of(self, record: Mapping[str, Any]) -> float | None:
        """Return its value in a record, or None."""
        value: Any = record
        for key in self.path:
            value = (value or {}).get(key)
        if value is None:
            return None
        return float(value) * self.scale


_SHORT = {
    "faa": "test images right after the last task, in %, mean over tasks (elsewhere last accuracy, A_T)",
    "caa": "the same after each task, mean over time (elsewhere average accuracy)",
    "ffm": "forgetting: best earlier minus last accuracy, in points, mean of old tasks",
    "pra": "test images that get a set of their task, in %",
    "chance_pra": "PRA by guessing",
    "ssp": "sets of parameters",
    "ari": "agreement of sets with known groups of tasks: 1 equal, 0 by chance",
}
"""What the usual columns are, where their definitions begin with names."""


def _metric_column(metric: Metric) -> Column:
    """Return the column of a metric."""
    return Column(
        name=metric.name,
        path=("metrics", metric.name),
        meaning=metric.summary,
        digits=metric.digits,
        short=_SHORT.get(metric.name, ""),
    )


def _storage(name: str, meaning: str) -> Column:
    return Column(name=name, path=("storage", name), meaning=meaning, digits=0)


def _seconds(part: str, meaning: str) -> Column:
    return Column(name=f"{part}_s", path=("seconds", part), meaning=meaning, digits=0)


_ALL = (
    *map(_metric_column, CORE_METRICS.values()),
    Column(
        name="ari",
        path=("adjusted_rand_index",),
        meaning=DEFINITIONS["adjusted_rand_index"],
        short=_SHORT["ari"],
    ),
    Column(
        name="stale",
        path=("stale_classes", "last"),
        meaning="percentage of classes whose features may have drifted since their statistics were taken",
        digits=0,
        scale=100.0,
    ),
    _storage("prompt_vectors", "vectors of the backbone's width in all sets"),
    _storage("basis_vectors", "basis vectors of the spaces that protect old tasks"),
    _storage("parameters", "numbers added to the frozen backbone"),
    _storage("statistics", "further numbers kept: means, covariances, Gram matrices, bases"),
    Column(
        name="training_mflop",
        path=("flops", "training_per_image"),
        meaning="millions of floating point operations of a training step, per image",
        scale=1e-6,
    ),
    Column(
        name="inference_mflop",
        path=("flops", "inference_per_image"),
        meaning="the same of a prediction, retrieval included",
        scale=1e-6,
    ),
    _seconds("evidence", "seconds of deciding on growth"),
    _seconds("training", "seconds of the phases of baseline and retrieval"),
    _seconds("subspace", "seconds of building spaces and rules"),
    _seconds("evaluation", "seconds of predicting test samples"),
    _seconds("total", "seconds of the whole run"),
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
    "caa",
    "ffm",
    "pra",
    "chance_pra",
    "ssp",
    "ari",
    "evidence_s",
    "total_s",
)


def further_columns(records: Iterable[Mapping[str, Any]], catalogue: Catalogue) -> dict[str, Column]:
    """Return a column, by name, for each metric, installed or in the records, that is not one of lw2g's own.

    Args:
        records: Records, which define the metrics of plugins that are not installed.
        catalogue: Defines the metrics of installed plugins.
    """
    definitions: dict[str, Mapping[str, Any]] = {name: {} for name in catalogue.names("metric")}
    for record in records:
        definitions |= record.get("metric_definitions", {})
    columns = {}
    for name in sorted(definitions.keys() - CORE_METRICS.keys()):
        if name in catalogue.names("metric"):
            column = _metric_column(catalogue.get("metric", name))
        else:
            definition = definitions[name]
            column = Column(
                name=name,
                path=("metrics", name),
                meaning=definition["definition"],
                digits=definition["digits"],
            )
        # a plugin may call its metric like a column that is no metric, such as total_s
        unique = f"metrics.{name}" if name in COLUMNS else name
        columns[unique] = attrs.evolve(column, name=unique)
    return columns


def chosen_columns(
    wanted: str | Sequence[str] | None, further: Mapping[str, Column], where: str = "--columns"
) -> list[Column]:
    """Return the requested columns, by default the usual ones and those of plugins' metrics.

    Args:
        wanted: Their names or headings, in a list or with commas; ``all`` for all of them.
        further: Columns by name beside lw2g's own.
        where: What names them, for the error.

    Raises:
        ConfigError: A column is unknown.
    """
    known = {**COLUMNS, **further}
    if wanted is None:
        names = [*DEFAULT_COLUMNS, *further]
    elif isinstance(wanted, str):
        names = [name.strip() for name in wanted.split(",")]
    else:
        names = list(wanted)
    if names == ["all"]:
        names = list(known)
        wanted = None
    by_heading = {_as_heading(name): name for name in known}
    chosen = []
    for name in names:
        found = name if name in known else by_heading.get(_as_heading(name))
        if found is None:
            raise ConfigError(
                f"{where}: no column is called {name!r}{nearest(name, known)}",
                f"there are {', '.join(known)}",
            )
        chosen.append(attrs.evolve(known[found], asked=wanted is not None))
    return chosen


def _as_heading(name: str) -> str:
    """Return the name of a column as its heading in a table has it, but in lower case."""
    return name.lower().replace("_", " ")
