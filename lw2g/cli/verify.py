"""``lw2g verify``: whether what a run left is whole and its numbers follow from its predictions."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["verify"]

_MARKS = {True: "holds", False: "does not hold", None: "-"}


@click.command(short_help="Check all files of a run and recompute its metrics.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, run: Path, as_json: bool) -> None:
    """Check the run, or the runs of several seeds, in the directory RUN.

    Every file is compared with its checksum, every matrix and metric with its value recomputed from the
    stored predictions. Ends with exit code 1 if anything does not hold. The log events.jsonl is not covered.
    """
    import attrs

    from lw2g.training.files.verification import verify as examine

    findings = examine(run)
    broken = [one for one in findings if one.holds is False]
    if as_json:
        click.echo(
            json.dumps({"holds": not broken, "findings": [attrs.asdict(one) for one in findings]}, indent=1)
        )
    else:
        from lw2g.cli.output import console, table

        rows = [(one.what, _MARKS[one.holds], one.text) for one in findings]
        console().print(table("", ("what", "", "found"), rows, left=3))
        click.echo(f"{len(broken)} of {len(findings)} do not hold" if broken else "everything holds")
    ctx.exit(1 if broken else 0)
