"""The cells of a report's tables, and the remarks below them: what every format prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from lw2g.errors import counted
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.results.ahead import ahead_in_words, ahead_of_all
from lw2g.results.columns import COLUMNS, DEFAULT_COLUMNS, Column
from lw2g.results.difference_words import SAME, few_of_rows, on_differences, over_of_rows, p_in_words
from lw2g.results.paper import Printed
from lw2g.results.row_means import as_number, printed
from lw2g.results.row_notes import NOT_COUNTED
from lw2g.results.run_draws import EITHER, ORDERS, SEEDS, number_of_draws, spread_in_words, varied_units
from lw2g.results.summaries import Difference
from lw2g.results.table import Row, Table

__all__ = [
    "ALIKE",
    "INTERVAL",
    "Cell",
    "Cells",
    "cell_blocks",
    "counted_in",
    "definitions_of",
    "differences_in_words",
    "few_remarks_on",
    "heading_of",
    "mean_cells",
    "omits_equal",
    "remarks_on",
    "shown_columns",
    "spread",
    "valued_columns",
]


@attrs.frozen(kw_only=True)
class Cell:
    """A number of a table, as it is printed.

    Attributes:
        value: The number; ``-`` if there is none.
        std: Its sample standard deviation; empty for a single run.
        note: What follows: marks of a published value, or the interval of a difference.
        best: Whether it is the final accuracy of a row that is ahead of each other one beyond chance.
    """

    value: str
    std: str = ""
    note: str = ""
    best: bool = False

    def __str__(self) -> str:
        text = self.value
        if self.std:
            text += f" ± {self.std}"
        return text + self.note


ALIKE = ", alike"
"""What stands behind the number of a row's runs where all give the same answers."""
INTERVAL = "95 % interval"
"""The column with the interval of final accuracy."""
_CONTROL = "control: a bound, a baseline that learns almost nothing, or one that knows the answer"
Cells = list[list["Cell | str"]]
_ALWAYS = ("faa", "ffm", "pra", "chance_pra", "total_s")
"""Default columns that stand in every table with a value for them."""
_OF_SETS = ("pra", "chance_pra", "ssp", "ari")
"""Default columns about sets, which compare nothing where no row has several."""
_FEW = 5
"""Remarks below a printed table at most."""
_NAMED = 3
"""Unfinished runs that are named below it at most."""
_NO_SPREAD = "left out where it rounds to 0"
_ABBREVIATIONS = {"faa", "caa", "ffm", "bwt", "pra", "ssp", "ari"}


