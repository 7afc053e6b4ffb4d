"""``lw2g doctor``: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from lw2g.cli.output import console

if TYPE_CHECKING:
    from lw2g.doctor.finding import Finding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


@click.command(short_help="Say what is wrong with this installation, and what to do.")
@click.option("--network", is_flag=True, help="Also ask whether the hub of weights answers.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def doctor(network: bool, as_json: bool) -> None:
    """Look at this machine and installation, and say what to do about each thing that is not as it should be.

    Machine, packages, devices, precision, plugins, weights, data, and one small run: some twenty seconds.
    Nothing is fetched. The exit code is 1 where something is a problem; notes alone leave it 0.
    """
    from lw2g.doctor.examination import examine

    findings = examine(network=network)
    found = list(findings) if as_json else _print(findings)
    if as_json:
        click.echo(json.dumps([attrs.asdict(finding) for finding in found], indent=1))
    if any(finding.status == "problem" for finding in found):
        raise click.exceptions.Exit(1)


def _print(findings: Iterable[Finding]) -> Sequence[Finding]:
    """Print findings as they come, under the name of their area, and return them."""
    from rich.table import Table
    from rich.text import Text

    out, area = console(), ""
    found: list[Finding] = []
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
        found.append(finding)
    counts = Counter(finding.status for finding in found)
    out.print(Text(f"\n{_count(counts['problem'], 'problem')}, {_count(counts['note'], 'note')}"))
    return found


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
