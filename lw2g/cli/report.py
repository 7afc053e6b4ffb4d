"""``lw2g report``: tables of finished runs, with published values beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lw2g.errors import ConfigError, DataError, nearest
from lw2g.report import MIXABLE

if TYPE_CHECKING:
    from lw2g.report.columns import Column

__all__ = ["report"]


@click.command(short_help="Print tables of runs, with published values beside ours.")
@click.argument("runs", metavar="RUN_OR_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "latex", "csv", "json"]),
    default="md",
    show_default=True,
    help="Markdown, LaTeX (booktabs), a line per row and metric, or JSON.",
)
@click.option("--columns", metavar="A,B,...", help="Columns in their order; `all` for all of them.")
@click.option("--against", metavar="ROW", help="Row to which paired differences are given.")
@click.option(
    "--mix",
    type=click.Choice(MIXABLE),
    multiple=True,
    help="What one table may mix, although it does not compare; repeatable.",
)
def report(
    runs: Sequence[Path], form: str, columns: str | None, against: str | None, mix: Sequence[str]
) -> None:
    """Print one table per benchmark of the runs in and below the given directories.

    A row is a configuration, over all its seeds and class orders. Runs that are not finished are listed and
    not counted. --against takes a row's label, or a part of it that no other row has, and gives differences
    over pairs of equal seed and class order, with 95 % intervals.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.report import render
    from lw2g.report.runs import find_runs
    from lw2g.report.table import tables_of

    wanted = _columns(columns, everything=form in ("csv", "json"))
    found = list(find_runs(runs))
    if not found:
        raise DataError(
            f"no run at or below {', '.join(map(repr, map(str, runs)))}; give directories of runs"
        )
    tables = tables_of(found, load_catalogue(), mix)
    forms: dict[str, Callable[..., str]] = {
        "md": render.as_markdown,
        "latex": render.as_latex,
        "csv": render.as_csv,
        "json": render.as_json,
    }
    click.echo(forms[form](tables, wanted, against), nl=False)


def _columns(text: str | None, *, everything: bool) -> list[Column]:
    """Return the columns that are asked for.

    Raises:
        ConfigError: There is none of that name.
    """
    from lw2g.report.columns import COLUMNS, DEFAULT_COLUMNS

    names = (COLUMNS if everything else DEFAULT_COLUMNS) if text is None else text.split(",")
    if text == "all":
        names = COLUMNS
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(
                f"--columns: no column is called {name!r}{nearest(name, COLUMNS)}; there are: "
                + ", ".join(COLUMNS)
            )
    return [COLUMNS[name] for name in names]