def shown_columns(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return the columns in which some row has a value, or that the user named.

    Of the default columns those are left out that say the same of every row: they compare nothing. The number
    of sets stays where tasks share one: how few are enough is what growth decides.
    """
    leaves_out = omits_equal(table, columns)
    kept = {*_ALWAYS, "ssp"} if any(map(_shares_sets, table.rows)) else {*_ALWAYS}
    shown = []
    for column in valued_columns(table, columns):
        if leaves_out and column.name not in kept and _is_equal(table, column):
            continue
        shown.append(column)
    return shown


def _shares_sets(row: Row) -> bool:
    """Whether some run of a row has fewer sets than tasks; a method without sets has no number of them."""
    sets = [(run.metric("ssp"), run.done) for run in row.runs]
    return any(number is not None and number < tasks for number, tasks in sets)


def valued_columns(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return the columns with a value that compares something, or that the user named."""
    shown = []
    for column in columns:
        means = _means(table, column)
        if column.asked or (means and not _says_nothing(table, column, means, columns)):
            shown.append(column)
    return shown


def _says_nothing(table: Table, column: Column, means: set[float], columns: Sequence[Column]) -> bool:
    """Whether a column has values, ``means``, that follow from what the rows are."""
    if column.name in _OF_SETS and _are_default(columns):  # there is one set to find, and it is found
        return not any(_has_sets(row) for row in table.rows)
    if column.name == "task_accuracy":  # each task has all classes: no answer is of another task
        return all(run.options.get("benchmark.stream") == "domains" for row in table.rows for run in row.runs)
    # a time that nobody took
    return column.path[0] == "seconds" and means == {0.0} and _are_default(columns)


def _has_sets(row: Row) -> bool:
    """Whether some run of a row has several sets, or does not tell."""
    for run in row.runs:
        number = run.metric("ssp")
        if number is None and run.metric("pra") is not None:
            return True
        if number is not None and number > 1:
            return True
    return False


def omits_equal(table: Table, columns: Sequence[Column]) -> bool:
    """Whether columns that say the same of every row are left out.

    Who names columns wants them, and a single row is compared with none.
    """
    return _are_default(columns) and len(table.rows) > 1


def _are_default(columns: Sequence[Column]) -> bool:
    """Whether nobody has named the columns."""
    return tuple(column.name for column in columns[: len(DEFAULT_COLUMNS)]) == DEFAULT_COLUMNS


def _is_equal(table: Table, column: Column) -> bool:
    """Whether all rows have a value in a column, and the same one: where some have none, rows differ."""
    has_all = all(row.summary(column).mean is not None for row in table.rows)
    return has_all and len(_means(table, column)) == 1


def _means(table: Table, column: Column) -> set[float]:
    """Return the different means in a column, as they are printed."""
    means = set()
    for row in table.rows:
        mean = row.summary(column).mean
        if mean is not None:
            means.add(round(mean, column.digits))
    return means


def mean_cells(table: Table, columns: Sequence[Column]) -> Cells:
    """Return the cells of a table of means: the head, then a line per row."""
    is_mixed = any(row.marks for row in table.rows)
    published = set[str]()
    for row in table.rows:
        published |= row.paper.keys()
    with_interval = {"faa"} if any(row.interval is not None for row in table.rows) else set()
    ahead = ahead_of_all(table)
    of_either = len(_units(table)) > 1

    head: list[Cell | str] = ["row"]
    if is_mixed:
        head.append("mixed")
    head.append("n")
    for column in columns:
        head.append(heading_of(column))
        if column.name in with_interval:
            head.append(INTERVAL)
        if column.name in published:
            head += [f"paper {heading_of(column)}", "minus paper"]

    cells = [head]
    for row in table.rows:
        line: list[Cell | str] = [_row_label(row)]
        if is_mixed:
            line.append(" ".join(row.marks))
        number = number_of_draws(row.draws, named=of_either)
        line.append(f"{number}{ALIKE}" if row.alike else number)
        for column in columns:
            line.append(_mean(row, column, best=column.name == "faa" and row is ahead))
            if column.name in with_interval:
                line.append("-" if row.interval is None else str(row.interval))
            if column.name in published:
                line += _paper(row, column)
        cells.append(line)
    return cells


def cell_blocks(table: Table, columns: Sequence[Column], against: str | None) -> Iterator[Cells]:
    """Yield the cells of a table: means, then differences if a row is named."""
    if not table.rows:
        return
    yield mean_cells(table, columns)
    reference = table.reference(against)
    if reference is not None:
        yield _differences(table, columns, reference)


def _differences(table: Table, columns: Sequence[Column], reference: Row) -> Cells:
    """Return the lines of mean differences of all rows from the reference, over common seeds.

    Times have none: runs shared their machine with others. A column without a difference stands only where
    the user named it.
    """
    gaps = []
    compared = []
    for column in columns:
        if column.is_time:
            continue
        of_column = table.differences(reference, column)
        if column.asked or any(gap is not None for gap in of_column.values()):
            compared.append(column)
            gaps.append(of_column)
    lines: Cells = [[f"minus {reference.label}", "pairs", *map(heading_of, compared)]]
    others = [row for row in table.rows if row is not reference]
    of_either = len(varied_units(row.draws & reference.draws for row in others)) > 1
    for row in others:
        of_row = [by_label[row.label] for by_label in gaps]
        pairs = number_of_draws(row.draws & reference.draws, named=of_either) if any(of_row) else "0"
        cells = [_difference(gap, column) for gap, column in zip(of_row, compared, strict=True)]
        lines.append([_row_label(row), pairs, *cells])
    return lines


def _row_label(row: Row) -> str:
    if row.control:
        return f"{row.label} (control)"
    return row.label


def heading_of(column: Column) -> str:
    """Return the title of a column, with abbreviations in capitals as in papers."""
    words = []
    for word in filter(None, column.name.split("_")):
        words.append(word.upper() if word in _ABBREVIATIONS else word)
    return " ".join(words)


def _mean(row: Row, column: Column, *, best: bool) -> Cell:
    """Return the cell of a row's mean and its standard deviation."""
    value, std = printed(row.summary(column), column.digits)
    return Cell(value=value, std=std, best=best)


def _paper(row: Row, column: Column) -> tuple[Cell, Cell]:
    """Return the published value, and ours minus it."""
    published = row.paper.get(column.name)
    if published is None:
        return Cell(value="-"), Cell(value="-")
    marks = ""
    if published.differs:
        marks += " *"
    if published.second_hand:
        marks += " †"
    std = ""
    if published.std is not None:
        std = f"{published.std:g}"
    gap = "-"
    ours = row.summary(column).mean
    if ours is not None:
        gap = as_number(ours - published.value, column.digits, "+")
    return Cell(value=f"{published.value:g}", std=std, note=marks), Cell(value=gap)


def _difference(gap: Difference | None, column: Column) -> Cell:
    """Return the cell of a mean difference with its interval."""
    if gap is None:
        return Cell(value="-")
    if gap.is_none:
        return Cell(value="the same")
    note = ""
    if gap.low is not None and gap.high is not None:
        note = f" [{as_number(gap.low, column.digits, '+')}, {as_number(gap.high, column.digits, '+')}]"
    if gap.p is not None:
        note += f", {p_in_words(gap.p)}"
    return Cell(value=as_number(gap.mean, column.digits, "+"), note=note)


def remarks_on(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return explanations of the numbers, unfinished runs, and notes."""
    remarks = [*table.unlike, *_not_computed(table, columns)]
    remarks += differences_in_words(table, columns, against)
    remarks += [*_citations(table), *_marks(table, columns, against)]
    return [*remarks, *table.givers, *_unfinished(table), *table.notes]


def definitions_of(columns: Sequence[Column], *, in_short: bool = False) -> list[str]:
    """Return what columns are, one definition each, and which others tell the same over samples."""
    definitions = []
    for column in columns:
        definitions.append(f"{heading_of(column)}: {column.in_short if in_short else column.meaning}")
    # not in the definitions themselves, by whose hashes protocols tell whether results compare
    over_tasks = [column for column in columns if column.name in ("faa", "caa")]
    if over_tasks:
        names = ", ".join(f"{column.name}_samples" for column in over_tasks)
        definitions.append(f"over samples, as in PILOT: {names}")
    return definitions


def differences_in_words(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return what differences and their intervals are, a remark each; nothing where there are none."""
    return [f"differences: {part}" for part in on_differences(table, columns, against)]


def few_remarks_on(
    table: Table, columns: Sequence[Column], against: str | None, others: str, *, listed: bool = True
) -> list[str]:
    """Return the most important remarks, five at most; where there are more, the last one says how many.

    What does not compare comes first; what marks mean, and which runs do not count, is never left out.

    Args:
        table: The table.
        columns: Its columns.
        against: Label of the row that differences refer to, or a unique part of it.
        others: Where all remarks are.
        listed: Whether marks have an indented line each, after what n counts; else they stand in one line.
    """
    remarks = [*_by_kind(table.unlike, others), *_not_computed(table, columns)]
    if parts := on_differences(table, columns, against):
        remarks.append(f"differences: {'; '.join(parts)}")
    if table.givers:
        remarks.append("; ".join(table.givers))
    # what marks mean is one remark, however many there are
    legend = _marks(table, columns, against)
    if listed:
        legend = [*counted_in(table), *legend]
    meanings = "\n  - ".join(["marks:", *legend]) if listed else "; ".join(legend)
    if legend:
        remarks.append(meanings)
    # what is so in every row compares none of them
    comparing = [note for note in table.notes if note not in table.alike]
    dropped = list(_by_kind((note for note in comparing if note.startswith(NOT_COUNTED)), others))
    comparing = [note for note in comparing if not note.startswith(NOT_COUNTED)]
    remarks += [*dropped, *_few_unfinished(table, others)]
    for notes in (_citations(table), comparing):
        remarks += _by_kind(notes, others)
    if table.alike:
        remarks.append(f"{counted(len(table.alike), 'remark')} on all rows ({others})")
    if len(remarks) > _FEW:
        shown = remarks[: _FEW - 1]
        further = remarks[_FEW - 1 :]
        # a mark that nobody explains says nothing, and who repeated a run looks for it in the means
        repeated = [remark for remark in dropped if remark in further]
        legends = [meanings] if meanings in further else []
        rest = len(further) - len(repeated) - len(legends)
        counts = f"{counted(rest, 'more remark') if legends else f'{rest} more'} ({others})" if rest else ""
        remarks = [*shown, "; ".join(filter(None, [*repeated, counts, *legends]))]
    return remarks


def _not_computed(table: Table, columns: Sequence[Column]) -> Iterator[str]:
    """Yield which metrics of plugins some runs of a table have not computed."""
    metrics = [run.record["metrics"] for row in table.rows for run in row.runs]
    for column in columns:
        kind, name = column.path[0], column.path[-1]
        if kind == "metrics" and name not in CORE_METRICS and any(name not in of_run for of_run in metrics):
            yield f"{heading_of(column)}: runs begun before it was installed do not have it"


def _has_spread(table: Table, columns: Sequence[Column]) -> bool:
    """Whether some cell of the means has a deviation."""
    return any(_mean(row, column, best=False).std for row in table.rows for column in columns)


def spread(table: Table) -> str:
    """Return what deviations are over, true of each row that has one."""
    if len(_units(table)) > 1:
        return _of_either(table)
    several = [row.draws for row in table.rows if len(row.draws) > 1]
    # a row of one seed in each order is a mean over seeds, too: the longest words are true of all
    return max((spread_in_words(draws, table.drawn_images) for draws in several), key=len, default=SEEDS)


def counted_in(table: Table) -> list[str]:
    """Return what n counts; nothing without a row."""
    if not table.rows:
        return []
    units = _units(table)
    if len(units) > 1:
        return [f"n: {_of_either(table)}"]
    (unit,) = units or varied_units([{draw for row in table.rows for draw in row.draws}]) or {SEEDS}
    return [f"n: {unit}{_with_drawn(table) if unit == ORDERS else ''}"]


def _units(table: Table) -> set[str]:
    """Return what the runs of a table's rows vary in."""
    return varied_units(row.draws for row in table.rows)


def _of_either(table: Table) -> str:
    """Return what rows of a table are over, some of which have several orders and others several seeds."""
    return EITHER.replace(ORDERS, f"{ORDERS}{_with_drawn(table)}")


def _with_drawn(table: Table) -> str:
    """Return that class orders are draws of images, too, to stand behind them; empty where they are not."""
    return f" (each draws its own {table.drawn_images})" if table.drawn_images else ""


def _by_kind(notes: Iterable[str], others: str) -> Iterator[str]:
    """Yield notes that begin alike, up to a colon, as one: the first of them, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(note.partition(": ")[0], []).append(note)
    for first, *further in kinds.values():
        yield f"{first}; {len(further)} more ({others})" if further else first


def _unfinished(table: Table) -> list[str]:
    """Return how far each unfinished run has come."""
    return [f"{NOT_COUNTED}{run.path}, {run.standing}" for run in table.unfinished]


def _few_unfinished(table: Table, others: str) -> Iterator[str]:
    """Yield how far the first unfinished runs have come, and how many more there are, as one remark."""
    told = [f"{run.path}, {run.standing}" for run in table.unfinished[:_NAMED]]
    further = len(table.unfinished) - len(told)
    if further:
        told.append(f"{further} more ({others})")
    if told:
        yield f"{NOT_COUNTED}{'; '.join(told)}"


def _printed(table: Table) -> list[Printed]:
    """Return the published values of all rows."""
    values: list[Printed] = []
    for row in table.rows:
        values += row.paper.values()
    return values


def _citations(table: Table) -> list[str]:
    """Return the sources of the published values, each once: a source has values of several metrics."""
    return list(dict.fromkeys(f"paper: {value.citation}" for value in _printed(table)))


def _intervals(table: Table, columns: Sequence[Column]) -> Iterator[str]:
    """Yield over what the intervals of final accuracy are, where they are printed."""
    with_one = [row for row in table.rows if row.interval is not None]
    if not with_one or not any(column.name == "faa" for column in columns):
        return
    drawn = [row.draws for row in with_one if not row.alike]
    few = few_of_rows(drawn)
    yield f"{INTERVAL}: of FAA, over {over_of_rows(drawn)}{f' ({few})' if few else ''}"


def _marks(table: Table, columns: Sequence[Column], against: str | None) -> list[str]:
    """Return what the marks in a table and in that of differences mean, of those that stand there."""
    marks = list(filter(None, [ahead_in_words(table, columns), *_intervals(table, columns)]))
    reference = table.reference(against)
    if reference is not None:
        differing = [column for column in columns if not column.is_time]
        gaps = [gap for column in differing for gap in table.differences(reference, column).values()]
        if any(gap is not None and gap.is_none for gap in gaps):
            marks.append(SAME)
    if _has_spread(table, columns):
        marks.append(f"±: one sample standard deviation over {spread(table)}, {_NO_SPREAD}")
    alike = [row for row in table.rows if row.alike]
    if alike:
        weighed = ""
        if any(_mean(row, COLUMNS["faa"], best=False).std for row in alike):
            weighed = "; FAA still varies (±), as each class order groups classes into other tasks"
        marks.append(
            f"alike: the same final answers in every run{weighed}; "
            "intervals between such rows are over test images alone"
        )
    if any(row.control for row in table.rows):
        marks.append(_CONTROL)
    published = _printed(table)
    if any(value.differs for value in published):
        marks.append("* the paper's runs are known to differ from ours")
    if any(value.second_hand for value in published):
        marks.append("† second hand: not measured by the method's authors, or copied from another paper")
    return marks
