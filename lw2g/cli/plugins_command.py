"""``lw2g plugins`` gives an overview of all components, lists those of a kind, or describes one."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.api.plugins import (
    KINDS,
    OWN_SECTIONS,
    commands,
    components,
    describe,
    meaning_of_kind,
    summary_of,
)
from lw2g.cli.completion import complete_component
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of
from lw2g.errors import counted
from lw2g.runtime.console import print_wrapped, printable

if TYPE_CHECKING:
    from lw2g.api.plugins import Description
    from lw2g.interfaces.component import Kind
    from lw2g.registry.catalogue import Registered
    from lw2g.registry.command_set import RegisteredCommand
    from lw2g.registry.manager import Origin, Problem

__all__ = ["plugins"]

_NAMES = (*KINDS, *OWN_SECTIONS)
"""What is no component's name."""
_WIDTH = 100
"""Columns of an overview and of a list; fewer on a terminal that has fewer."""
_OURS = (
    "With a kind, such as baseline, head or policy, it lists the components of that kind; with a name behind "
    "the kind, it describes that one."
)


@click.command(
    help=help_of(components, _OURS, help_of(describe)),
)
@click.argument("name", metavar="[KIND|NAME]", required=False, shell_complete=complete_component(also=_NAMES))
@click.argument("one", metavar="[NAME]", required=False)
@json_option("Print a JSON list.")
def plugins(name: str | None, one: str | None, as_json: bool) -> None:
    """Print a line per kind, a line per component of a kind, or all that the records of some say."""
    # several of a kind are meant, and its name says one
    kind = next((kind for kind in KINDS if name in (kind, counted(2, kind).partition(" ")[2])), None)
    if one is not None and kind is None:
        raise click.UsageError(f"{name!r} is no kind; options of a component: lw2g plugins {one}")
    if name is None or (kind is not None and one is None):
        _print_kinds(kind, as_json=as_json)
        return
    described = describe(one or name, kind=kind)
    if as_json:
        click.echo(json.dumps([_described(component) for component in described], indent=1))
        return
    for component in described:
        _print_detail(component)


def _print_kinds(only: Kind | None, *, as_json: bool) -> None:
    """Print what there is of each kind, or of one, and what is wrong with plugins."""
    catalogue = components()
    found = commands()
    of_others = {}
    for typed, entry in found.entries.items():
        if not entry.origin.first_party:  # those of lw2g are what `lw2g --help` shows
            of_others[typed] = entry
    by_kind: dict[str, list[Registered]] = {}
    for one in catalogue.components():
        if only in (None, one.component.kind):
            by_kind.setdefault(one.component.kind, []).append(one)
    if only == "metric":  # with those of lw2g itself, which come from no plugin
        by_kind[only] = list(catalogue.metrics)
    if as_json:
        listed = [_listed(one) for of_kind in by_kind.values() for one in of_kind]
        if only is None:
            listed += [_listed_command(typed, entry) for typed, entry in of_others.items()]
        click.echo(json.dumps(listed, indent=1))
        return
    if only is None:
        _print_overview(by_kind, of_others)
    else:
        _print_kind(only, by_kind.get(only, []))
    _print_problems(catalogue.disabled, [*catalogue.problems, *found.problems])


def _print_overview(
    by_kind: Mapping[str, Sequence[Registered]], of_others: Mapping[str, RegisteredCommand]
) -> None:
    """Print a line for each kind: how many components there are, and as many names as fit."""
    listed: dict[str, list[str]] = {}
    for kind in KINDS:
        # those of other packages first: a line has room for some
        entries = sorted(by_kind.get(kind, ()), key=lambda entry: entry.origin.first_party)
        if entries:
            listed[kind] = [_name(entry.component.name, entry.origin) for entry in entries]
    if of_others:
        listed["command"] = [_name(typed, entry.origin) for typed, entry in of_others.items()]
    width = max(map(len, listed), default=0)
    for kind_or_command, names in listed.items():
        line = f"{kind_or_command.ljust(width)}  {len(names):>3}  "
        click.echo(printable(line + _as_fits(names, _width() - len(line))))
    click.echo("\nwhat they are: lw2g plugins KIND, such as baseline; options of one: lw2g plugins NAME")


def _print_kind(kind: Kind, entries: Sequence[Registered]) -> None:
    """Print what a kind is, and each component with its summary."""
    click.echo(textwrap.fill(meaning_of_kind(kind), _width()) + "\n")
    summaries = {}
    for entry in entries:
        summaries[_name(entry.component.name, entry.origin)] = summary_of(entry.component)
    width = max(map(len, summaries), default=0)
    indent = " " * (width + 2)
    width_of_line = _width()
    for name, summary in summaries.items():
        for line in textwrap.wrap(f"{name.ljust(width)}  {summary}", width_of_line, subsequent_indent=indent):
            click.echo(printable(line))
    if kind != "metric":  # a metric has no options
        click.echo("\noptions of one: lw2g plugins NAME")


def _name(name: str, origin: Origin) -> str:
    """Return a name, with the package that brings it where that is not lw2g."""
    if origin.first_party:
        return name
    return f"{name} ({origin.distribution or origin.plugin})"


def _width() -> int:
    """Return how many columns a line may have."""
    return min(_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _WIDTH


def _as_fits(names: Sequence[str], width: int) -> str:
    """Return as many names as fit into some columns, and how many there are beside."""
    for count in range(len(names), 0, -1):
        left = len(names) - count
        text = ", ".join(names[:count]) + (f" and {left} more" if left else "")
        if len(text) <= width or count == 1:
            return text
    return ""


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
    print_wrapped(f"{one.kind} {one.name}: {one.summary}")
    if one.origin is not None:
        print_wrapped(f"from: {one.origin}", indent="  ")
    if one.citation:
        print_wrapped(f"citation: {one.citation}", indent="  ")
    for line in one.traits:
        print_wrapped(line, indent="  ")
    click.echo("  options:" if one.options else "  no options")
    for option in one.options:
        print_wrapped(f"{option.name}: {option.facts()}", indent="    ")
        if option.help:
            print_wrapped(option.help, indent="        ")
    for line in one.notes:
        print_wrapped(line, indent="  ")
