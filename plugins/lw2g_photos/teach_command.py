"""``lw2g teach``: teach a model from a page in the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

import click

from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import help_of, option_of, options_of
from lw2g.errors import as_word
from lw2g_photos import photographs
from lw2g_photos.step_words import as_typed

__all__ = ["teach"]


_ANY_MODEL = "MODEL is a model of `lw2g start`, or an exported one."
_EXAMPLES = "lw2g teach model\nlw2g teach --backbone vit-tiny     # the first images make the model"


@click.command(help=f"\b\n{_EXAMPLES}\n\n{help_of(photographs.teach, _ANY_MODEL)}")
@click.argument("model", metavar="[MODEL]", type=AnyPath(path_type=Path, file_okay=False), required=False)
@options_of(photographs.teach, "backbone")
@option_of(photographs.teach, "port", type=click.IntRange(0, 65535), metavar="N")
@click.option("--no-browser", is_flag=True, help="Only print the address; open no browser.")
@options_of(photographs.teach, "weights", "device")
def teach(model: Path | None, no_browser: bool, **options: Any) -> None:
    """Print the page's address, and open it if somebody sits there."""

    def show(address: str) -> None:
        click.echo(f"{address}\nCtrl-C ends it")
        if sys.stdout.isatty() and not no_browser:  # a script or a remote machine has no browser to open
            webbrowser.open(address)

    try:
        taught = photographs.teach(model, on_address=show, **options)
    except KeyboardInterrupt:
        # once more: a thread may still compute, and an interpreter that ends by itself would abort in it
        click.echo("\nerror: interrupted", err=True)
        os._exit(130)
    if taught is None:
        click.echo("\nno model was made")
        return
    place = as_typed(str(taught))
    click.echo(f"\nthe model is {place}\ngo on: lw2g teach {as_word(place)}")
