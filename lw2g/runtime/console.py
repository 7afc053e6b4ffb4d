"""How commands print: consoles, tables and numbers."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from lw2g.config.layers import word_of
from lw2g.errors import counted, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "console",
    "fits",
    "in_units",
    "in_words",
    "listed",
    "method_name",
    "note",
    "number",
    "percent",
    "print_metrics",
    "print_table",
    "print_wrapped",
    "printable",
    "table",
    "tasks_of_accuracy",
]

_PIPE_WIDTH = 160
_UNBOUNDED = 10_000
"""Columns of a terminal in which everything fits."""
_NOTHING = {"", "-"}
"""Cells that say nothing."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def console(*, stderr: bool = False) -> Console:
    """Return a console; off terminals it is wide enough for the tables, unless COLUMNS says how wide."""
    from rich.console import Console

    new = Console(stderr=stderr, highlight=False)
    if new.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return new
    return Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)


def note(text: str) -> None:
    """Print a note on stderr."""
    click.echo(f"note: {printable(text, lines=True)}", err=True)


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for a table: counts stay whole, None is a dash."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:z.{digits}f}"  # z: no minus before a zero


def percent(share: float) -> str:
    """Return a share as a per cent; never as if it were certain.

    >>> percent(0.8749), percent(0.9999), percent(0.0)
    ('87.5 %', '> 99.9 %', '< 0.1 %')
    """
    # with one digit after the point these would be printed as 100.0 and 0.0
    if share > 0.9995:
        return "> 99.9 %"
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %"


