"""Tables of runs: groups runs into tables and rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.config.protocols import AUTO
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.results.bootstrap import holm, over_orders_and_images
from lw2g.results.columns import COLUMNS, Column
from lw2g.results.conditions import (
    benchmark_title,
    comparable,
    conditions_of,
    data_names,
    drawn_in_rows,
    mixes_in_words,
    names_of_mixable,
    refuse_mixed,
    stream_options,
    task_size,
    told_apart,
    why_apart,
)
from lw2g.results.found_runs import ReportedRun
from lw2g.results.paper import Printed, differences_of, of_published, printed_for
from lw2g.results.right_answers import RightAnswers, may_answer_alike, right_answers_of, shared_answers
from lw2g.results.row_choice import fitting, no_such_row
from lw2g.results.row_groups import runs_of_rows
from lw2g.results.row_means import Interval, interval_over, over_draws
from lw2g.results.row_names import (
    TABLE_OPTIONS,
    giver_marks,
    labels_of,
    method_of,
    settings_of,
)
from lw2g.results.row_notes import (
    changed_records,
    different_code,
    different_constraints,
    different_orders,
    different_seeds,
    domains_of_rows,
    further_runs,
    heads_taken,
    leaked,
    names_of_grid,
    over_orders,
    over_tasks,
)
from lw2g.results.row_options import OptionColumns, option_columns
from lw2g.results.run_draws import Draw, draw_of, draws_in_words, number_of_draws, unit_of
from lw2g.results.settled_precision import as_asked, settled_notes
from lw2g.results.summaries import LEAST_TESTED, Difference, MeanStd, p_of_t_test, paired_difference

__all__ = ["ALL_ROWS", "Row", "Table", "require_row", "tables_of"]

ALL_ROWS = "all rows: "
"""How a note begins that tells what all rows share."""
_DIFFERS = "differs from what was published: "


@attrs.frozen(kw_only=True)
class Row:
    """Runs of one configuration.

    Attributes:
        label: Its name, unique in its table.
        method: What it is: components and options, which a name that a grid gave does not tell.
        runs: The runs, one per seed and class order.
        control: Whether it is not a usable continual learner, but a bound or one that knows the answer.
        trains: Whether it trains more than a head in closed form on frozen features.
        marks: Its checkpoint, split or protocol, where the table mixes them.
        differs: The differences of its method from the published one.
        paper: The published values, by columns.
    """

    label: str
    method: str
    runs: tuple[ReportedRun, ...]
    control: bool
    trains: bool
    marks: tuple[str, ...]
    differs: tuple[str, ...]
    paper: Mapping[str, Printed]

    @property
    def finished(self) -> bool:
        """Whether its runs are finished; unfinished runs have their own rows."""
        return self.runs[0].state == "finished"

    @property
    def draws(self) -> set[Draw]:
        """The seed and class order of each run: rows are compared over those that both have."""
        return set(map(draw_of, self.runs))

    @property
    def number(self) -> str:
        """How many runs there are, of several seeds in several class orders how many of each."""
        return number_of_draws(self.draws)

    def summary(self, column: Column) -> MeanStd:
        """Return mean, deviation and n of a column, over class orders or the seeds of one."""
        return self.over([column.of(run.record) for run in self.runs])

    def over(self, values: Sequence[float | None]) -> MeanStd:
        """Return mean, deviation and n of a value of each run, over class orders or the seeds of one."""
        return over_draws([draw_of(run) for run in self.runs], values)

    @cached_property
    def interval(self) -> Interval | None:
        """The interval of its final accuracy; None where the predictions of some run are not at hand."""
        found = self._right_answers
        return interval_over(found, self.answers) if len(found) == len(self.runs) else None

    def difference(self, other: Row, column: Column) -> Difference | None:
        """Return the difference of a column from another row, paired over seeds and class orders.

        The interval is over class orders, or over the seeds of one; that of FAA over test images, too, where
        the predictions of all pairs are at hand, with a p value from five orders or seeds on. None where one
        row is finished and the other is not: after fewer tasks accuracy is another quantity.
        """
        if self.finished != other.finished:
            return None
        pairs = self.draws & other.draws
        unit = unit_of(pairs)
        found = None
        # a difference over some of the pairs would be another one than that of the other columns
        if column.name == "faa" and pairs == self._right_answers.keys() & other._right_answers.keys():
            found = over_orders_and_images(self._right_answers, other._right_answers, unit)
            if found is not None:
                found = attrs.evolve(found, p=self._p(other, column, found))
        return found or paired_difference(self._paired(column), other._paired(column), unit)

    def _p(self, other: Row, column: Column, drawn: Difference) -> float | None:
        """Return the p value of a difference of FAA: the larger of the draws' and of another test's.

        Draws of few have too thin tails. A t test is over orders, McNemar's over images.
        """
        if drawn.p is None or drawn.n < LEAST_TESTED:
            return None
        if self.answers and other.answers:  # runs that answer alike are copies of one: images alone vary
            return max(drawn.p, self.answers.p_against(other.answers))
        unit = unit_of(self.draws & other.draws)
        return max(drawn.p, p_of_t_test(self._paired(column), other._paired(column), unit))

    @cached_property
    def answers(self) -> RightAnswers | None:
        """The answers that all its runs share; None where runs differ or lack predictions."""
        if not may_answer_alike(self.runs):
            return None
        found = self._right_answers
        return shared_answers(list(found.values())) if len(found) == len(self.runs) else None

    @property
    def tested(self) -> int | None:
        """The number of test images of a run, the largest; None where no predictions are at hand."""
        return max((len(found.images) for found in self._right_answers.values()), default=None)

    @property
    def alike(self) -> bool:
        """Whether it has several runs, all of which give the same answers: it sees neither order nor seed."""
        return len(self.runs) > 1 and self.answers is not None

    @cached_property
    def _right_answers(self) -> Mapping[Draw, RightAnswers]:
        """The answers of its runs by what pairs runs of two rows, where their predictions are at hand."""
        found = {}
        for run in self.runs:
            answers = right_answers_of(run)
            if answers is not None:
                found[draw_of(run)] = answers
        return found

    def _paired(self, column: Column) -> dict[Draw, float | None]:
        """Return the values of a column by what pairs runs of two rows."""
        return {draw_of(run): column.of(run.record) for run in self.runs}


@attrs.frozen(kw_only=True)
class Table:
    """Comparable rows on one benchmark.

    Attributes:
        benchmark: The name of its data: the user's title, or the benchmark's usual name, with own folders.
        title: That name and the size of tasks; unique in a report.
        conditions: What all runs share: backbone, protocol, split, and the fingerprints of the data.
        rows: The rows, in the order of their first runs.
        options: The options in which the rows differ.
        shared: The options that all rows changed alike, by dotted keys.
        unfinished: Runs that belong to no row.
        unlike: What flatters or does not compare, one sentence each: test images that were trained on, code
            of plugins, changed records, and in what rows differ beside their names.
        notes: Further remarks, one sentence each; those that begin with :data:`ALL_ROWS` tell what all rows
            share.
        alike: Those of the notes that say the same of every row.
        drawn_images: Which images each class order draws anew; empty where all orders have the same.
        apart: Of the first of several tables of equal data and tasks, why they are not one; else empty.
    """

    benchmark: str
    title: str
    conditions: tuple[str, ...]
    rows: tuple[Row, ...]
    options: OptionColumns
    shared: Mapping[str, str]
    unfinished: tuple[ReportedRun, ...]
    unlike: tuple[str, ...]
    notes: tuple[str, ...]
    alike: frozenset[str] = frozenset()
    drawn_images: str = ""
    apart: str = ""

    @property
    def draws(self) -> str:
        """The seeds and the number of class orders of all rows, in words; empty without a row."""
        drawn = {draw for row in self.rows for draw in row.draws}
        return draws_in_words(drawn) if drawn else ""

    @property
    def tested(self) -> str:
        """How many test images final accuracies are of, in words; empty where that is not known."""
        numbers = {row.interval.images for row in self.rows if row.finished and row.interval is not None}
        if not numbers:
            return ""
        least, most = min(numbers), max(numbers)
        return f"{most:,} test images" if least == most else f"{least:,} to {most:,} test images"

    @property
    def givers(self) -> list[str]:
        """What the marks in the names of stored rows stand for."""
        marks = giver_marks([row.runs[0] for row in self.rows])
        return [f"{mark}: {giver}" for giver, mark in marks.items()]

    def row(self, wanted: str) -> Row:
        """Return the row with this label, of this method, or the only one with this part in either.

        Raises:
            ConfigError: No row fits, or several do.
        """
        found = fitting(self.rows, wanted)
        if len(found) != 1:
            raise no_such_row(self.rows, wanted, [self.title])
        return found[0]

    def reference(self, wanted: str | None) -> Row | None:
        """Return the row that differences refer to; None where none is wanted, or the table has no such pair.

        Raises:
            ConfigError: Several rows fit.
        """
        if wanted is None or len(self.rows) < 2 or not fitting(self.rows, wanted):
            return None
        return self.row(wanted)

    def floor(self, among: Sequence[Row] | None = None) -> Row | None:
        """Return the finished row of best final accuracy among those that train nothing; None without one.

        What trains is worth its time where it is above that row. ``among``: the rows to choose from.
        """
        best = None
        most = -math.inf
        for row in self.rows if among is None else among:
            ends = row.summary(COLUMNS["faa"]).mean
            if row.finished and not row.trains and ends is not None and ends > most:
                best, most = row, ends
        return best

    def differences(self, reference: Row, column: Column) -> Mapping[str, Difference | None]:
        """Return the differences of the other rows from one, by label; p values are corrected (Holm)."""
        others = [row for row in self.rows if row is not reference]
        corrected = holm([row.difference(reference, column) for row in others])
        return {row.label: gap for row, gap in zip(others, corrected, strict=True)}


def require_row(tables: Sequence[Table], wanted: str, catalogue: Catalogue) -> None:
    """Refuse the label of a row that no table has: runs below one folder may be of several benchmarks.

    Raises:
        ConfigError: No row fits, or none of its runs is finished.
    """
    filled = [table for table in tables if table.rows]
    if not filled or any(fitting(table.rows, wanted) for table in filled):
        return
    for run in (run for table in tables for run in table.unfinished):
        settings = settings_of(run, catalogue, run.record.get("protocol", AUTO))
        if wanted in run.label or wanted in method_of(run, settings, (), catalogue):
            raise ConfigError(f"--against: no run of {wanted!r} is finished", f"{run.path}, {run.standing}")
    rows = [row for table in filled for row in table.rows]
    raise no_such_row(rows, wanted, [table.title for table in filled])


def tables_of(
    runs: Sequence[ReportedRun], catalogue: Catalogue, mix: Sequence[str] = (), *, so_far: bool = False
) -> list[Table]:
    """Return one table per benchmark, task size and data.

    Args:
        runs: Finished and unfinished runs.
        catalogue: Knows which components are controls.
        mix: What one table may mix, of :data:`lw2g.results.MIXABLE`.
        so_far: Whether unfinished runs get their own rows, up to their last task.

    Raises:
        ConfigError: Runs of one table mix checkpoints or protocols, and ``mix`` does not allow it.
    """
    groups: dict[tuple[Any, ...], list[ReportedRun]] = defaultdict(list)
    data_name = data_names(runs, catalogue)
    for run in runs:
        shared = map(run.options.get, TABLE_OPTIONS)
        groups[(*shared, data_name(run))].append(run)
    tables = []
    for group in groups.values():
        tabled = []
        others = []
        for run in group:
            if run.state == "finished" or (so_far and run.record):
                tabled.append(run)
            else:
                others.append(run)
        # unfinished runs are named once, in the first table of their group
        first, *further = parts = comparable(tabled, mix, catalogue) or [[]]
        tables.append(attrs.evolve(_table(first, others, catalogue, mix), apart=why_apart(parts, catalogue)))
        for part in further:
            tables.append(_table(part, [], catalogue, mix))
    return _with_unique_titles(tables)


def _with_unique_titles(tables: Sequence[Table]) -> list[Table]:
    """Append to equal titles what distinguishes their tables: options of the stream, else conditions."""
    titles = told_apart([table.title for table in tables], [stream_options(table.shared) for table in tables])
    titles = told_apart(titles, [table.conditions for table in tables])
    return [attrs.evolve(table, title=title) for table, title in zip(tables, titles, strict=True)]


def _table(
    tabled: Sequence[ReportedRun],
    others: Sequence[ReportedRun],
    catalogue: Catalogue,
    mix: Sequence[str],
) -> Table:
    """Return the table of the runs of one benchmark.

    Args:
        tabled: The runs that get rows.
        others: Unfinished runs, which are listed alone.
        catalogue: The installed components.
        mix: The kinds that the table may mix.

    Raises:
        ConfigError: The runs mix something else.
    """
    names = names_of_mixable(tabled, catalogue)
    mixed = []
    for kind, name_of in names.items():
        if len(set(map(name_of, tabled))) > 1:
            mixed.append(kind)
            if kind not in mix:
                refuse_mixed(kind, name_of, tabled)

    settings = as_asked(tabled, {id(run): settings_of(run, catalogue) for run in tabled})
    groups = runs_of_rows(tabled, settings, names)
    firsts = [group[0] for group in groups]
    labels, shared = labels_of(firsts, [settings[id(run)] for run in firsts], catalogue)
    methods = [method_of(run, settings[id(run)], shared, catalogue) for run in firsts]
    notes = list(names_of_grid(firsts, labels, methods))
    if shared:
        options = [f"{key} {plain(value)}" for key, value in shared.items()]
        notes.append(f"{ALL_ROWS}{', '.join(options)}")

    rows = []
    for label, method, group in zip(labels, methods, groups, strict=True):
        row = _row(label, method, group, [names[kind] for kind in mixed], catalogue)
        rows.append(row)
        notes += further_runs(label, group, len(row.runs), catalogue)

    labelled = [(row.label, row.runs) for row in rows]
    heads, warnings, settled = (list(heads_taken(labelled)), _warnings(rows), list(settled_notes(labelled)))
    orders = over_orders([(row.label, row.runs) for row in rows if not row.alike])
    notes += [*domains_of_rows(labelled), *heads, *warnings, *settled, *orders, *over_tasks(labelled)]
    run = (*tabled, *others)[0]  # what follows is the same for all of them
    return Table(
        benchmark=benchmark_title(run, catalogue),
        title=", ".join([benchmark_title(run, catalogue), *task_size(run)]),
        conditions=tuple(conditions_of(tabled, mixed, catalogue)),
        rows=tuple(rows),
        options=option_columns(firsts, [settings[id(run)] for run in firsts], shared, catalogue),
        shared={key: plain(value) for key, value in shared.items()},
        unfinished=tuple(others),
        unlike=(
            *leaked(labelled),
            *different_code(labelled),
            *changed_records(labelled),
            *mixes_in_words(tabled, mixed, catalogue),
            *different_orders(labelled, {row.label: row.tested for row in rows}),
            *different_constraints(labelled, catalogue),
            *different_seeds(labelled),
        ),
        notes=tuple(notes),
        alike=frozenset(_alike(rows, heads, warnings, settled)),
        drawn_images=drawn_in_rows(firsts, catalogue),
    )


def _alike(
    rows: Sequence[Row], heads: Sequence[str], warnings: Sequence[str], settled: Sequence[str]
) -> Iterator[str]:
    """Yield the notes that say the same of every row."""
    if len(heads) == len(rows):
        pairs = zip(heads, rows, strict=True)
        if len({note.removeprefix(f"head taken by {row.label}: ") for note, row in pairs}) == 1:
            yield from heads
    if len({run.precision for row in rows for run in row.runs}) == 1:
        yield from settled
    for text in rows[0].differs if rows else ():
        if all(text in row.differs for row in rows):
            yield from (note for note in warnings if note.startswith(f"{_DIFFERS}{text} ("))


def _row(
    label: str,
    method: str,
    group: Sequence[ReportedRun],
    mixed: Sequence[Callable[[ReportedRun], str]],
    catalogue: Catalogue,
) -> Row:
    """Return the row of runs of one configuration; ``mixed`` names what its table mixes."""
    # of several runs of one seed and class order the first counts: it is written last
    single = {draw_of(run): run for run in reversed(group)}
    first = group[0]
    differs = differences_of(first, catalogue)
    answering = _answering(first.config["baseline"], catalogue)
    return Row(
        label=label,
        method=method,
        runs=tuple(reversed(single.values())),
        control=_is_control(first, catalogue),
        trains=answering is None or answering.component.kind != "head",
        marks=tuple(name_of(first) for name_of in mixed),
        differs=tuple(of_published(first, differs, catalogue)),
        paper=printed_for(first, differs, catalogue),
    )


def _is_control(run: ReportedRun, catalogue: Catalogue) -> bool:
    """Whether an installed component that answers in a run is a control."""
    retrieval = (run.config.get("retrieval") or {}).get("name")
    answering = [_answering(run.config["baseline"], catalogue)]
    if retrieval is not None:
        answering.append(catalogue.find("retrieval", retrieval))
    return any(entry is not None and entry.component.control for entry in answering)


def _answering(baseline: Mapping[str, Any], catalogue: Catalogue) -> Registered | None:
    """Return the baseline of a run, or its head if it is nothing else; None if that is not installed."""
    entry = catalogue.find("baseline", baseline["name"])
    if entry is None:
        return None
    for option in attrs.fields(entry.component.config):
        # without a head of its own it trains nothing, and a run is as good as the head that it was given
        if option.metadata.get("names") == "head" and not option.metadata["own"]:
            return catalogue.find("head", baseline.get(option.name, option.default))
    return entry


def _warnings(rows: Sequence[Row]) -> list[str]:
    """Return the differences of rows from what was published, each difference once, those of values first."""
    of_values: dict[str, list[str]] = defaultdict(list)
    of_methods: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for text in row.differs:
            of_methods[text].append(row.label)
        listed = set(row.differs)
        for value in row.paper.values():
            for text in value.differs:
                if text not in listed:  # every metric of a source repeats it
                    listed.add(text)
                    of_values[text].append(row.label)

    def places(labels: Sequence[str]) -> str:
        if len(labels) == len(rows) > 1:
            return "all rows"
        return f"{'row' if len(labels) == 1 else 'rows'} {'; '.join(labels)}"

    warnings = [f"published values are for {text} ({places(labels)})" for text, labels in of_values.items()]
    for text, labels in of_methods.items():
        warnings.append(f"{_DIFFERS}{text} ({places(labels)})")
    return warnings
