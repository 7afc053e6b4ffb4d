"""Tables of runs: groups runs into tables and rows."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.config.protocols import OFFICIAL
from lw2g.errors import ConfigError, counted, nearest
from lw2g.files.protocol import digest_of, protocol_name
from lw2g.interfaces.component import BenchmarkComponent
from lw2g.registry.catalogue import Catalogue
from lw2g.reports import MIXABLE
from lw2g.reports.columns import Column
from lw2g.reports.names import (
    OF_THE_TABLE,
    OWN_DATA,
    Settings,
    labels_of,
    method_of,
    settings_of,
    weights_name,
)
from lw2g.reports.paper import Printed, differences_of, printed_for
from lw2g.reports.precision import as_asked, settled_notes
from lw2g.reports.runs import ReportedRun
from lw2g.reports.statistics import Difference, MeanStd, paired_difference, summary

__all__ = ["Row", "Table", "tables_of"]


@attrs.frozen(kw_only=True)
class Row:
    """Runs of one configuration.

    Attributes:
        label: Its name, unique in its table.
        runs: The runs, one per seed and class order.
        control: Whether it is not a usable continual learner, but a bound or one that knows the answer.
        marks: Its checkpoint, split or protocol, where the table mixes them.
        differs: The differences of its method from the published one.
        paper: The published values, by columns.
    """

    label: str
    runs: tuple[ReportedRun, ...]
    control: bool
    marks: tuple[str, ...]
    differs: tuple[str, ...]
    paper: Mapping[str, Printed]

    @property
    def finished(self) -> bool:
        """Whether its runs are finished; unfinished runs have their own rows."""
        return self.runs[0].state == "finished"

    def summary(self, column: Column) -> MeanStd:
        """Return mean, deviation and n of a column."""
        return summary([column.of(run.record) for run in self.runs])

    def difference(self, other: Row, column: Column) -> Difference | None:
        """Return the difference of a column from another row, paired over seeds and class orders."""
        ours, theirs = ({_pair(run): column.of(run.record) for run in row.runs} for row in (self, other))
        return paired_difference(ours, theirs)


@attrs.frozen(kw_only=True)
class Table:
    """Comparable rows on one benchmark.

    Attributes:
        benchmark: The name of its data: the user's title or folders, or the benchmark's usual name.
        title: That name and the size of tasks; unique in a report.
        conditions: What all runs share: backbone, protocol, split, and the fingerprints of the data.
        rows: The rows, in the order of their first runs.
        unfinished: Runs that belong to no row.
        notes: Remarks, one sentence each.
    """

    benchmark: str
    title: str
    conditions: tuple[str, ...]
    rows: tuple[Row, ...]
    unfinished: tuple[ReportedRun, ...]
    notes: tuple[str, ...]

    def row(self, wanted: str) -> Row:
        """Return the row with this label, or the only one whose label contains it.

        Raises:
            ConfigError: No row fits, or several do.
        """
        labels = [row.label for row in self.rows]
        matching = [row for row in self.rows if row.label == wanted] or [
            row for row in self.rows if wanted in row.label
        ]
        if len(matching) != 1:
            why = f"fits {len(matching)} rows" if matching else "is no row"
            raise ConfigError(
                f"--against: {wanted!r} {why} of {self.title}{nearest(wanted, labels)}",
                f"rows are: {'; '.join(labels)}",
            )
        return matching[0]


def tables_of(
    runs: Iterable[ReportedRun], catalogue: Catalogue, mix: Sequence[str] = (), *, so_far: bool = False
) -> list[Table]:
    """Return one table per benchmark, task size and data.

    Args:
        runs: Finished and unfinished runs.
        catalogue: Knows which components are controls.
        mix: What one table may mix, of :data:`lw2g.reports.MIXABLE`.
        so_far: Whether unfinished runs get their own rows, up to their last task.

    Raises:
        ConfigError: Runs of one table mix checkpoints or protocols, and ``mix`` does not allow it.
    """
    groups: dict[tuple[Any, ...], list[ReportedRun]] = defaultdict(list)
    homes: dict[str, str] = {}
    for run in runs:
        groups[(*map(run.options.get, OF_THE_TABLE), _data_name(run, homes))].append(run)
    tables = []
    for group in groups.values():
        tabled = [run for run in group if run.state == "finished" or (so_far and run.record)]
        data = _splits(tabled)
        parts: dict[tuple[str, str], list[ReportedRun]] = defaultdict(list)
        for run in tabled:
            own = _official(run) if "protocols" not in mix else ""
            parts["" if "splits" in mix else data(run), own].append(run)
        others = [run for run in group if run not in tabled]
        for part in parts.values() or [[]]:
            tables.append(_table(part, others, catalogue, mix))
            others = []
    return _told_apart(tables)


def _data_name(run: ReportedRun, homes: dict[str, str]) -> str:
    """Return what distinguishes the user's own data: the title, or the folders; empty for known benchmarks.

    Args:
        run: The run.
        homes: The folders in which the data of a fingerprint were first seen; updated.
    """
    options = run.options
    if "benchmark.file" in options:
        return _file_title(options)
    if options["benchmark.name"] != OWN_DATA:
        return ""
    folders = json.dumps([options.get("benchmark.root"), *(options.get("benchmark.more_roots") or ())])
    fingerprint = run.record.get("fingerprints", {}).get("benchmark", folders)
    return options.get("benchmark.title") or homes.setdefault(fingerprint, folders)


def _told_apart(tables: Sequence[Table]) -> list[Table]:
    """Append to equal titles the conditions that distinguish their tables."""
    titles = Counter(table.title for table in tables)
    shared = Counter((table.title, condition) for table in tables for condition in table.conditions)

    def longer(table: Table) -> str:
        own = [text for text in table.conditions if shared[table.title, text] < titles[table.title]]
        return ", ".join([table.title, *own])

    return [attrs.evolve(table, title=longer(table)) for table in tables]


def _table(
    tabled: Sequence[ReportedRun],
    others: Sequence[ReportedRun],
    catalogue: Catalogue,
    mix: Sequence[str],
) -> Table:
    ways = (lambda run: weights_name(run.record, catalogue), _splits(tabled), _protocols(tabled))
    kinds: dict[str, Callable[[ReportedRun], str]] = dict(zip(MIXABLE, ways, strict=True))
    mixed = [kind for kind, of in kinds.items() if len({of(run) for run in tabled}) > 1]
    for kind in mixed:
        if kind not in mix:
            _refuse(kind, kinds[kind], tabled)
    settings = as_asked(tabled, {id(run): settings_of(run, catalogue) for run in tabled})
    groups = _groups(tabled, settings, lambda run: tuple(of(run) for of in kinds.values()))
    first = [group[0] for group in groups]
    labels, shared = labels_of(first, [settings[id(run)] for run in first], catalogue)
    rows, notes = [], []
    notes += [f"{run.label}: {method_of(run, catalogue)}" for run in first if run.label in labels]
    if shared:
        notes.append(f"all rows: {', '.join(f'{key} {plain(value)}' for key, value in shared.items())}")
    for label, group in zip(labels, groups, strict=True):
        single = {_pair(run): run for run in reversed(group)}
        if len(single) < len(group):
            notes.append(
                f"{label}: not counted: {counted(len(group) - len(single), 'further run')} of the same seed"
            )
        notes += _over_orders(label, list(single.values()))
        differs = differences_of(group[0], catalogue)
        rows.append(
            Row(
                label=label,
                runs=tuple(reversed(single.values())),
                control=_is_control(group[0], catalogue),
                marks=tuple(kinds[kind](group[0]) for kind in mixed),
                differs=tuple(differs),
                paper=printed_for(group[0], differs, catalogue),
            )
        )
    notes += settled_notes([(row.label, row.runs) for row in rows])
    notes += _warnings(rows)
    notes += [f"mixes {kind}: rows with different ones are not comparable" for kind in mixed]
    run = (*tabled, *others)[0]
    return Table(
        benchmark=_benchmark(run, catalogue),
        title=", ".join([_benchmark(run, catalogue), *_task_size(run)]),
        conditions=tuple(_conditions(tabled, mixed, catalogue)),
        rows=tuple(rows),
        unfinished=tuple(others),
        notes=tuple(notes),
    )


def _over_orders(label: str, runs: Sequence[ReportedRun]) -> Iterator[str]:
    """Yield the least, mean and largest FAA over class orders, each the mean of its seeds."""
    orders: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for run in runs:
        if (value := run.record["metrics"]["faa"]) is not None:
            orders[tuple(run.record["class_order"])].append(value)
    if len(orders) > 1:
        means = [statistics.fmean(values) for values in orders.values()]
        shown = " / ".join(f"{value:.2f}" for value in (min(means), statistics.fmean(means), max(means)))
        yield f"{label}: FAA over {len(orders)} class orders {shown} (min / mean / max)"


def _refuse(kind: str, of: Callable[[ReportedRun], str], runs: Sequence[ReportedRun]) -> None:
    places = defaultdict(list)
    for run in runs:
        places[of(run)].append(str(run.path))
    listed = ", ".join(f"{value}: {len(paths)} such as {paths[0]}" for value, paths in places.items())
    raise ConfigError(f"the runs mix {kind} ({listed})", f"leave some out, or say --mix {kind}")


def _benchmark(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return the user's title of the data, the names of the folders, or the benchmark's usual name."""
    options = run.options
    name = str(options["benchmark.name"])
    if name == OWN_DATA:
        roots = [options.get("benchmark.root") or name, *(options.get("benchmark.more_roots") or ())]
        return options.get("benchmark.title") or " + ".join(Path(root).resolve().name for root in roots)
    if "benchmark.file" in options:
        return f"{name} of {_file_title(options)}"
    known = catalogue.get("benchmark", name) if name in catalogue.names("benchmark") else None
    return known.data.title if isinstance(known, BenchmarkComponent) and known.data else name