def in_units(size: float) -> str:
    """Return bytes in a suitable unit.

    >>> in_units(1536)
    '1.5 KiB'
    >>> in_units(1023.8 * 1024)
    '1 MiB'
    """
    power = 0
    # three digits are printed: 1,000 of a unit, and what rounds to it, is the next one
    while size >= 999.5 and power + 1 < len(_UNITS):
        size /= 1024
        power += 1
    return f"{size:.3g} {_UNITS[power]}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """Return a plain table; the first ``left`` columns are aligned to the left, the others to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    new = Table(
        title=Text(printable(title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for position, column in enumerate(columns):
        new.add_column(
            Text(printable(column)), justify="left" if position < left else "right", overflow="fold"
        )
    for row in rows:
        new.add_row(*(Text(printable(cell)) for cell in row))
    return new


def fits(printed: Table) -> bool:
    """Return whether the terminal is wide enough for a table without a broken cell."""
    from rich.measure import Measurement

    where = console()
    unbounded = where.options.update(max_width=_UNBOUNDED)
    return Measurement.get(where, unbounded, printed).maximum <= where.width


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> None:
    """Print a table without a broken word or number; ``left`` as of `table`.

    On a terminal that is too narrow, columns that say nothing or the same throughout are left out, and what
    is the same is told below; where that is not enough, each row is a line of words.
    """
    rows = [tuple(row) for row in rows]
    whole = table(title, columns, rows, left=left)
    if _breaks_no_word(whole):
        console().print(whole)
        return
    kept = []
    same = []
    for at, name in enumerate(columns):
        values = {row[at] for row in rows} - _NOTHING
        if len(values) > 1:
            kept.append(at)
        else:
            same += [f"{name} {value}" for value in values]
    fewer = [[row[at] for at in kept] for row in rows]
    printed = table(title, [columns[at] for at in kept], fewer, left=sum(at < left for at in kept))
    if kept and _breaks_no_word(printed):
        console().print(printed)
        if same:
            print_wrapped(f"the same in all rows that have it: {', '.join(same)}")
            click.echo()
        return
    click.echo(printable(f"{title}\n", lines=True))
    for row in rows:
        told = []
        for name, cell in zip(columns, row, strict=True):
            if cell not in _NOTHING:
                told.append(f"{name} {cell}")
        print_wrapped("; ".join(told), indent="" if row[0] else "  ")
    click.echo()


def _breaks_no_word(printed: Table) -> bool:
    """Set widths of columns that break between words alone; return whether the terminal has room for such."""
    from rich.cells import cell_len
    from rich.measure import Measurement

    widths = []
    least = []
    for column in printed.columns:
        texts = [str(text) for text in (column.header, *column.cells)]
        widths.append(max(map(cell_len, texts)))
        least.append(max(cell_len(word) for text in texts for word in text.split() or [""]))
        column.width = widths[-1]  # with it older releases of rich take more beside a column than without
    where = console()
    unbounded = where.options.update(max_width=_UNBOUNDED)
    beside = Measurement.get(where, unbounded, printed).maximum - sum(widths)
    room = where.width - beside
    if sum(least) > room:
        return False
    while sum(widths) > room:
        narrower = [at for at, width in enumerate(widths) if width > least[at]]
        widths[max(narrower, key=widths.__getitem__)] -= 1
    for column, width in zip(printed.columns, widths, strict=True):
        column.width = width
    return True


def print_wrapped(text: str, *, indent: str = "") -> None:
    """Print a text in lines that break between words alone."""
    lines = textwrap.wrap(
        text,
        console().width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        click.echo(printable(line))


def method_name(config: Mapping[str, Any], *, grows: bool) -> str:
    """Return the components of a method by their options; what does not grow stands without its policy."""
    word = word_of(config)
    parts = [f"baseline {config['baseline']['name']}{f' (--{word})' if word else ''}"]
    if grows:
        parts.append(f"policy {config['policy']['name']}")
    if config["constraints"]:
        parts.append(f"constraints {listed(list(config['constraints']))}")
    return ", ".join(parts)


def listed(names: Sequence[str]) -> str:
    """Return names, at least one, as a sentence has them.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def in_words(
    metrics: Mapping[str, str], record: Mapping[str, Any], *, grows: bool, interval: str = ""
) -> Iterator[str]:
    """Yield what a run has reached, a line each.

    Args:
        metrics: The values of the defined metrics, as text.
        record: The run's.
        grows: Whether the method has sets.
        interval: What stands behind the final accuracy.
    """
    done = len(record["accuracy_matrix"])
    is_final = record.get("tasks") in (None, done)  # older records do not note it
    if "faa" in metrics:
        what = "final accuracy" if is_final else "accuracy"
        yield f"{what} {metrics['faa']} % (FAA){_tested(record, is_final=is_final)}{interval}"
        guessed = 100 / max(len(_classes_of(record)), 1)
        mean = float(metrics["faa"].partition(" ")[0])  # several runs have a deviation behind it
        if mean < guessed < 100:  # older records have no classes
            yield f"below chance: a guess among the classes gets {guessed:.1f} %"
    if "ffm" in metrics:
        gained = "; below 0: later tasks made them better" if metrics["ffm"].startswith("-") else ""
        yield f"forgetting {metrics['ffm']} points (FFM: best minus last accuracy, mean of old tasks{gained})"
    if not grows or "ssp" not in metrics:
        return
    several = metrics["ssp"] != "1"
    sets = "sets" if several else "set"
    yield f"{metrics['ssp']} {sets} for {counted(done, 'task')}"
    # where there is one set, there is nothing to find
    if several and {"pra", "chance_pra"} <= metrics.keys():
        yield f"right set found {metrics['pra']} %, by chance {metrics['chance_pra']} % (PRA)"


def _tested(record: Mapping[str, Any], *, is_final: bool) -> str:
    """Return on what an accuracy is, with a space before it; empty where an older record has no classes."""
    classes = _classes_of(record)
    if not classes:
        return ""
    hashes = record.get("image_hashes") if is_final else None  # one for each test image of the whole stream
    images = f"{len(hashes):,} test images" if hashes else "test images"
    classes_and_tasks = f"{len(classes):,} {'class' if len(classes) == 1 else 'classes'}"
    if tasks := tasks_of_accuracy(record):
        classes_and_tasks += f", over {tasks}: the others brought no new class"
    return f" on {images} of {classes_and_tasks}"


def _classes_of(record: Mapping[str, Any]) -> set[str]:
    """Return the classes of the tasks that a run has learned; none of an older record."""
    done = len(record["accuracy_matrix"])
    return {name for of_task in record.get("task_classes", [])[:done] for name in of_task}


def tasks_of_accuracy(record: Mapping[str, Any]) -> str:
    """Return how many tasks have an accuracy; empty where all have: others brought no new class."""
    matrix = record["accuracy_matrix"]
    tested = sum(row[-1] is not None for row in matrix)
    return "" if tested == len(matrix) else f"{tested} of {counted(len(matrix), 'task')}"


def print_metrics(record: Mapping[str, Any], terms: Mapping[str, str]) -> None:
    """Print a record's metrics, all that are defined, each with the beginning of its definition."""
    values = dict(record["metrics"])
    if record.get("planted_groups"):
        values["adjusted_rand_index"] = record["adjusted_rand_index"]
    rows = []
    for name, value in values.items():
        if value is None:
            continue
        if name == "task_accuracy" and record["config"]["benchmark"].get("stream") == "domains":
            continue  # each task has all classes: it is 100 whatever the answers
        meaning = terms.get(name, "").partition(":")[0]
        rows.append((name, meaning, number(value)))
    print_table("metrics", ("metric", "meaning", "value"), rows, left=2)
