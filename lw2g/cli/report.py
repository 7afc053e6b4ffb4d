"""``lw2g report`` prints tables of finished runs, with published values beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lw2g.cli.options import AnyPath
from lw2g.errors import ConfigError
from lw2g.reports import MIXABLE

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
    "--with",
    "store",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="A checkout of a store: rows of others under the same protocol, with submitter and badges.",
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
    store: Path | None,
    html: Path | None,
) -> None:
    """Print one table per benchmark of the runs in and below the given directories.

    A row is a configuration, over all its seeds and class orders. Unfinished runs are listed but not counted.
    --against takes a row's label, or a part of it that is unique, and adds differences over pairs of equal
    seed and class order, with 95 % intervals.

    --html writes a page for one run or many: figures with their numbers, unfinished runs up to their last
    task, and for a single run its misclassified test images.
    """
    from lw2g.api import report as tabulate
    from lw2g.console.output import note, printable

    if form is not None and html is not None:
        raise ConfigError(f"--format {form}: --html writes a page and no text", "leave one of the two out")
    everything = "all" if columns is None and form in ("csv", "json") else columns
    result = tabulate(
        *runs, columns=everything, against=against, mix=mix, unfinished=html is not None, store=store
    )
    for line in result.left_out:
        note(line)
    if html is None:
        click.echo(printable(result.to_text(form or "md"), lines=True), nl=False)
        return
    result.save(html)
    click.echo(f"{html}: {html.stat().st_size / 1e6:.1f} MB")