def _file_title(options: Mapping[str, Any]) -> str:
    """Return the user's title of stored features, or the name of their file."""
    return str(options.get("benchmark.title") or Path(str(options["benchmark.file"])).stem)


def _task_size(run: ReportedRun) -> Iterator[str]:
    if run.record:
        yield counted(len(run.record["class_names"]), "class")
    if (stream := run.options.get("benchmark.stream", "classes")) != "classes":
        yield f"{counted(run.tasks or 0, 'task')} of {stream}"
        return
    increment = run.options.get("benchmark.increment")
    if increment is not None:
        yield f"{increment}{' a task' if run.record else ' classes a task'}"


def _conditions(runs: Sequence[ReportedRun], mixed: Sequence[str], catalogue: Catalogue) -> Iterator[str]:
    """Yield what the runs of a table share: backbone, protocol, split, and the fingerprints of the data."""
    if not runs:
        return
    run = runs[0]
    if "checkpoints" not in mixed:
        yield f"backbone {weights_name(run.record, catalogue)}"
    if "protocols" not in mixed:
        yield f"protocol {_protocols(runs)(run)}"
    if "splits" not in mixed and run.options.get("benchmark.split"):
        yield f"split {run.options['benchmark.split']}"
    prints = list(dict.fromkeys(run.record["fingerprints"]["benchmark"][:8] for run in runs))
    more = f" and {len(prints) - 3} more" if len(prints) > 3 else ""
    yield f"data {', '.join(prints[:3])}{more}{' (a class order each)' if prints[1:] else ''}"


