"""The head of a section of the page: what is asked, and under which conditions it is answered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from lw2g.errors import counted
from lw2g.results.found_runs import ReportedRun
from lw2g.results.table import Row, Table

__all__ = ["SECTIONS_ABOVE", "conditions_above", "question_of"]

SECTIONS_ABOVE: Mapping[str, str] = {"benchmark": "Images", "backbone": "Backbone", "run": "Runs"}
"""The sections whose options stand in the head where all rows share them, and what they are called there."""
_LISTED = 5
"""The largest number of seeds that are listed."""


def question_of(table: Table, reference: Row | None, names: Mapping[str, str], *, named: bool) -> str:
    """Return the question that a table answers.

    Args:
        table: The table.
        reference: The row that differences refer to; None for none.
        names: The short name of each row by its label.
        named: Whether the user named that row.
    """
    if not table.rows:
        return "No run has finished a task yet."
    if len(table.rows) == 1:
        return f"What share of the test images does {names[table.rows[0].label]} get right in the end?"
    asked = (
        f"What share of the test images does each of {len(table.rows)} configurations get right in the end"
    )
    if reference is None:
        return f"{asked}?"
    of = ""
    if not named:
        of = ", the first row" if reference.trains else ", the best of those that train nothing"
    return f"{asked}, and how far is that from {names[reference.label]}{of}?"


def conditions_above(table: Table, num_tested: int | None) -> list[tuple[str, str]]:
    """Return the conditions of a table: what they are of, and what holds for all rows.

    Args:
        table: The table.
        num_tested: The number of test images; None where it is not known.
    """
    told: dict[str, list[str]] = defaultdict(list)
    runs = [run for row in table.rows for run in row.runs]
    told["Data"].append(table.title)
    if runs:
        told["Data"] += _size(runs, num_tested)
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
        told["Runs"] = [*_draws(runs), *told["Runs"]]
    order = ("Data", "Images", "Backbone", "Protocol", "Split", "Runs")
    return [(word, ", ".join(told[word])) for word in order if told[word]]


def _size(runs: Sequence[ReportedRun], num_tested: int | None) -> Iterator[str]:
    """Yield the number of tasks, and of test images."""
    tasks = {run.tasks for run in runs}
    if len(tasks) == 1 and None not in tasks:
        yield counted(int(runs[0].tasks or 0), "task")
    if num_tested is not None:
        yield f"{num_tested:,} test images"


def _images(runs: Sequence[ReportedRun]) -> Iterator[str]:
    """Yield the side of the images that the backbone sees; nothing where features came as files."""
    sides = {run.record["backbone"].get("image_size") for run in runs}
    if len(sides) == 1 and all(sides):
        yield f"{sides.pop()} px"


def _draws(runs: Sequence[ReportedRun]) -> Iterator[str]:
    """Yield the number of runs, their seeds and the number of class orders."""
    yield counted(len(runs), "run")
    seeds = sorted({int(run.record["seed"]) for run in runs})
    if len(seeds) <= _LISTED:
        word = "seed" if len(seeds) == 1 else "seeds"
        yield f"{word} {', '.join(map(str, seeds))}"
    else:
        yield f"{len(seeds)} seeds"
    orders = {tuple(run.record["class_order"]) for run in runs}
    yield counted(len(orders), "class order")
