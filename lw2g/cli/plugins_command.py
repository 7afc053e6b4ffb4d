"""``lw2g plugins`` lists all components and the problems with plugins, or describes one component."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.api.plugins import KINDS, OWN_SECTIONS, components, describe, summary_of
from lw2g.cli.completion import complete_component
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of
from lw2g.runtime.console import console, table

if TYPE_CHECKING:
    from lw2g.api.plugins import Description
    from lw2g.registry.catalogue import Catalogue, Registered

__all__ = ["plugins"]

_OURS = "Components marked with * come with lw2g itself."


@click.command(
    short_help="List all components, or describe one.",
    help=help_of(components, help_of(describe), _OURS),
)
@click.argument("name", required=False, shell_complete=complete_component(also=tuple(OWN_SECTIONS)))
@json_option("Print a JSON list.")
def plugins(name: str | None, as_json: bool) -> None:
    """Print a table per kind, or all that the records of some components say."""
    if name is None:
        catalogue = components()
        if as_json:
            click.echo(json.dumps([_listed(entry) for entry in catalogue.components()], indent=1))
            return
        _print_list(catalogue.components())
        _print_problems(catalogue)
        return
    described = describe(name)
    if as_json:
        click.echo(json.dumps([_described(one) for one in described], indent=1))
        return
    for one in described:
        _print_detail(one)


def _listed(entry: Registered) -> dict[str, Any]:
    component = entry.component
    return {
        "kind": component.kind,
        "name": component.name,
        "summary": component.summary,
        **attrs.asdict(entry.origin),
        "citation": component.citation,
    }


def _described(one: Description) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": one.kind, "name": one.name, "summary": one.summary}
    if one.origin is not None:
        content |= {**attrs.asdict(one.origin), "citation": one.citation}
    if one.kind == "backbone":
        content["facts"] = list(one.traits)
    content["options"] = [attrs.asdict(option) for option in one.options]
    return content


def _print_list(entries: Sequence[Registered]) -> None:
    for kind in KINDS:
        rows = [_row(entry) for entry in entries if entry.component.kind == kind]
        if rows:
            console().print(table(kind, ("name", "summary", "plugin", "distribution"), rows, left=4))


def _row(entry: Registered) -> tuple[str, ...]:
    origin = entry.origin
    mark = " *" if origin.first_party else ""
    distribution = f"{origin.distribution or '-'} {origin.version or ''}".rstrip()
    return f"{entry.component.name}{mark}", summary_of(entry.component), origin.plugin, distribution


def _print_problems(catalogue: Catalogue) -> None:
    if catalogue.disabled:
        click.echo(f"left out by LW2G_DISABLE_PLUGINS: {', '.join(catalogue.disabled)}")
    if catalogue.problems:
        click.echo("problems with plugins:")
    for problem in catalogue.problems:
        click.echo(f"  {problem}")


def _print_detail(one: Description) -> None:
    click.echo(f"{one.kind} {one.name}: {one.summary}")
    if one.origin is not None:
        click.echo(f"  from: {one.origin}")
    if one.citation:
        click.echo(f"  citation: {one.citation}")
    for line in one.traits:
        click.echo(f"  {line}")
    if one.options:
        rows = [option.texts() for option in one.options]
        columns = ("option", "type", "default", "range", "published", "help")
        console().print(table("", columns, rows, left=6))
    else:
        click.echo("  no options\n")
    for line in one.notes:
        click.echo(f"  {line}")
