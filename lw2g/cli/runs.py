"""``lw2g runs``: which runs there are below a directory, and where they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.errors import ConfigError, nearest

if TYPE_CHECKING:
    from lw2g.report.runs import Run

__all__ = ["runs"]

_COLUMNS = ("run", "baseline", "policy", "benchmark", "backbone", "seed", "state", "task", "FAA")


@click.command(short_help="List the runs below a directory.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--where",
    "conditions",
    metavar="KEY=VALUE",
    multiple=True,
    help="Only runs of which this holds: an option (baseline=hide-prompt, growth.energy=0.9) or state=...; "
    "repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def runs(ctx: click.Context, directory: Path, conditions: Sequence[str], as_json: bool) -> None:
    """List the runs in and below DIR, from their records alone.

    Ends with exit code 1 if a run is damaged, whatever --where leaves out.
    """
    from lw2g.report.runs import find_runs

    everything = list(find_runs([directory], damaged=True))
    _list([(run, {**run.options, "state": run.state}) for run in everything], directory, conditions, as_json)
    problems = [run.problem for run in everything if run.state == "damaged"]
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    ctx.exit(1 if problems else 0)


def _list(
    found: list[tuple[Run, dict[str, Any]]], directory: Path, conditions: Sequence[str], as_json: bool
) -> None:
    """Print the runs of which the conditions hold."""
    for text in conditions:
        key, value = _condition(text)
        known = {name for _, values in found for name in values}
        if found and key not in known:
            raise ConfigError(
                f"--where: no run has an option {key!r}{nearest(key, known)}; write it like seed=0"
            )
        found = [(run, values) for run, values in found if value in (values.get(key), str(values.get(key)))]
    if as_json:
        click.echo(json.dumps([_plain(run) for run, _ in found], indent=1))
        return
    from lw2g.cli.output import console, table

    console().print(table("", _COLUMNS, [_row(run, directory) for run, _ in found], left=5))
    click.echo(f"{len(found)} runs")


def _condition(text: str) -> tuple[str, Any]:
    """Return key and value of a condition.

    Raises:
        ConfigError: It is none.
    """
    from lw2g.config.toml import parse_value
    from lw2g.sweep.grid import settings_of

    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--where: expected KEY=VALUE but got {text!r}; write it like baseline=hide-prompt")
    if key == "state":
        return key, value
    ((dotted, wanted),) = settings_of({key: parse_value(value)}, "--where").items()
    return dotted, wanted


def _row(run: Run, base: Path) -> tuple[str, ...]:
    from lw2g.cli.output import number

    options = run.options
    named = (
        str(options.get(f"{part}.name", "?")) for part in ("baseline", "policy", "benchmark", "backbone")
    )
    path = run.path.relative_to(base) if run.path != base else run.path
    task = f"{run.done}/{run.tasks or '?'}"
    return (str(path), *named, str(options.get("run.seed", "?")), run.state, task, number(run.metric("faa")))


def _plain(run: Run) -> dict[str, Any]:
    return {
        "path": str(run.path),
        "state": run.state,
        "done": run.done,
        "tasks": run.tasks,
        "remaining": run.remaining,
        "options": run.options,
        "metrics": run.record.get("metrics", {}),
        "seconds": run.record.get("seconds", {}),
    }
