"""``lw2g new-plugin`` writes a small package with a working component."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["new_plugin"]

_KINDS = (
    "baseline",
    "head",
    "carry",
    "policy",
    "evidence",
    "constraint",
    "retrieval",
    "benchmark",
    "backbone",
    "tracker",
    "metric",
)


@click.command("new-plugin", short_help="Write a plugin package to start from.")
@click.argument("name")
@click.option("--kind", type=click.Choice(_KINDS), required=True, help="What the plugin offers.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="The package's folder (default: ./NAME)."
)
def new_plugin(name: str, kind: Any, out: Path | None) -> None:
    """Write an installable package with a small working component called NAME, and its tests.

    NAME is kebab-case, such as my-method. It names the component, the distribution and the folder.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.scaffold.package import Scaffold, check_name, write_package

    check_name(name, load_catalogue())
    scaffold = Scaffold(name=name, kind=kind)
    directory = out or Path(name)
    for path in write_package(scaffold, directory):
        click.echo(f"  {path}")
    click.echo("next:")
    click.echo(f'  python -m pip install -e "{directory}[test]"')
    click.echo(f"  python -m pytest -q {directory}")
    for command in scaffold.next_steps(directory):
        click.echo(f"  {command}")
