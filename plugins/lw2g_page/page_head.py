"""The head of a section of the page: what is asked, the answer, and under which conditions it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

from lw2g.errors import counted
from lw2g.results.cells import spread
from lw2g.results.columns import COLUMNS
from lw2g.results.difference_words import few_in_words, p_in_words
from lw2g.results.found_runs import ReportedRun
from lw2g.results.summaries import Difference, without_rounding_error
from lw2g.results.table import Row, Table

__all__ = [
    "SECTIONS_ABOVE",
    "Answer",
    "answer_of",
    "conditions_above",
    "question_of",
    "reference_of",
    "shown_of",
]

SECTIONS_ABOVE: Mapping[str, str] = {"benchmark": "Images", "backbone": "Backbone", "run": "Runs"}
"""The sections whose options stand in the head where all rows share them, and what they are called there."""

_SMALL = 0.05
"""The p value below which a difference is a finding, as 0 is outside of an interval of 95 %."""


@attrs.frozen
class Answer:
    """What a table answers: a number with its unit, empty where there is none, and the words beside it."""

    number: str
    words: str


def reference_of(table: Table, against: str | None) -> Row | None:
    """Return the row that differences refer to; None where no other row has a pair with it.

    Unless one is named, it is the best of those that train nothing, or the first.
    """
    finished = [row for row in table.rows if row.finished]
    paired = []
    for row in finished:
        if any(row.draws & other.draws for other in finished if other is not row):
            paired.append(row)
    if against is not None:
        named = table.reference(against)
        return named if named in paired else None
    return table.floor(paired) or next(iter(paired), None)


def question_of(table: Table, reference: Row | None, *, named: bool) -> str:
    """Return the question that a table answers.

    Args:
        table: The table.
        reference: The row that differences refer to; None for none.
        named: Whether the user named that row.
    """
    if not table.rows:
        return "No run has finished a task yet."
    if len(table.rows) == 1:
        return f"What share of the test images does {table.rows[0].label} get right in the end?"
    asked = f"What share of the test images does {_each_of(table)} get right in the end"
    if reference is None:
        return f"{asked}?"
    of = "" if named else f", {_chosen_as(reference, table)}"
    ranked = _ranked(table)
    if len(ranked) > 1 and reference is ranked[0]:
        return f"{asked}, and how far is {reference.label}{of}{',' if of else ''} from the next one?"
    return f"{asked}, and how far is that from {reference.label}{of}?"


def _chosen_as(reference: Row, table: Table) -> str:
    """Return as what a row has been chosen to be the reference."""
    finished = [row for row in table.rows if row.finished]
    chosen = "the first row"
    if not reference.trains:
        alone = sum(not row.trains for row in finished) == 1
        chosen = "which trains nothing" if alone else "the best of those that train nothing"
    if reference is not (table.floor() or finished[0]):
        chosen += " with a pair of equal seed and class order"
    return chosen


def _each_of(table: Table) -> str:
    """Return what the answer is of: finished rows, where there are some."""
    compared = sum(row.finished for row in table.rows)
    if not compared:  # a configuration has a row for each number of tasks that its runs have come to
        return f"each of {sum(len(row.runs) for row in table.rows)} runs"
    return "the finished configuration" if compared == 1 else f"each of {compared} configurations"


def answer_of(table: Table, reference: Row | None) -> Answer:
    """Return the answer to that question: the best final accuracy, and how far it is from others.

    Rows that end alike are named together. Controls are no answer where there is another row.

    Args:
        table: The table.
        reference: The row that differences refer to; None for none.
    """
    ranked = _ranked(table)
    if not ranked:
        return Answer("", "No run is finished yet: the numbers are those after the last task of each.")
    best = ranked[0]
    number = f"{_end_of(best):.1f} %"
    over = ""
    if best.alike:
        over = f", with the same final answers in {_runs_of(best.number)}"
    elif len(best.runs) > 1:
        over = f", mean of {_runs_of(best.number)}"
    tasks = best.runs[0].tasks
    after = f"right after {counted(int(tasks or 0), 'task')} (FAA, the mean over tasks{_over_images(best)})"
    if len(ranked) == 1:
        return Answer(number, f"{after}: {best.label}{over}.")
    alike = [row for row in ranked if row is best or _ends_as(row, best)]
    others = [row for row in ranked if row not in alike]
    names = " and ".join(row.label for row in alike)
    if len(alike) > 1:
        names += " end alike"
    if not others:
        return Answer(number, f"{after}: {names}{over}.")
    words = f"{after}: {names}{over}"
    rivals = [row for row in ranked if row.control == best.control]
    if len(rivals) > len(alike):
        if all(_orders_of(row) == _orders_of(best) for row in rivals):
            words += f", the best of {len(rivals)} configurations"
        else:  # other orders have other tasks
            words += f", the highest of {len(rivals)} configurations, which have different class orders"
        if best.control:
            words += ", all of which are controls"
        elif len(rivals) < len(ranked):
            words += ", controls aside"
    if reference is None or reference in alike:
        other, whose = others[0], f"the next one, {others[0].label}"
    else:
        other, whose = reference, reference.label
        if reference.control and not best.control:
            whose = f"the control {whose}"
    gap = best.difference(other, COLUMNS["faa"])
    candidates = len(rivals) - (other in rivals)
    choice = f"not corrected for the choice of the best of {len(rivals)}" if candidates > 1 else ""
    if gap is not None:
        # p counts all rows that are compared with one, so the choice of the best where that is another
        base, against = (other, best) if other is reference else (best, other)
        corrected = table.differences(base, COLUMNS["faa"])[against.label]
        gap = attrs.evolve(gap, p=None if corrected is None else corrected.p)
        if gap.p is not None and other is reference:
            choice = ""
    words = f"{words}.{_apart(best, other, whose, gap, choice)}"
    orders = _orders_of(best)
    controls = [
        row for row in ranked if row.control and _end_of(row) > _end_of(best) and _orders_of(row) == orders
    ]
    if controls and not best.control and controls[0] is not other:
        ahead = _end_of(controls[0]) - _end_of(best)
        words += f" The control {controls[0].label} ends {_points(ahead)} above it."
    return Answer(number, words)


def _ranked(table: Table) -> list[Row]:
    """Return the finished rows that have a final accuracy, the best first; controls after all others."""
    ended = [row for row in table.rows if row.finished and row.summary(COLUMNS["faa"]).mean is not None]
    return sorted(ended, key=lambda row: (row.control, -_end_of(row)))


def _orders_of(row: Row) -> set[tuple[int, ...]]:
    """Return the class orders of a row: means over different ones do not compare."""
    return {order for _, order in row.draws}


def _end_of(row: Row) -> float:
    """Return the final accuracy of a row that has one."""
    return row.summary(COLUMNS["faa"]).mean or 0.0


def _ends_as(row: Row, other: Row) -> bool:
    """Whether two rows have the same answers in all runs, and are both controls or both none."""
    if row.control != other.control or row.draws != other.draws or _end_of(row) != _end_of(other):
        return False
    gap = row.difference(other, COLUMNS["faa"])
    return gap is not None and gap.is_none


def _runs_of(number: str) -> str:
    """Return a number of runs with its noun, which orders and seeds have."""
    return f"{number} runs" if number.isdecimal() else number


def _over_images(row: Row) -> str:
    """Return the interval of a row's final accuracy over test images; empty where its runs differ."""
    answers = row.answers
    if answers is None:
        return ""
    low, high = answers.interval
    return f"; 95 % interval {low:.1f} to {high:.1f}, of {len(answers.images):,} test images"


