"""``lw2g verify`` checks that a run's files are intact and its numbers follow from its predictions."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lw2g.errors import counted

__all__ = ["verify"]

_MARKS = {True: "holds", False: "does not hold", None: "-"}


@click.command(short_help="Check all files of a run and recompute its metrics.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.option("--all", "whole", is_flag=True, help="Print every finding, not only what does not hold.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, run: Path, whole: bool, as_json: bool) -> None:
    """Check the run, the runs of several seeds, or the pack of a store (without torch) in the directory RUN.

    It compares every file with its checksum, and every matrix and metric with its value recomputed from the
    stored predictions. The exit code is 1 if anything does not hold. The log events.jsonl is not covered.
    """
    from lw2g.api import verify as examine

    result = examine(run)
    findings, broken = result.verdicts, result.broken
    if as_json:
        click.echo(json.dumps({"holds": result.holds, "findings": result.rows()}, indent=1))
    else:
        from lw2g.console.output import console, table

        shown = findings if whole else broken
        if shown:
            rows = [(finding.what, _MARKS[finding.holds], finding.text) for finding in shown]
            console().print(table("", ("what", "", "found"), rows, left=3))
        count = len(findings)
        click.echo(
            f"{len(broken)} of {count} do not hold"
            if broken
            else f"everything holds ({counted(count, 'check')})"
        )
    ctx.exit(1 if broken else 0)
