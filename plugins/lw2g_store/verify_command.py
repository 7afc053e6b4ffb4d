"""``lw2g verify`` checks that a run's files are intact and its numbers follow from its predictions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lw2g.api.reading import verify as examine
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of
from lw2g.runtime.console import console, table

__all__ = ["verify"]

_MARKS = {True: "holds", False: "does not hold", None: "-"}
_EXIT = "The exit code is 1 if anything does not hold. The log events.jsonl is not covered."


@click.command(short_help="Check all files of a run and recompute its metrics.", help=help_of(examine, _EXIT))
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@click.option("--all", "whole", is_flag=True, help="Print every finding, not only what does not hold.")
@json_option("Print the findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, run: Path, whole: bool, as_json: bool) -> None:
    """Print what does not hold."""
    result = examine(run)
    broken = result.broken
    if as_json:
        click.echo(json.dumps({"holds": result.holds, "findings": result.rows()}, indent=1))
    else:
        shown = broken  # most runs have nothing broken, and hundreds of checks that hold
        if whole:
            shown = result.verdicts
        if shown:
            rows = [(finding.what, _MARKS[finding.holds], finding.text) for finding in shown]
            console().print(table("", ("what", "", "found"), rows, left=3))
        count = len(result.verdicts)
        if broken:
            click.echo(f"{len(broken)} of {count} do not hold")
        else:
            click.echo(f"everything holds ({count} checks)")
    if broken:
        ctx.exit(1)
