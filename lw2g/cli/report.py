"""``lw2g report`` prints tables of finished runs, with published values beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
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
@click.option("--against", metavar="ROW", help="Row that paired differences refer to.")
@click.option(
    "--mix",
    type=click.Choice(MIXABLE),
    multiple=True,
    help="What one table may mix, although such rows are not comparable; repeatable.",
)
@click.option(
    "--html",
    metavar="OUT.html",
    type=AnyPath(path_type=Path, dir_okay=False),
    help="Write a page with figures, one file that needs no network, instead of printing.",
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

    A row is a configuration, over all its seeds and class orders. Unfinished runs are listed but not counted.
    --against takes a row's label, or a part of it that is unique, and adds differences over pairs of equal
    seed and class order, with 95 % intervals.

    --html writes a page for one run or many: figures with their numbers, unfinished runs up to their last
    task, and for a single run its misclassified test images.
    """
    from lw2g.cli.output import printable
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.report import render
    from lw2g.report.columns import further_columns
    from lw2g.report.runs import find_runs
    from lw2g.report.table import tables_of

    all_runs = list(find_runs(runs))
    if not all_runs:
        raise DataError(
            f"no run at or below {', '.join(map(repr, map(str, runs)))}", "give directories of runs"
        )
    catalogue = load_catalogue()
    further = further_columns([run.record for run in all_runs], catalogue)
    wanted = _columns(columns, further, everything=form in ("csv", "json"))
    tables = tables_of(all_runs, catalogue, mix, so_far=html is not None)
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

    words = [*map(str, runs), *([] if against is None else ["--against", against])]
    return page_of(
        tables, catalogue, columns, against, shlex.join(["lw2g", "report", *words, "--html", "OUT.html"])
    )


def _write_page(out: Path, form: str | None, page: Callable[[], str]) -> None:
    """Render a page and write it.

    Raises:
        ConfigError: ``out`` is another kind of file, or --format is given too.
    """
    from lw2g.report.page.page import MARK
    from lw2g.training.files.sealed import write_atomically

    if form is not None:
        raise ConfigError(f"--format {form}: --html writes a page and no text", "leave one of the two out")
    if out.exists() and not out.read_bytes().startswith(MARK.encode()):
        raise ConfigError(
            f"--html: {str(out)!r} exists and is not a report", "choose another name, or remove it"
        )
    content = page().encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, content)
    except OSError as error:
        raise ConfigError(
            f"--html: {str(out)!r} cannot be written: {error.strerror}", "choose another"
        ) from error
    click.echo(f"{out}: {len(content) / 1e6:.1f} MB")


def _columns(text: str | None, further: Mapping[str, Column], *, everything: bool) -> list[Column]:
    """Return the requested columns, by default the usual ones and those of plugins' metrics.

    Raises:
        ConfigError: A column is unknown.
    """
    from lw2g.report.columns import COLUMNS, DEFAULT_COLUMNS

    known = {**COLUMNS, **further}
    names = (known if everything else (*DEFAULT_COLUMNS, *further)) if text is None else text.split(",")
    if text == "all":
        names = known
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--columns: no column is called {name!r}{nearest(name, known)}",
                f"there are: {', '.join(known)}",
            )
    return [known[name] for name in names]
