"""``lw2g report``: tables of finished runs, with published values beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lw2g.cli.options import AnyPath
from lw2g.errors import ConfigError, DataError, nearest
from lw2g.report import MIXABLE

if TYPE_CHECKING:
    from lw2g.registry.catalogue import Catalogue
    from lw2g.report.columns import Column
    from lw2g.report.table import Table

__all__ = ["report"]


@click.command(short_help="Print tables of runs, with published values beside ours.")
@click.argument("runs", metavar="RUN_OR_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "latex", "csv", "json"]),
    help="Markdown (the default), LaTeX (booktabs), a line per row and metric, or JSON.",
)
@click.option("--columns", metavar="A,B,...", help="Columns in their order; `all` for all of them.")
@click.option("--against", metavar="ROW", help="Row to which paired differences are given.")
@click.option(
    "--mix",
    type=click.Choice(MIXABLE),
    multiple=True,
    help="What one table may mix, although it does not compare; repeatable.",
)
@click.option(
    "--html",
    metavar="OUT.html",
    type=AnyPath(path_type=Path, dir_okay=False),
    help="Write a page with figures instead of printing: one file, without network.",
)
def report(
    runs: Sequence[Path],
    form: str | None,
    columns: str | None,
    against: str | None,
    mix: Sequence[str],
    html: Path | None,
) -> None:
    """Print one table per benchmark of the runs in and below the given directories.

    A row is a configuration, over all its seeds and class orders. Runs that are not finished are listed and
    not counted. --against takes a row's label, or a part of it that no other row has, and gives differences
    over pairs of equal seed and class order, with 95 % intervals.

    --html writes a page that opens from disk, for one run or many: figures with the numbers behind each,
    unfinished runs as far as they have come, and for a single run the test images that it got wrong.
    """
    from lw2g.cli.output import printable
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
    catalogue = load_catalogue()
    tables = tables_of(found, catalogue, mix, so_far=html is not None)
    if html is not None:
        _write_page(html, form, lambda: _page(tables, catalogue, wanted, against, runs))
        return
    forms: dict[str, Callable[..., str]] = {
        "md": render.as_markdown,
        "latex": render.as_latex,
        "csv": render.as_csv,
        "json": render.as_json,
    }
    click.echo(printable(forms[form or "md"](tables, wanted, against), lines=True), nl=False)


def _page(
    tables: Sequence[Table],
    catalogue: Catalogue,
    columns: Sequence[Column],
    against: str | None,
    runs: Sequence[Path],
) -> str:
    from lw2g.report.page.page import page_of

    said = [*map(str, runs), *([] if against is None else ["--against", against])]
    return page_of(
        tables, catalogue, columns, against, shlex.join(["lw2g", "report", *said, "--html", "OUT.html"])
    )


def _write_page(out: Path, form: str | None, page: Callable[[], str]) -> None:
    """Make a page and write it.

    Raises:
        ConfigError: Something else lies there, or a format of text is asked for as well.
    """
    from lw2g.report.page.page import MARK
    from lw2g.training.files.sealed import write_atomically

    if form is not None:
        raise ConfigError(f"--format {form}: --html writes a page and no text; leave one of the two out")
    if out.exists() and not out.read_bytes().startswith(MARK.encode()):
        raise ConfigError(f"--html: {str(out)!r} is there and no report; choose another name, or remove it")
    content = page().encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, content)
    except OSError as error:
        raise ConfigError(
            f"--html: {str(out)!r} cannot be written: {error.strerror}; choose another"
        ) from error
    click.echo(f"{out}: {len(content) / 1e6:.1f} MB")


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