def _apart(row: Row, other: Row, whose: str, gap: Difference | None, choice: str) -> str:
    """Return a sentence of how far a row is from another one, or that no pair of runs tells it.

    Args:
        row: The row.
        other: The other one.
        whose: What the sentence calls that one.
        gap: The difference, with a p value that counts the rows.
        choice: What it is not corrected for; empty for nothing.
    """
    if gap is None:
        return f" No pair of equal seed and class order tells how far that is from {whose}."
    common = row.draws & other.draws
    told = " That is"
    if common != row.draws | other.draws:
        told = f" Over {counted(len(common), 'pair')} of equal seed and class order that is"
    if gap.is_none:
        return f"{told} as much as {whose}."
    told += f" {_points(gap.mean)} {'above' if gap.mean >= 0 else 'below'} {whose}"
    doubts = "; ".join(filter(None, (_interval(gap, choice), few_in_words(row, other))))
    return f"{told} ({doubts})." if doubts else f"{told}."


def _points(gap: float) -> str:
    """Return how large a difference is; one that is not 0 is never printed as 0.

    >>> _points(-1.25), _points(0.04), _points(0.004)
    ('1.2 points', '0.04 points', 'less than 0.01 points')
    """
    size = without_rounding_error(abs(gap))
    for digits in (1, 2):
        if size == 0 or round(size, digits):
            return f"{size:.{digits}f} points"
    return "less than 0.01 points"


