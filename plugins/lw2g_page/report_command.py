"""``lw2g report`` prints tables of finished runs, with published values beside ours."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import Further, LongCommand, help_of, option_of
from lw2g.errors import ConfigError, as_word
from lw2g.runtime.console import note, printable
from lw2g_page.reporting import MIXABLE, Report
from lw2g_page.reporting import report as tabulate

if TYPE_CHECKING:
    from lw2g.results.table import Table

__all__ = ["for_a_terminal", "report"]

_PAGE = """--html writes a page for one run or many: figures with their numbers, unfinished runs up to their
last task, and for a single run its misclassified test images. The exit code is 1 if a damaged run was left
out."""

_ESCAPED = re.compile(r"\\([!-/:-@\[-`{}~])")
"""What Markdown shows of an escape; an escaped bar stays one, as a bare one ends a cell."""


@click.command(cls=LongCommand, help=help_of(tabulate, _PAGE))
@click.argument("runs", metavar="RUN_OR_DIR...", nargs=-1, required=True, type=AnyPath(path_type=Path))
@option_of(Report.to_text, "form", "--format", default=None, show_default=False)
@option_of(Report.to_text, "every_remark", "--all", is_flag=True)
@option_of(tabulate, "columns", metavar="A,B,...")
@option_of(tabulate, "against", metavar="ROW")
@option_of(tabulate, "mix", type=click.Choice(MIXABLE), multiple=True, cls=Further)
@option_of(
    tabulate,
    "store",
    "--with",
    metavar="DIR",
    type=AnyPath(path_type=Path, file_okay=False),
    cls=Further,
)
@option_of(Report.save, "out", "--html", metavar="OUT.html", type=AnyPath(path_type=Path, dir_okay=False))
def report(
    runs: Sequence[Path],
    form: Any,
    every_remark: bool,
    columns: str | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Print the tables, or write the page."""
    if form is not None and out is not None:
        raise ConfigError(f"--format {form}: --html writes a page and no text", "leave one of the two out")
    if columns is None and form in ("csv", "json"):
        columns = "all"  # these are for programs
    # a page shows how a run is going; a table compares what is finished
    result = tabulate(*runs, columns=columns, unfinished=out is not None, **options)
    in_terminal = out is None and form is None and sys.stdout.isatty()
    if not (in_terminal and sys.stderr.isatty()):  # else whoever reads one reads the other: the text says it
        for line in result.left_out:
            note(line)
        for problem in result.damaged:
            click.echo(f"warning: left out: {printable(problem)}", err=True)
    if out is None:
        text = printable(result.to_text(form or "md", every_remark=every_remark), lines=True)
        if in_terminal:
            text = for_a_terminal(text, shutil.get_terminal_size().columns)
        click.echo(text, nl=False)
        if form in (None, "md") and options["against"] is None:
            _print_how_to_compare(result.tables)
    else:
        result.save(out)
        click.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
    if result.damaged:
        raise click.exceptions.Exit(1)


def _print_how_to_compare(tables: Sequence[Table]) -> None:
    """Print which option shows differences, with a row that has pairs with others; nothing without one."""
    from lw2g_page.page_head import reference_of  # with numpy, which `lw2g report --help` does without

    rows = [row for table in tables if (row := reference_of(table, None)) is not None]
    if rows:
        label = printable(as_word(rows[0].label))
        click.echo(f"\ndifferences with intervals: --against {label}")


def for_a_terminal(text: str, width: int) -> str:
    """Return Markdown without escapes, the cells of tables below each other, remarks broken between words.

    Args:
        text: The Markdown.
        width: The columns of the terminal. A table that is wider stays as wide.
    """
    lines = []
    for is_table, block in groupby(
        _ESCAPED.sub(r"\1", text).splitlines(), lambda line: line.startswith("| ")
    ):
        if is_table:
            lines += _aligned([line[2:-2].split(" | ") for line in block])
        else:
            for line in block:
                indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
                lines += textwrap.wrap(line, width, subsequent_indent=indent) or [""]
    return "\n".join([*lines, ""])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; its first column is aligned to the left, others to the right."""
    head, _, *body = rows
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rule = ["-" * width for width in widths]
    lines = []
    for row in (head, rule, *body):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
