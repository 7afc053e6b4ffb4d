"""``lw2g teach``: teach a model from a page in the browser."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from pathlib import Path

import click

__all__ = ["teach"]


@click.command(short_help="Teach a model from a page in the browser.")
@click.argument("model", metavar="MODEL", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on 127.0.0.1. [default: a free one]",
)
@click.option("--no-browser", is_flag=True, help="Only print the address; open no browser.")
@click.option("--weights", type=click.Path(path_type=Path), metavar="FILE", help="The backbone's weights.")
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:N or mps. [default: a GPU if present]")
def teach(model: Path, port: int, no_browser: bool, weights: Path | None, device: str | None) -> None:
    """Serve a page on 127.0.0.1 that teaches the exported MODEL, until Ctrl-C.

    Each step is what `lw2g learn` and `lw2g unlearn --last` do. A session leaves the models 1, 2, ... in the
    new folder MODEL-taught; MODEL stays as it is.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.teach.classroom import Classroom
    from lw2g.teach.server import Server

    classroom = Classroom(model, load_catalogue(), device=device, weights=weights)
    try:
        with Server(classroom, port) as server:
            click.echo(f"{server.address}\nCtrl-C ends it")
            if sys.stdout.isatty() and not no_browser:  # a person sits there
                webbrowser.open(server.address)
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    finally:  # SIGTERM, too, leaves no photo behind
        classroom.close()
    click.echo(f"\nthe model is {classroom.state()['folder']}")
