"""``lw2g runs`` lists the runs below a directory with their states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.errors import ConfigError, counted, nearest

if TYPE_CHECKING:
    from lw2g.registry.catalogue import Catalogue
    from lw2g.reports.runs import ReportedRun

__all__ = ["runs"]

_COLUMNS = ("run", "baseline", "policy", "benchmark", "backbone", "seed", "state", "task", "FAA")


@click.command(short_help="List the runs below a directory.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--where",
    "conditions",
    metavar="KEY=VALUE",
    multiple=True,
    help="Only runs with this option value (policy=min, growth.energy=0.9) or state=...; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def runs(ctx: click.Context, directory: Path, conditions: Sequence[str], as_json: bool) -> None:
    """List the runs in and below DIR, from their records alone.

    The exit code is 1 if any run is damaged, even one that --where excludes.
    """
    from lw2g.api import runs as find

    everything = find(directory).runs
    _list([(run, {**run.options, "state": run.state}) for run in everything], directory, conditions, as_json)
    problems = [run.problem for run in everything if run.state == "damaged"]
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    ctx.exit(1 if problems else 0)


def _list(
    entries: list[tuple[ReportedRun, dict[str, Any]]],
    directory: Path,
    conditions: Sequence[str],
    as_json: bool,
) -> None:
    """Print the runs that meet all conditions."""
    for text in conditions:
        key, value = _condition(text)
        keys = {name for _, values in entries for name in values}
        if entries and key not in keys:
            raise ConfigError(
                f"--where: no run has an option {key!r}{nearest(key, keys)}", "write it like seed=0"
            )
        entries = [
            (run, values) for run, values in entries if value in (values.get(key), str(values.get(key)))
        ]
    if as_json:
        click.echo(json.dumps([_plain(run) for run, _ in entries], indent=1))
        return
    from lw2g.console.output import console, table
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    rows = [_row(run, directory, catalogue) for run, _ in entries]
    console().print(table("", _COLUMNS, rows, left=5))
    click.echo(counted(len(entries), "run"))


def _condition(text: str) -> tuple[str, Any]:
    """Return key and value of a condition.

    Raises:
        ConfigError: The text is not a condition.
    """
    from lw2g.config.toml import parse_value
    from lw2g.sweeps.grid import settings_of

    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(
            f"--where: expected KEY=VALUE but got {text!r}", "write it like baseline=hide-prompt"
        )
    if key == "state":
        return key, value
    ((dotted, wanted),) = settings_of({key: parse_value(value)}, "--where").items()
    return dotted, wanted


def _row(run: ReportedRun, base: Path, catalogue: Catalogue) -> tuple[str, ...]:
    from lw2g.console.output import number

    options = run.options
    named = {
        part: str(options.get(f"{part}.name", "?"))
        for part in ("baseline", "policy", "benchmark", "backbone")
    }
    if not catalogue.grows(named["baseline"]):
        named["policy"] = "-"  # nothing decides on sets that the method does not have
    path = run.path.relative_to(base) if run.path != base else run.path
    task = f"{run.done}/{run.tasks or '?'}"
    return (
        str(path),
        *named.values(),
        str(options.get("run.seed", "?")),
        run.state,
        task,
        number(run.metric("faa")),
    )


def _plain(run: ReportedRun) -> dict[str, Any]:
    fields = ("state", "done", "tasks", "remaining", "options")
    parts = {name: run.record.get(name, {}) for name in ("metrics", "seconds")}
    return {"path": str(run.path)} | {name: getattr(run, name) for name in fields} | parts
