"""What a run would cost, as text or JSON: the ``--dry-run`` of ``lw2g run``."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from lw2g.cli.output import console, in_units, table

if TYPE_CHECKING:
    from lw2g.config.model import Resolved
    from lw2g.registry.catalogue import Catalogue
    from lw2g.training.costs.estimate import Estimate, Range

__all__ = ["bytes_text", "print_estimate", "tell_cost", "time_text"]

_MADE = {
    "rehearsed": "rehearsed: a few steps of every kind were measured",
    "counted": "counted: passes through the backbone's blocks, priced by what one takes",
}
_ACCURACY = "within 30 % on a machine that does nothing else"


def tell_cost(
    resolved: Resolved, catalogue: Catalogue, *, tasks: int | None, runs: int, as_json: bool
) -> None:
    """Estimate runs of an experiment, one per seed, and print the result; nothing is run or written."""
    from lw2g.training.costs.estimate import Estimator

    found = Estimator(catalogue)(resolved.config, tasks=tasks).times(runs)
    if as_json:
        click.echo(json.dumps(found.as_mapping(), indent=1))
    else:
        print_estimate(found)


def print_estimate(found: Estimate) -> None:
    """Print an estimate as a table, and what is missing with its remedies."""
    rows = [("time", time_text(found.seconds))]
    rows += [(f"  {part}", time_text(seconds)) for part, seconds in found.parts.items()]
    rows += [("memory, at most", bytes_text(found.memory))]
    if found.device_memory is not None:
        rows += [("memory of the device, at most", bytes_text(found.device_memory))]
    rows += [
        ("disk", bytes_text(found.disk)),
        ("parameter sets", _count(found.sets)),
        ("parameters trained per task", _count(found.trained)),
        ("parameters stored", _count(found.stored)),
        ("FLOPs per training image", _flops(found.training_flops)),
        ("FLOPs per test image", _flops(found.inference_flops)),
    ]
    train, test = found.images
    runs = f"{found.runs} runs of " if found.runs > 1 else ""
    title = f"{runs}{found.tasks} tasks, {train} training and {test} test images, on {found.device}"
    console().print(table(title, ("", "estimate"), rows))
    click.echo(f"{_MADE[found.method]}; {_ACCURACY}")
    for one in found.missing:
        click.echo(f"missing: {one.what}; {one.remedy}")
    if found.missing:
        click.echo("measured with stand-ins for what is missing: reading real images is not counted")


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def time_text(seconds: Range) -> str:
    """Return seconds as hours, minutes and seconds."""
    return _between(*(str(timedelta(seconds=round(value))) for value in (seconds.least, seconds.most)))


def bytes_text(size: Range) -> str:
    """Return bytes in the unit that suits them."""
    return _between(*(in_units(value) for value in (size.least, size.most)))


def _count(value: Range) -> str:
    return _between(*(f"{round(one):,}" for one in (value.least, value.most)))


def _flops(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
