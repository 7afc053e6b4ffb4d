"""``lw2g teach``: teach a model from a page in the browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import click

from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import help_of, option_of, options_of
from lw2g_photos import photographs

__all__ = ["teach"]


@click.command(help=help_of(photographs.teach))
@click.argument("model", metavar="MODEL", type=AnyPath(path_type=Path, file_okay=False))
@option_of(photographs.teach, "port", type=click.IntRange(0, 65535))
@click.option("--no-browser", is_flag=True, help="Only print the address; open no browser.")
@options_of(photographs.teach, "weights", "device")
def teach(model: Path, port: int, no_browser: bool, weights: Path | None, device: str | None) -> None:
    """Print the page's address, and open it if somebody sits there."""

    def show(address: str) -> None:
        click.echo(f"{address}\nCtrl-C ends it")
        if sys.stdout.isatty() and not no_browser:  # a script or a remote machine has no browser to open
            webbrowser.open(address)

    taught = photographs.teach(model, port=port, weights=weights, device=device, on_address=show)
    click.echo(f"\nthe model is {taught}")
