"""``lw2g new-plugin`` writes a small package with a working component or command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.api import plugins
from lw2g.cli.signature import help_of, option_of

__all__ = ["new_plugin"]


@click.command("new-plugin", help=help_of(plugins.new_plugin))
@click.argument("name")
@option_of(plugins.new_plugin, "kind", type=click.Choice(plugins.SCAFFOLDED_KINDS), required=True)
@option_of(plugins.new_plugin, "out", metavar="DIR")
def new_plugin(name: str, kind: Any, out: Path | None) -> None:
    """Print the files, and what to do with them."""
    files, next_steps = plugins.new_plugin(name, kind=kind, out=out)
    for path in files:
        click.echo(f"  {path}")
    click.echo("next:")
    for command in next_steps:
        click.echo(f"  {command}")
