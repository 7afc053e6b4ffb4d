"""``--dry-run`` of ``lw2g run`` and ``lw2g fork``: the estimated cost of a run, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import Further
from lw2g.errors import counted
from lw2g.runtime.console import in_units, note, printable

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.lifecycle.estimate import Estimate

__all__ = ["dry_run_options", "require_dry", "tell_cost"]

F = TypeVar("F", bound=Callable[..., Any])
_DRY_RUN = "Print the run's cost and what is missing (exit code 2 if anything is); run nothing."


def dry_run_options(command: F) -> F:
    """Give a command ``--dry-run``, and ``--json`` for what that prints."""
    with_json = json_option("With --dry-run: print JSON.", cls=Further)(command)
    return click.option("--dry-run", is_flag=True, help=_DRY_RUN)(with_json)


def require_dry(*, dry_run: bool, as_json: bool) -> None:
    """Refuse JSON of a run that is no dry one.

    Raises:
        click.UsageError: It is asked for.
    """
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run; for a finished run: lw2g show RUN --json")


def tell_cost(
    experiment: Experiment, *, tasks: int | None, runs: int, as_json: bool, out: Path | None = None
) -> None:
    """Estimate the runs of an experiment, and print the result; write nothing.

    What is missing is listed; without data or weights nothing is estimated.

    Raises:
        click.exceptions.Exit: Something is missing.
    """
    cost, missing = experiment.cost(tasks=tasks, runs=runs, out=out)
    if as_json:
        click.echo(json.dumps({"missing": missing, "cost": cost and cost.as_mapping()}, indent=1))
    else:
        # not before: what cannot run would not run
        click.echo(printable(f"would run: {experiment.named}"))
        if cost is not None:
            for text in cost.notes:
                note(text)
            click.echo(printable(_in_a_line(cost)))
        for line in missing:
            click.echo(printable(f"missing: {line}"))
        if cost is None:
            click.echo("no estimate without these")
    if missing:
        raise click.exceptions.Exit(2)


def _in_a_line(cost: Estimate) -> str:
    """Return an estimate as text: what is run, and its time, memory and disk."""
    train, test = cost.images
    runs = f"{cost.runs} runs of " if cost.runs > 1 else ""
    memory = in_units(cost.memory)
    if cost.device_memory is not None:
        memory += f" and {in_units(cost.device_memory)} of the device"
    took = str(timedelta(seconds=round(cost.seconds)))
    if cost.starting:
        took += f" ({cost.starting:.0f} s of each to start)"
    return (
        f"{runs}{counted(cost.tasks, 'task')}, {train} training and {test} test images, on {cost.device}: "
        f"time {took}, memory {memory}, disk {in_units(cost.disk)} "
        f"(measured on some images of {_measured(cost)}; accurate to about 50 %)"
    )


def _measured(cost: Estimate) -> str:
    """Return which tasks an estimate rests on, and whether both of them train."""
    if cost.done + cost.tasks == 1:
        return "the first task"
    return "the first two tasks" + (", of which the first trains" if cost.trained == 1 else "")
