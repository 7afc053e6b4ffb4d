"""``lw2g check`` checks that components keep the promises that the framework relies on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.cli.completion import complete_component
from lw2g.cli.options import settings_option
from lw2g.console.output import console, note
from lw2g.errors import ConfigError
from lw2g.interfaces.component import KINDS, Component, Kind

if TYPE_CHECKING:
    from rich.console import Console

    from lw2g.registry.catalogue import Catalogue
    from lw2g.testing.kit import CheckResult, ContractCase

__all__ = ["check"]

_MARKS = {"passed": ("pass", "green"), "failed": ("FAIL", "bold red"), "skipped": ("skip", "yellow")}


@click.command(short_help="Check that components keep the promises the framework relies on.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_component())
@click.option("--all", "everything", is_flag=True, help="Check all components.")
@click.option("--kind", type=click.Choice(KINDS), help="Only components of this kind.")
@settings_option("An option of the checked component, such as energy=0.9; repeatable.", complete=False)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="Device of the checks that train, such as cuda; kernels are always deterministic.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def check(
    names: Sequence[str],
    everything: bool,
    kind: Kind | None,
    settings: Sequence[tuple[str, Any]],
    device: str,
    as_json: bool,
) -> None:
    """Check the components called NAME against the contract of their kind, promise by promise.

    Kinds are baseline, retrieval, policy, evidence, constraint, benchmark, backbone and tracker. Checks use
    little data and download nothing; a check that needs something this machine lacks is skipped with the
    reason. The exit code is 1 if a check fails.
    """
    from lw2g.devices.engine import open_engine
    from lw2g.testing import contract_cases, tiny_catalogue

    open_engine(device, "32-true")  # a missing device is the user's mistake, not a component's
    catalogue = tiny_catalogue()
    chosen = _chosen(catalogue, names, everything=everything, kind=kind)
    options = _options(chosen, settings)
    cases = contract_cases(*chosen, catalogue=catalogue, options=options, device=device)
    results = _run(cases, quiet=as_json)
    if as_json:
        click.echo(json.dumps([attrs.asdict(result) for result in results], indent=1))
    if catalogue.problems:
        note(f"problems with plugins: {len(catalogue.problems)}, not checked here; see `lw2g doctor`")
    if any(result.status == "failed" for result in results):
        raise click.exceptions.Exit(1)


def _chosen(
    catalogue: Catalogue, names: Sequence[str], *, everything: bool, kind: Kind | None
) -> list[Component]:
    """Return the records of the components to check.

    Raises:
        ConfigError: The command names none, or names some beside --all, or the kind has no component.
        UnknownComponentError: A name is not registered.
        PluginError: A component cannot be used as it is registered.
    """
    if everything == bool(names):
        if everything:
            raise ConfigError("--all and names exclude each other", "leave one out")
        raise ConfigError("nothing to check", "give names (`lw2g plugins` lists them) or --all")
    if everything:
        installed = [entry.component for entry in catalogue.components() if entry.component.name != "tiny"]
        components = [component for component in installed if kind in (None, component.kind)]
        if not components:
            raise ConfigError(f"no {kind or 'component'} is registered", "`lw2g doctor` says why")
        return components
    if kind is not None:
        return [catalogue.get(kind, name) for name in names]
    return [entry.component for name in names for entry in catalogue.called(name)]


def _options(chosen: Sequence[Component], settings: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the options of --set, converted to the types that the component's config declares.

    Raises:
        ConfigError: They do not fit the component, or several components are chosen.
    """
    from lw2g.config.structure import structure

    table = dict(settings)
    if not table:
        return {}
    if len(chosen) != 1:
        listed = ", ".join(f"{component.kind} {component.name}" for component in chosen)
        raise ConfigError(f"--set is for one component, not for {listed}", "name one, with --kind if need be")
    component = chosen[0]
    config, problems = structure(component.config, table)
    if problems:
        details = "; ".join(f"{key}: {text}" if key else text for key, text in problems)
        raise ConfigError(f"{component.kind} {component.name!r}: {details}")
    fields = {field.alias: field.name for field in attrs.fields(component.config)}
    return {key: getattr(config, str(fields[key])) for key in table}


def _run(cases: Sequence[ContractCase], *, quiet: bool) -> list[CheckResult]:
    """Run all cases; unless quiet, print each result under the name of its component."""
    out = console()
    results: list[CheckResult] = []
    shown: set[tuple[str, ...]] = set()
    waiting = out.status("") if out.is_terminal and not quiet else nullcontext()
    with waiting as status:
        for number, case in enumerate(cases, 1):
            if status is not None:
                component = case.subject.component
                status.update(f"{number}/{len(cases)}  {component.kind} {component.name}: {case.check.name}")
            result = case.result()
            results.append(result)
            if not quiet:
                _print(out, result, shown)
    if not quiet:
        _print_summary(out, results)
    return results


def _print(out: Console, result: CheckResult, shown: set[tuple[str, ...]]) -> None:
    """Print one result; component names and reasons to skip are printed once and then join ``shown``."""
    from rich.table import Table
    from rich.text import Text

    component = (result.kind, result.component)
    if component not in shown:
        out.print(Text(f"{result.kind} {result.component}", style="bold"))
    mark, style = _MARKS[result.status]
    row = Table.grid(padding=(0, 1))
    row.add_column(width=6)
    row.add_column(width=8, justify="right")
    row.add_column(overflow="fold")
    sentence = Text.assemble((result.check, style), f"  {result.promise}")
    row.add_row(Text(f"  {mark}", style=style), f"{result.seconds:.2f} s", sentence)
    if result.message and (result.status == "failed" or (*component, result.message) not in shown):
        row.add_row("", "", Text(f"-> {result.message}", style="italic"))
    shown |= {component, (*component, result.message)}
    out.print(row)


def _print_summary(out: Console, results: Iterable[CheckResult]) -> None:
    from rich.text import Text

    results = list(results)
    counts = Counter(result.status for result in results)
    seconds = sum(result.seconds for result in results)
    components = len({(result.kind, result.component) for result in results})
    out.print(
        Text(
            f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped: "
            f"{components} {'component' if components == 1 else 'components'} in {seconds:.1f} s"
        )
    )
    for result in results:
        if result.status == "failed":
            out.print(Text(f"  failed: {result.kind} {result.component}: {result.check}", style="red"))
