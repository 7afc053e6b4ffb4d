"""``lw2g doctor`` examines an installation and says how to repair it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.api.doctor import examine
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of, options_of
from lw2g.errors import counted
from lw2g.runtime.console import console

if TYPE_CHECKING:
    from lw2g.api.finding import Finding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


_EXIT = "The exit code is 1 if there is a problem; notes leave it 0."


@click.command(help=help_of(examine, _EXIT))
@options_of(examine, "quick")
@json_option("Print a JSON list.")
def doctor(quick: bool, as_json: bool) -> None:
    """Print each finding as soon as it is made."""
    findings = examine(quick=quick)  # nothing is examined before it is asked for
    shown: Sequence[Finding]
    if not as_json:
        shown = _print(findings)
    else:
        shown = list(findings)
        click.echo(json.dumps([attrs.asdict(finding) for finding in shown], indent=1))
    if any(finding.status == "problem" for finding in shown):
        raise click.exceptions.Exit(1)


def _print(findings: Iterable[Finding]) -> Sequence[Finding]:
    """Print findings as they arrive, under the name of their area, and return them."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    area = ""
    shown: list[Finding] = []
    for finding in findings:
        if finding.area != area:
            area = finding.area
            out.print(Text(area, style="bold"))
        row = Table.grid(padding=(0, 1))
        row.add_column(width=9)
        row.add_column(overflow="fold")
        row.add_row(Text(f"  {finding.status}", style=_STYLES[finding.status]), Text(finding.text))
        if finding.remedy:
            row.add_row("", Text(f"-> {finding.remedy}", style="italic"))
        out.print(row)
        shown.append(finding)
    counts = Counter(finding.status for finding in shown)
    out.print(Text(f"\n{_count(counts['problem'], 'problem')}, {_count(counts['note'], 'note')}"))
    return shown


def _count(number: int, what: str) -> str:
    if number == 0:
        return f"no {what}s"
    return counted(number, what)
