"""``lw2g plugins`` lists all components and the problems with plugins, or describes one component."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.blocks.presets import FilePresets
from lw2g.cli.completion import complete_component
from lw2g.console.output import console, table
from lw2g.interfaces.component import (
    KINDS,
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    PolicyComponent,
)
from lw2g.interfaces.metric import Metric

if TYPE_CHECKING:
    from lw2g.config.describe import OptionDescription
    from lw2g.registry.catalogue import Catalogue, Registered

__all__ = ["aliases", "differences", "plugins", "summary_of", "traits"]


@click.command(short_help="List all components, or describe one.")
@click.argument("name", required=False, shell_complete=complete_component(also=("growth", "routing", "run")))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def plugins(name: str | None, as_json: bool) -> None:
    """List all components with their origin, or describe those called NAME.

    `growth`, `routing` and `run` describe the options that belong to no component, such as seed and device.

    Components marked with * come with lw2g itself. Problems with plugins are listed at the end; the other
    plugins keep working.
    """
    from lw2g.config.model import OWN_SECTIONS
    from lw2g.registry.catalogue import load_catalogue

    if name is not None and name in OWN_SECTIONS:
        _tell_section(name, as_json=as_json)
        return
    catalogue = load_catalogue()
    entries = catalogue.components() if name is None else catalogue.called(name)
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
    from lw2g.config.describe import describe_options
    from lw2g.config.model import OWN_SECTIONS

    options = describe_options(OWN_SECTIONS[name])
    summary = str(OWN_SECTIONS[name].__doc__).partition("\n")[0]
    if as_json:
        entry = {"kind": "section", "name": name, "summary": summary}
        click.echo(json.dumps([entry | {"options": [attrs.asdict(option) for option in options]}], indent=1))
        return
    click.echo(f"section {name}: {summary}")
    _print_options(options)


def _json_entry(entry: Registered, *, detailed: bool) -> dict[str, Any]:
    component, origin = entry.component, entry.origin
    content: dict[str, Any] = {"kind": component.kind, "name": component.name, "summary": component.summary}
    content |= {**attrs.asdict(origin), "citation": component.citation}
    if detailed:
        from lw2g.config.describe import describe_options

        if isinstance(component, BackboneComponent):
            content["facts"] = list(component.facts)
        content["options"] = [attrs.asdict(option) for option in describe_options(component.config)]
    return content


def _print_list(entries: Sequence[Registered]) -> None:
    for kind in KINDS:
        rows = [
            (
                f"{entry.component.name}{' *' if entry.origin.first_party else ''}",
                summary_of(entry.component),
                entry.origin.plugin,
                f"{entry.origin.distribution or '-'} {entry.origin.version or ''}".rstrip(),
            )
            for entry in entries
            if entry.component.kind == kind
        ]
        if rows:
            console().print(table(kind, ("name", "summary", "plugin", "distribution"), rows, left=4))


def summary_of(component: Component) -> str:
    """Return the summary, with the names by which users look for the component."""
    names = ", ".join(alias.name for alias in component.aliases)
    return f"{component.summary} (known as {names})" if names else component.summary


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
    for line in (*_values(component), *differences(component), *aliases(component)):
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
    """Yield the facts of a component's record beside name, options and citation."""
    match component:
        case BaselineComponent():
            grows = "composes with every growth policy" if component.growth == "sets" else "does not grow"
            yield f"growth: {component.growth} ({grows})"
            yield f"retrieval: {component.retrieval or 'none (makes no hard choice of a set)'}"
            if isinstance(component.presets, FilePresets):
                yield f"official values: {component.presets.source}"
        case PolicyComponent():
            yield f"constraints it brings: {', '.join(component.default_constraints) or 'none'}"
            named = "by its options" if callable(component.measures) else ", ".join(component.measures)
            yield f"measures it reads: {named or 'none'}"
        case BenchmarkComponent():
            yield f"presets of baselines: {component.family}"
        case BackboneComponent():
            yield from component.facts
        case Metric():
            yield f"computed from: {', '.join(component.needs)}; unit: {component.unit or 'none'}"
        case _:
            return


def _values(component: Component) -> Iterator[str]:
    """Yield a baseline's presets, or the values that a benchmark fixes under like-for-like."""
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


def aliases(component: Component) -> Iterator[str]:
    """Yield the names by which users look for a component, and what to type for each."""
    from lw2g.registry.catalogue import alias_text

    for alias in component.aliases:
        yield f"known as {alias.name}: {alias.differs}; {alias_text(component, alias)[1]}"


def differences(component: Component) -> Iterator[str]:
    """Yield the differences from the published method that no option changes."""
    when = {"always": "", "reuse": " (where tasks share a set)", "spaces": " (where spaces are kept)"}
    for entry in component.deviations:
        place = f"differs{when[entry.when]}: {entry.topic} {entry.value}"
        yield f"{place}; published: {entry.published}; {entry.note}"