def _interval(gap: Difference, choice: str) -> str:
    """Return the interval of a difference, its p value, and whether they leave open which is better."""
    if gap.low is None or gap.high is None:
        return ""
    interval = f"95 % interval {_signed(gap.low)} to {_signed(gap.high)}"
    has_zero = gap.low <= 0 <= gap.high
    if has_zero:
        interval += ", in which 0 lies"
    if gap.p is not None:
        interval += f"; {p_in_words(gap.p)} (Holm)"
    if has_zero or (gap.p is not None and gap.p >= _SMALL):
        return f"{interval}: which is better is open"
    return f"{interval}, {choice}" if choice else interval


def _signed(end: float) -> str:
    """Return an end of an interval in points; of one near 0 a digit more, as its side of 0 matters."""
    text = f"{end:+z.1f}"
    return f"{end:+z.2f}" if text == "+0.0" and end else text


def conditions_above(table: Table) -> list[tuple[str, str]]:
    """Return the conditions of a table: what they are of, and what holds for all rows."""
    told: dict[str, list[str]] = defaultdict(list)
    runs = [run for row in table.rows for run in row.runs]
    told["Data"].append(table.title)
    if runs:
        told["Data"] += _size(table, runs)
        told["Images"] += _images(runs)
    for condition in table.conditions:
        word, _, rest = condition.partition(" ")
        if word == "data":
            # the title of a table whose name others have ends in it
            told["Data"] += [condition] if condition not in table.title else []
        else:
            told[word.capitalize()].append(rest)
    for key, value in table.shared.items():
        section, _, name = key.partition(".")
        if section in SECTIONS_ABOVE:
            told[SECTIONS_ABOVE[section]].append(f"{name} {value}")
    if runs:
        finished = sum(len(row.runs) for row in table.rows if row.finished)
        counts = counted(finished or len(runs), "run")
        if 0 < finished < len(runs):
            counts += f" and {len(runs) - finished} unfinished"
        told["Runs"] = [f"{counts}: {table.draws}", *told["Runs"]]
    order = ("Data", "Images", "Backbone", "Protocol", "Split", "Runs")
    return [(word, ", ".join(told[word])) for word in order if told[word]]


def shown_of(table: Table, *, band: bool) -> str:
    """Return what a figure shows of each row: its one run or the mean of its runs, and what a ``band`` is."""
    numbers = {len(row.runs): row.number for row in table.rows}
    if not numbers:
        return ""
    if set(numbers) == {1}:
        each = " of each row" if len(table.rows) > 1 else ""
        return f"Shown is one run{each}, no mean ({table.draws})."
    low, high = min(numbers), max(numbers)
    many = _runs_of(numbers[high]) if low == high else f"{low} to {high} runs"
    shown = f"Shown is each row's mean of {many} ({table.draws})."
    return f"{shown} A band is one standard deviation over {spread(table)}." if band else shown


def _size(table: Table, runs: Sequence[ReportedRun]) -> Iterator[str]:
    """Yield the number of tasks, unless the title has it, and of test images."""
    tasks = {run.tasks for run in runs}
    if len(tasks) == 1 and None not in tasks and " tasks of " not in table.title:
        yield counted(int(runs[0].tasks or 0), "task")
    if table.tested:
        yield table.tested


def _images(runs: Sequence[ReportedRun]) -> Iterator[str]:
    """Yield the side of the images that the backbone sees; nothing where features came as files."""
    sides = {run.record["backbone"].get("image_size") for run in runs}
    if len(sides) == 1 and all(sides):
        yield f"{sides.pop()} px"
