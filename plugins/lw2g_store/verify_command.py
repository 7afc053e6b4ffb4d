"""``lw2g verify`` checks that a run's files are intact and its numbers follow from its predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from lw2g.api.tabular import Verification
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of
from lw2g.errors import Lw2gError, counted
from lw2g.runtime.console import console, printable, table
from lw2g_store.stores import runs_to_verify
from lw2g_store.stores import verify as examine

__all__ = ["verify"]

_MARKS = {True: "holds", False: "does not hold", None: "-"}
_EXIT = (
    "Of several runs, or of a folder with runs below it, there is a line for each. The exit code is 1 if "
    "anything does not hold. The log events.jsonl is not covered."
)


@click.command(help=help_of(examine, _EXIT))
@click.argument(
    "runs", metavar="RUN...", nargs=-1, required=True, type=AnyPath(path_type=Path, file_okay=False)
)
@click.option("--all", "whole", is_flag=True, help="Print every finding, not only what does not hold.")
@json_option("Print the findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, runs: tuple[Path, ...], whole: bool, as_json: bool) -> None:
    """Print what does not hold."""
    places = runs_to_verify(runs)
    if places != [*runs[:1]]:
        if not _all_hold(places, as_json=as_json):
            ctx.exit(1)
        return
    result = examine(*places)
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
            click.echo(printable(_holding(result)))
    if broken:
        ctx.exit(1)


def _holding(found: Verification) -> str:
    """Return that everything holds, how far an unfinished run is, and the test images it was trained on."""
    checks = counted(len(found.verdicts), "check")
    text = f"everything holds ({checks})"
    if found.unfinished:
        text = f"unfinished: {found.unfinished}; what is there holds ({checks})"
    if found.shared_images:
        text += f"; but {found.shared_images}, so accuracy is not that of unseen images alone"
    return text


def _all_hold(places: Sequence[Path], *, as_json: bool) -> bool:
    """Print a line for each run, or JSON of all, and return whether everything holds."""
    entries = []
    for place in places:
        try:
            found = examine(place)
            holds, findings = found.holds, found.rows()
            told = _holding(found)
            if not holds:
                first = found.broken[0]
                told = f"{len(found.broken)} of {len(findings)} do not hold, first {first.what}: {first.text}"
        except Lw2gError as error:
            holds, findings, told = False, [], str(error)
        entries.append({"run": str(place), "holds": holds, "findings": findings, "told": told})
        if not as_json:
            click.echo(printable(f"{'holds' if holds else 'FAILS'}  {place}: {told}"))
    if as_json:
        click.echo(json.dumps(entries, indent=1))
    broken = sum(not entry["holds"] for entry in entries)
    if not as_json:
        count = counted(len(entries), "run")
        click.echo(f"{broken} of {count} do not hold" if broken else f"all hold ({count})")
    return not broken
