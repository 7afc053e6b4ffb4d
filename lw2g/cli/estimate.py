"""``lw2g run --dry-run``: the estimated cost of a run, as text or JSON."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from lw2g.console.output import console, in_units, table

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.estimate.estimate import Estimate, Range

__all__ = ["bytes_text", "print_estimate", "tell_cost", "time_text"]

_ACCURACY = "measured by a few steps of the first two tasks; accurate to about 50 %"


def tell_cost(experiment: Experiment, *, tasks: int | None, runs: int, as_json: bool) -> None:
    """Estimate the runs of an experiment, one per seed, and print the result; write nothing.

    If data or weights are missing, list them and estimate nothing.
    """
    cost, missing = experiment.cost(tasks=tasks, runs=runs)
    if as_json:
        click.echo(json.dumps({"missing": missing, "cost": cost and cost.as_mapping()}, indent=1))
    elif cost is not None:
        print_estimate(cost)
    else:
        for line in missing:
            click.echo(f"missing: {line}")
        click.echo("no estimate without these")


def print_estimate(cost: Estimate) -> None:
    """Print an estimate as a table."""
    rows = [("time", time_text(cost.seconds))]
    rows += [(f"  {part}", time_text(seconds)) for part, seconds in cost.parts.items()]
    rows += [("memory, at most", in_units(cost.memory))]
    if cost.device_memory is not None:
        rows += [("memory of the device, at most", in_units(cost.device_memory))]
    rows += [
        ("disk", bytes_text(cost.disk)),
        ("parameter sets", _count(cost.sets)),
        ("parameters trained per task", f"{round(cost.trained):,}"),
        ("parameters stored", _count(cost.stored)),
        ("FLOPs per training image", _flops(cost.flops.get("training_per_image"))),
        ("FLOPs per test image", _flops(cost.flops.get("inference_per_image"))),
    ]
    train, test = cost.images
    runs = f"{cost.runs} runs of " if cost.runs > 1 else ""
    title = f"{runs}{cost.tasks} tasks, {train} training and {test} test images, on {cost.device}"
    console().print(table(title, ("", "estimate"), rows))
    click.echo(_ACCURACY)


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def time_text(seconds: Range) -> str:
    """Return seconds as hours, minutes and seconds."""
    return _between(*(str(timedelta(seconds=round(value))) for value in (seconds.least, seconds.most)))


def bytes_text(size: Range) -> str:
    """Return bytes in a suitable unit."""
    return _between(*(in_units(value) for value in (size.least, size.most)))


def _count(value: Range) -> str:
    return _between(*(f"{round(bound):,}" for bound in (value.least, value.most)))


def _flops(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
