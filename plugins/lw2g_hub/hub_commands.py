"""``lw2g push`` and ``lw2g pull``: models to and from the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import json_option
from lw2g.cli.signals import saying_what_is_left
from lw2g.cli.signature import help_of, options_of
from lw2g.errors import as_word
from lw2g.runtime.console import console, printable, table
from lw2g_hub import hub_models

__all__ = ["pull", "push"]


@click.command(help=help_of(hub_models.push))
@click.argument("model", metavar="MODEL", type=AnyPath(path_type=Path, file_okay=False))
@click.argument("repo", metavar="REPO")
@options_of(hub_models.push, "public", "learnable", "dry_run")
@json_option("Print the report as JSON.")
def push(model: Path, repo: str, as_json: bool, **options: Any) -> None:
    """Print the files, and where the model is now."""
    report = hub_models.push(model, repo, **options)
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    rows = [(name, f"{size / 1000:,.1f} kB") for name, size in report["files"].items()]
    console().print(table("", ("file", "size"), rows, left=1))
    if options["dry_run"]:
        click.echo(printable(report["card"], lines=True))
        click.echo("nothing was sent")
        return
    seen = "private" if report["private"] else "public"
    click.echo(printable(f"{report['address']} ({seen})"))


@click.command(help=help_of(hub_models.pull))
@click.argument("address", metavar="ADDRESS")
@click.argument("out", metavar="MODEL", type=AnyPath(path_type=Path))
def pull(address: str, out: Path) -> None:
    """Print where the model is now."""
    with saying_what_is_left(out):
        place = hub_models.pull(address, out)
    click.echo(printable(f"{place}: copied; lw2g show {as_word(place)} says what it knows"))
