"""``lw2g check`` checks that components keep the promises that the framework relies on."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import attrs
import click

from lw2g.api.plugins import KINDS
from lw2g.cli.completion import complete_component
from lw2g.cli.shared_options import json_option, settings_option
from lw2g.cli.signals import TRACEBACK
from lw2g.cli.signature import help_of, option_of, options_of
from lw2g.errors import counted, printable
from lw2g.runtime.console import console, note
from lw2g_testing.chosen_checks import checks_of

if TYPE_CHECKING:
    from rich.console import Console

    from lw2g_testing.cases import CheckResult, ContractCase, Subject

__all__ = ["check"]

_MARKS = {"passed": ("pass", "green"), "failed": ("FAIL", "bold red"), "skipped": ("skip", "yellow")}


_EXIT = """Once a component's code raises an error, its other checks are not tried, and --traceback shows how.
The exit code is 1 if a check fails, or a checked component's plugin has a problem."""


@click.command(
    help=help_of(checks_of, _EXIT),
)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_component())
@option_of(checks_of, "everything", "--all")
@option_of(checks_of, "kind", type=click.Choice(KINDS))
@settings_option(checks_of, complete=False)
@options_of(checks_of, "device")
@json_option("Print a JSON list.")
@click.pass_context
def check(context: click.Context, /, names: Sequence[str], as_json: bool, **options: Any) -> None:
    """Print a line per check, and at the end which have failed."""
    checks = checks_of(*names, **options)
    tracebacks = bool(context.meta.get(TRACEBACK))
    # prints as it goes: all checks take minutes
    results = _run(checks.cases, len(checks.problems), quiet=as_json, tracebacks=tracebacks)
    if as_json:
        told = [attrs.asdict(result, filter=lambda field, _: field.name != "error") for result in results]
        click.echo(json.dumps(told, indent=1))
    for problem in checks.problems:
        click.echo(f"problem: {printable(str(problem), lines=True)}", err=True)
    if checks.others:
        note(f"problems with other plugins: {len(checks.others)}; see `lw2g doctor`")
    if checks.problems or any(result.status == "failed" for result in results):
        raise click.exceptions.Exit(1)


def _run(cases: Sequence[ContractCase], problems: int, *, quiet: bool, tracebacks: bool) -> list[CheckResult]:
    """Run the cases; unless quiet, print each result under the name of its component.

    Once the code of a component has raised an error, its other checks are not tried. How many problems the
    checked plugins have is counted with the results.
    """
    from lw2g_testing.cases import RaisedError

    out = console()
    results: list[CheckResult] = []
    shown: set[tuple[str, ...]] = set()
    broken: set[Subject] = set()
    not_tried = 0
    waiting = out.status("") if out.is_terminal and not quiet else nullcontext()
    with waiting as status:
        for number, case in enumerate(cases, 1):
            if case.subject in broken:
                not_tried += 1
                continue
            if status is not None:
                component = case.subject.component
                status.update(f"{number}/{len(cases)}  {component.kind} {component.name}: {case.check.name}")
            result = case.result()
            results.append(result)
            if isinstance(result.error, RaisedError):
                broken.add(case.subject)
            if not quiet:
                _print(out, result, shown)
                if tracebacks and result.error is not None:
                    _print_traceback(out, result.error)
    if not quiet:
        _print_summary(out, results, not_tried, problems)
    return results


def _print_traceback(out: Console, error: BaseException) -> None:
    """Print how the component's code came to an error, or the check to its verdict."""
    from rich.text import Text

    lines = traceback.format_exception(error.__cause__ or error)
    out.print(Text("".join(lines)), soft_wrap=True)


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
    # many checks of a component may fail, or be skipped, for one reason: it is told once
    is_told = (*component, result.message) in shown
    if result.message and (result.status == "failed" or not is_told):
        row.add_row("", "", Text(f"-> {'as above' if is_told else result.message}", style="italic"))
    shown |= {component, (*component, result.message)}
    out.print(row)


def _print_summary(out: Console, results: Sequence[CheckResult], not_tried: int, problems: int) -> None:
    """Print how many checks passed, failed, were skipped and not tried, and at last which failed."""
    from rich.text import Text

    counts = Counter(result.status for result in results)
    seconds = sum(result.seconds for result in results)
    components = {(result.kind, result.component) for result in results}
    further = ""
    if not_tried:
        further = f", {not_tried} not tried, as they would meet the error again"
    if problems:
        further += f", {counted(problems, 'problem')}"
    out.print(
        Text(
            f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped{further}: "
            f"{counted(len(components), 'component')} in {seconds:.1f} s"
        )
    )
    # names alone: the cause stands below the check
    failed: dict[str, list[str]] = {}
    for result in results:
        if result.status == "failed":
            failed.setdefault(f"{result.kind} {result.component}", []).append(result.check)
    for component, checks in failed.items():
        out.print(Text(f"  failed: {component}: {', '.join(checks)}", style="red"), soft_wrap=True)