def _official(run: ReportedRun) -> str:
    """Return an official protocol, which is a method's own and ranks with no other; empty if it is none.

    Records from before protocols had hashes stay together.
    """
    official = run.record["protocol"] == OFFICIAL and run.record.get("protocol_hash")
    return protocol_name(run.record) if official else ""


def _protocols(runs: Sequence[ReportedRun]) -> Callable[[ReportedRun], str]:
    """Return a function that names a run's protocol, with a hash if runs with one name differ in its facts.

    Checkpoints, splits and class orders are compared elsewhere; here it is transforms and definitions.
    """

    def facts(run: ReportedRun) -> str:
        noted = run.record.get("protocol_facts") or {}
        return digest_of([noted.get(key) for key in ("test_transform", "train_transform", "metrics")])[:8]

    def named(run: ReportedRun) -> str:
        return _official(run) or str(run.record["protocol"])

    kinds = defaultdict(set)
    for run in runs:
        if run.record.get("protocol_hash"):
            kinds[named(run), run.record["backbone"]["sha256"]].add(facts(run))

    def of(run: ReportedRun) -> str:
        several = len(kinds[named(run), run.record["backbone"]["sha256"]]) > 1
        return f"{named(run)} {facts(run)}" if several else named(run)

    return of


def _splits(runs: Sequence[ReportedRun]) -> Callable[[ReportedRun], str]:
    """Return a function that names a run's split, with a hash if runs with one name have different images."""
    prints = defaultdict(set)
    for run in runs:
        prints[_split_name(run), tuple(run.record["class_order"])].add(
            run.record["fingerprints"]["benchmark"]
        )
    ambiguous = {name for (name, _), fingerprints in prints.items() if len(fingerprints) > 1}

    def of(run: ReportedRun) -> str:
        name = _split_name(run)
        return f"{name} {run.record['fingerprints']['benchmark'][:8]}" if name in ambiguous else name

    return of


def _split_name(run: ReportedRun) -> str:
    classes = json.dumps(sorted(run.record["class_names"]))
    named = run.options.get("benchmark.split") or "only"
    return f"split {named} of classes {hashlib.sha256(classes.encode()).hexdigest()[:8]}"


def _pair(run: ReportedRun) -> tuple[Any, ...]:
    """Return the key that pairs runs: seed and class order."""
    return (run.record["seed"], tuple(run.record["class_order"]))


def _is_control(run: ReportedRun, catalogue: Catalogue) -> bool:
    """Whether an installed component of a run is a control."""
    controls = {
        (str(entry.component.kind), entry.component.name)
        for entry in catalogue.components()
        if entry.component.control
    }
    retrieval = run.config.get("retrieval") or {}
    return bool(
        {("baseline", run.config["baseline"]["name"]), ("retrieval", retrieval.get("name"))} & controls
    )


def _warnings(rows: Sequence[Row]) -> list[str]:
    """Return the differences of rows from what was published, each difference once."""
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
        for what, labels_by_text in (
            ("published values are for", of_values),
            ("differs from the published method:", of_methods),
        )
        for text, labels in labels_by_text.items()
    ]


def _groups(
    runs: Sequence[ReportedRun],
    settings: Mapping[int, Settings],
    kinds_of: Callable[[ReportedRun], tuple[str, ...]],
) -> list[list[ReportedRun]]:
    """Return the runs of each row; seed, class order and machine do not separate rows."""
    groups: dict[Any, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        own = settings[id(run)]
        reached = None if run.state == "finished" else (run.done, run.tasks)
        values = json.dumps(own.values, sort_keys=True)
        groups[values, own.began, kinds_of(run), reached, run.given].append(run)
    return list(groups.values())
