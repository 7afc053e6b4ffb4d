"""Tables of runs: what belongs in one, which runs are one row, and what tells rows apart."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.errors import ConfigError, nearest
from lw2g.registry.catalogue import Catalogue
from lw2g.report import MIXABLE
from lw2g.report.columns import Column
from lw2g.report.names import OF_THE_TABLE, Settings, labels_of, settings_of
from lw2g.report.paper import Printed, differences_of, printed_for
from lw2g.report.runs import Run
from lw2g.report.statistics import Difference, Summary, paired_difference, summary

__all__ = ["Row", "Table", "tables_of"]


@attrs.frozen(kw_only=True)
class Row:
    """Runs of one configuration.

    Attributes:
        label: What tells it from the other rows of its table.
        runs: The runs, one per seed and class order.
        control: Whether it is no continual learner that could be used: a bound, or one that knows the answer.
        marks: Where it stands among what is mixed: checkpoint, split, protocol.
        differs: In what its method differs from the published one, one text each.
        paper: What the paper prints for it, by columns.
    """

    label: str
    runs: tuple[Run, ...]
    control: bool
    marks: tuple[str, ...]
    differs: tuple[str, ...]
    paper: Mapping[str, Printed]

    @property
    def finished(self) -> bool:
        """Whether its runs are; those that are not stand in rows of their own."""
        return self.runs[0].state == "finished"

    def summary(self, column: Column) -> Summary:
        """Return mean, deviation and n of a column."""
        return summary([column.of(run.record) for run in self.runs])

    def difference(self, other: Row, column: Column) -> Difference | None:
        """Return how much greater a column is than in another row, paired over seeds and class orders."""
        mine, theirs = ({_pair(run): column.of(run.record) for run in row.runs} for row in (self, other))
        return paired_difference(mine, theirs)


@attrs.frozen(kw_only=True)
class Table:
    """Rows that may be compared: one benchmark.

    Attributes:
        title: The benchmark and its tasks, checkpoint and protocol.
        rows: In the order in which their first runs were found.
        unfinished: Runs that stand in no row.
        notes: What a reader should know, one sentence each.
    """

    title: str
    rows: tuple[Row, ...]
    unfinished: tuple[Run, ...]
    notes: tuple[str, ...]

    def row(self, wanted: str) -> Row:
        """Return the row whose label is, or alone contains, what is wanted.

        Raises:
            ConfigError: There is none, or there are several.
        """
        labels = [row.label for row in self.rows]
        found = [row for row in self.rows if row.label == wanted] or [
            row for row in self.rows if wanted in row.label
        ]
        if len(found) != 1:
            why = f"fits {len(found)} rows" if found else "is no row"
            raise ConfigError(
                f"--against: {wanted!r} {why} of {self.title}{nearest(wanted, labels)}; rows are: "
                + "; ".join(labels)
            )
        return found[0]


def tables_of(
    runs: Iterable[Run], catalogue: Catalogue, mix: Sequence[str] = (), *, so_far: bool = False
) -> list[Table]:
    """Return one table per benchmark and task size.

    Args:
        runs: Finished or not.
        catalogue: Knows which components are controls.
        mix: What one table may mix.
        so_far: Whether unfinished runs get rows of their own, as far as they have come.

    Raises:
        ConfigError: Runs of one table mix what it may not.
    """
    found: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        found[tuple(map(run.options.get, OF_THE_TABLE))].append(run)
    return [_table(group, catalogue, mix, so_far) for group in found.values()]


def _table(runs: Sequence[Run], catalogue: Catalogue, mix: Sequence[str], so_far: bool) -> Table:
    counted = [run for run in runs if run.state == "finished" or (so_far and run.record)]
    ways = (_checkpoint, _splits(counted), lambda run: str(run.record["protocol"]))
    kinds: dict[str, Callable[[Run], str]] = dict(zip(MIXABLE, ways, strict=True))
    mixed = [kind for kind, of in kinds.items() if len({of(run) for run in counted}) > 1]
    for kind in mixed:
        if kind not in mix:
            _refuse(kind, kinds[kind], counted)
    settings = {id(run): settings_of(run, catalogue) for run in counted}
    groups = _groups(counted, settings, lambda run: tuple(of(run) for of in kinds.values()))
    first = [group[0] for group in groups]
    labels, shared = labels_of(first, [settings[id(run)] for run in first], catalogue)
    rows, notes = [], []
    if shared:
        notes.append(f"all rows: {', '.join(f'{key} {plain(value)}' for key, value in shared.items())}")
    for label, group in zip(labels, groups, strict=True):
        single = {_pair(run): run for run in reversed(group)}
        if len(single) < len(group):
            notes.append(
                f"{label}: {len(group) - len(single)} runs of a seed that is there already do not count"
            )
        differs = differences_of(group[0], catalogue)
        rows.append(
            Row(
                label=label,
                runs=tuple(reversed(single.values())),
                control=_is_control(group[0], catalogue),
                marks=tuple(kinds[kind](group[0]) for kind in mixed),
                differs=tuple(differs),
                paper=printed_for(group[0], differs),
            )
        )
    notes += _warnings(rows)
    notes += [f"mixes {kind}: rows of different ones do not compare" for kind in mixed]
    return Table(
        title=_title(runs[0], counted, kinds, mixed),
        rows=tuple(rows),
        unfinished=tuple(run for run in runs if run not in counted),
        notes=tuple(notes),
    )


def _refuse(kind: str, of: Callable[[Run], str], runs: Sequence[Run]) -> None:
    places = defaultdict(list)
    for run in runs:
        places[of(run)].append(str(run.path))
    listed = ", ".join(f"{value}: {len(paths)} such as {paths[0]}" for value, paths in places.items())
    raise ConfigError(f"the runs mix {kind} ({listed}); leave some out, or say --mix {kind}")


def _title(
    run: Run, finished: Sequence[Run], kinds: Mapping[str, Callable[[Run], str]], mixed: Sequence[str]
) -> str:
    options = run.options
    name, increment = options["benchmark.name"], options.get("benchmark.increment")
    parts = [name if increment is None else f"{name}, {increment} classes a task"]
    if finished:
        parts += [kinds[kind](finished[0]) for kind in ("checkpoints", "protocols") if kind not in mixed]
    return ", ".join(parts)


def _checkpoint(run: Run) -> str:
    backbone = run.record["backbone"]
    names = dict.fromkeys((run.config["backbone"]["name"], backbone["timm_name"]))
    return f"{' '.join(names)} {backbone['sha256'][:8]}"


def _splits(runs: Sequence[Run]) -> Callable[[Run], str]:
    """Return what names the images of a run: its split; where one name stands for several, a hash as well."""
    prints = defaultdict(set)
    for run in runs:
        prints[_split_name(run), tuple(run.record["class_order"])].add(
            run.record["fingerprints"]["benchmark"]
        )
    ambiguous = {name for (name, _), found in prints.items() if len(found) > 1}

    def of(run: Run) -> str:
        name = _split_name(run)
        return f"{name} {run.record['fingerprints']['benchmark'][:8]}" if name in ambiguous else name

    return of


def _split_name(run: Run) -> str:
    classes = json.dumps(sorted(run.record["class_names"]))
    named = run.options.get("benchmark.split") or "only"
    return f"split {named} of classes {hashlib.sha256(classes.encode()).hexdigest()[:8]}"


def _pair(run: Run) -> tuple[Any, ...]:
    """Return what two runs have in common that make a pair: seed and class order."""
    return (run.record["seed"], tuple(run.record["class_order"]))


def _is_control(run: Run, catalogue: Catalogue) -> bool:
    """Whether a component of a run says it is a control; one that is not installed says nothing."""
    controls = {
        (str(entry.component.kind), entry.component.name)
        for entry in catalogue.components()
        if getattr(entry.component, "control", False)
    }
    retrieval = run.config.get("retrieval") or {}
    return bool(
        {("baseline", run.config["baseline"]["name"]), ("retrieval", retrieval.get("name"))} & controls
    )


def _warnings(rows: Sequence[Row]) -> list[str]:
    """Return in what rows differ from what was published, each difference once."""
    of_values: dict[str, list[str]] = defaultdict(list)
    of_methods: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for text in row.differs:
            of_methods[text].append(row.label)
        for text in dict.fromkeys(text for value in row.paper.values() for text in value.differs):
            if text not in row.differs:
                of_values[text].append(row.label)
    return [
        f"{what} {text} ({'all rows' if len(labels) == len(rows) > 1 else '; '.join(labels)})"
        for what, found in (
            ("published values are for", of_values),
            ("differs from the published method:", of_methods),
        )
        for text, labels in found.items()
    ]


def _groups(
    runs: Sequence[Run], settings: Mapping[int, Settings], kinds_of: Callable[[Run], tuple[str, ...]]
) -> list[list[Run]]:
    """Return the runs of each row: seed, class order and the machine alone do not tell rows apart."""
    found: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        own = settings[id(run)]
        reached = None if run.state == "finished" else (run.done, run.tasks)
        found[json.dumps(own.values, sort_keys=True), own.began, kinds_of(run), reached].append(run)
    return list(found.values())
