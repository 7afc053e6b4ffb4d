"""``lw2g plugins`` lists all components and the problems with plugins, or describes one component."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.api.plugins import KINDS, OWN_SECTIONS, commands, components, describe, summary_of
from lw2g.cli.completion import complete_component
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of
from lw2g.runtime.console import console, table

if TYPE_CHECKING:
    from lw2g.api.plugins import Description
    from lw2g.registry.catalogue import Registered
    from lw2g.registry.command_set import RegisteredCommand
    from lw2g.registry.manager import Origin, Problem

__all__ = ["plugins"]

_COLUMNS = ("name", "summary", "plugin", "distribution")
_OURS = "Components marked with * come with lw2g itself; commands of other packages are listed, too."


@click.command(
    help=help_of(components, help_of(describe), _OURS),
)
@click.argument("name", required=False, shell_complete=complete_component(also=tuple(OWN_SECTIONS)))
@json_option("Print a JSON list.")
def plugins(name: str | None, as_json: bool) -> None:
    """Print a table per kind, or all that the records of some components say."""
    if name is None:
        catalogue = components()
        found = commands()
        of_others = {}
        for typed, entry in found.entries.items():
            if not entry.origin.first_party:  # those of lw2g are what `lw2g --help` shows
                of_others[typed] = entry
        if as_json:
            listed = [_listed(entry) for entry in catalogue.components()]
            listed += [_listed_command(typed, entry) for typed, entry in of_others.items()]
            click.echo(json.dumps(listed, indent=1))
            return
        _print_list(catalogue.components())
        _print_commands(of_others)
        _print_problems(catalogue.disabled, [*catalogue.problems, *found.problems])
        return
    described = describe(name)
    if as_json:
        click.echo(json.dumps([_described(one) for one in described], indent=1))
        return
    for one in described:
        _print_detail(one)


def _listed(entry: Registered) -> dict[str, Any]:
    """Return the entry of a component in the JSON that lists all."""
    component = entry.component
    return {
        "kind": component.kind,
        "name": component.name,
        "summary": component.summary,
        **attrs.asdict(entry.origin),
        "citation": component.citation,
    }


def _listed_command(typed: str, entry: RegisteredCommand) -> dict[str, Any]:
    return {"kind": "command", "name": typed, "summary": entry.command.help, **attrs.asdict(entry.origin)}


def _described(one: Description) -> dict[str, Any]:
    """Return the JSON that describes a component with its options."""
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
            console().print(table(kind, _COLUMNS, rows, left=4))


def _row(entry: Registered) -> tuple[str, ...]:
    mark = " *" if entry.origin.first_party else ""
    return f"{entry.component.name}{mark}", summary_of(entry.component), *_places(entry.origin)


def _print_commands(entries: Mapping[str, RegisteredCommand]) -> None:
    rows = [(typed, entry.command.help, *_places(entry.origin)) for typed, entry in entries.items()]
    if rows:
        console().print(table("command", _COLUMNS, rows, left=4))


def _places(origin: Origin) -> tuple[str, str]:
    """Return plugin and distribution."""
    return origin.plugin, f"{origin.distribution or '-'} {origin.version or ''}".rstrip()


def _print_problems(disabled: Sequence[str], problems: Sequence[Problem]) -> None:
    """Print which plugins are left out, and what is wrong with others, each line once."""
    if disabled:
        click.echo(f"left out by LW2G_DISABLE_PLUGINS: {', '.join(disabled)}")
    # a package that offers components and commands may be broken as a whole
    lines = dict.fromkeys(map(str, problems))
    if lines:
        click.echo("problems with plugins:")
    for line in lines:
        click.echo(f"  {line}")


def _print_detail(one: Description) -> None:
    """Print what a component is, where it is from, and its options."""
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
