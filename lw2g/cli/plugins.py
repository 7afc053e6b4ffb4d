"""``lw2g plugins``: all components with their origin, one in detail, and what is wrong with plugins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.cli.completion import complete_component
from lw2g.cli.output import console, table
from lw2g.errors import PluginError, UnknownComponentError, nearest
from lw2g.interfaces.component import (
    KINDS,
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    PolicyComponent,
)

if TYPE_CHECKING:
    from lw2g.config.describe import OptionDescription
    from lw2g.registry.catalogue import Catalogue, Registered

__all__ = ["differences", "plugins", "traits"]


@click.command(short_help="List all components, or describe one.")
@click.argument("name", required=False, shell_complete=complete_component(also=("growth", "routing", "run")))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def plugins(name: str | None, as_json: bool) -> None:
    """List all components with their origin, or describe those called NAME.

    `growth` and `run` describe the options that belong to no component: how spaces and evidence are made, and
    seed, device and the like.

    Components marked with * come with lw2g itself. Problems with plugins are listed at the end; they never
    keep the other plugins from working.
    """
    from lw2g.config.describe import OWN_SECTIONS
    from lw2g.registry.catalogue import load_catalogue

    if name is not None and name in OWN_SECTIONS:
        _tell_section(name, as_json=as_json)
        return
    catalogue = load_catalogue()
    entries = catalogue.components() if name is None else _called(catalogue, name)
    if as_json:
        click.echo(json.dumps([_json_entry(entry, detailed=name is not None) for entry in entries], indent=1))
    elif name is None:
        _print_list(entries)
        _print_problems(catalogue)
    else:
        for entry in entries:
            _print_detail(entry)


def _tell_section(name: str, *, as_json: bool) -> None:
    """Describe the options of a section that belongs to no component."""
    from lw2g.config.describe import OWN_SECTIONS, describe_options

    options = describe_options(OWN_SECTIONS[name])
    summary = str(OWN_SECTIONS[name].__doc__).partition("\n")[0]
    if as_json:
        entry = {"kind": "section", "name": name, "summary": summary}
        click.echo(json.dumps([entry | {"options": [attrs.asdict(option) for option in options]}], indent=1))
        return
    click.echo(f"section {name}: {summary}")
    _print_options(options)


def _called(catalogue: Catalogue, name: str) -> Sequence[Registered]:
    found = [entry for entry in catalogue.components() if entry.component.name == name]
    if found:
        return found
    refused = [str(problem) for (_, other), problem in catalogue.refused.items() if other == name]
    if refused:
        raise PluginError("\n".join(refused))
    known = {entry.component.name for entry in catalogue.components()}
    raise UnknownComponentError(
        f"no component is called {name!r}{nearest(name, sorted(known))}; run `lw2g plugins` for all names"
    )


def _json_entry(entry: Registered, *, detailed: bool) -> dict[str, Any]:
    component, origin = entry.component, entry.origin
    found: dict[str, Any] = {
        "kind": component.kind,
        "name": component.name,
        "summary": component.summary,
        "plugin": origin.plugin,
        "distribution": origin.distribution,
        "version": origin.version,
        "citation": component.citation,
    }
    if detailed:
        from lw2g.config.describe import describe_options

        if isinstance(component, BackboneComponent):
            found["facts"] = list(component.facts)
        found["options"] = [attrs.asdict(option) for option in describe_options(component.config)]
    return found


def _print_list(entries: Sequence[Registered]) -> None:
    for kind in KINDS:
        rows = [
            (
                f"{entry.component.name}{' *' if entry.origin.first_party else ''}",
                entry.component.summary,
                entry.origin.plugin,
                f"{entry.origin.distribution or '-'} {entry.origin.version or ''}".rstrip(),
            )
            for entry in entries
            if entry.component.kind == kind
        ]
        if rows:
            console().print(table(kind, ("name", "summary", "plugin", "distribution"), rows, left=4))


def _print_problems(catalogue: Catalogue) -> None:
    if catalogue.disabled:
        click.echo(f"left out by LW2G_DISABLE_PLUGINS: {', '.join(catalogue.disabled)}")
    if catalogue.problems:
        click.echo("problems with plugins:")
    for problem in catalogue.problems:
        click.echo(f"  {problem}")


def _print_detail(entry: Registered) -> None:
    from lw2g.config.describe import describe_options

    component = entry.component
    click.echo(f"{component.kind} {component.name}: {component.summary}")
    click.echo(f"  from: {entry.origin}")
    if component.citation:
        click.echo(f"  citation: {component.citation}")
    for line in traits(component):
        click.echo(f"  {line}")
    _print_options(describe_options(component.config))
    for line in (*_values(component), *differences(component)):
        click.echo(f"  {line}")


def _print_options(options: Sequence[OptionDescription]) -> None:
    from lw2g.config.describe import plain

    rows = [
        (
            option.name,
            option.type,
            plain(option.default),
            option.range,
            "" if option.published is None else plain(option.published),
            option.help,
        )
        for option in options
    ]
    if rows:
        console().print(table("", ("option", "type", "default", "range", "published", "help"), rows, left=6))
    else:
        click.echo("  no options\n")


def traits(component: Component) -> Iterator[str]:
    """Yield what a record of this kind says beside name, options and citation."""
    match component:
        case BaselineComponent():
            grows = "composes with every growth policy" if component.growth == "sets" else "does not grow"
            yield f"growth: {component.growth} ({grows})"
            yield f"retrieval: {component.retrieval or 'none (makes no hard choice of a set)'}"
        case PolicyComponent():
            yield f"constraints it brings: {', '.join(component.default_constraints) or 'none'}"
            named = "by its options" if callable(component.measures) else ", ".join(component.measures)
            yield f"measures it reads: {named or 'none'}"
        case BenchmarkComponent():
            yield f"presets of baselines: {component.family}"
        case BackboneComponent():
            yield from component.facts
        case _:
            return


def _values(component: Component) -> Iterator[str]:
    """Yield the values that a baseline has for benchmarks, or what a benchmark holds equal for baselines."""
    named: dict[str, Mapping[str, Any]] = {}
    match component:
        case BaselineComponent():
            for kind, presets in (("official", component.presets), ("tuned", component.tuned)):
                named |= {f"preset {kind} {family}": values for family, values in presets.items()}
        case BenchmarkComponent(like_for_like=held) if held:
            named["like-for-like"] = held
    from lw2g.config.describe import plain

    for name, values in named.items():
        yield f"{name}: " + ", ".join(f"{key}={plain(value)}" for key, value in values.items())


def differences(component: Component) -> Iterator[str]:
    """Yield what differs from the published method whatever the options are."""
    when = {"always": "", "reuse": " (where tasks share a set)", "spaces": " (where spaces are kept)"}
    for one in component.deviations:
        yield f"differs{when[one.when]}: {one.topic} {one.value}; published: {one.published}; {one.note}"
