"""What ``lw2g show`` prints of an exported model: what it is made of, what it knows, what it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lw2g.errors import counted
from lw2g.runtime.console import console, number, printable, table

if TYPE_CHECKING:
    from lw2g.model.manifest import Manifest, Step

__all__ = ["print_model"]


def print_model(manifest: Manifest, *, whole: bool) -> None:
    """Print what a model is made of, its classes, and a line for each step of learning.

    Args:
        manifest: The model.
        whole: Whether a table follows for each step, with what its checks say of every class.
    """
    made_of = f"baseline {manifest.baseline.name}"
    if "head" in manifest.baseline.options:
        made_of += f", head {manifest.baseline.options['head']}"
    backbone = f"backbone {manifest.backbone.name}"
    if manifest.preprocessing is not None:
        backbone += f" at {manifest.preprocessing.size} pixels"
    names = manifest.class_map.target_names
    lines = [
        f"{made_of}, {backbone}",
        f"weights {manifest.backbone.weights or manifest.weights_name}",
        f"{counted(len(names), 'class')}: {', '.join(names)}",
    ]
    lines += [_in_a_line(step) for step in manifest.history.steps]
    for line in lines:
        click.echo(printable(line))
    if not whole:
        return
    for number_of_step, step in enumerate(manifest.history.steps, start=1):
        like = {
            twin["class"]: f"{twin['like']} {twin['error']:.0f} %" for twin in step.checks.get("twins", ())
        }
        rows = [_row(entry, like) for entry in step.checks.get("classes", ())]
        columns = ("class", "taken for", "looks like", "images", "checked", "found %")
        console().print(table(f"step {number_of_step}", columns, rows, left=3))


def _in_a_line(step: Step) -> str:
    """Return when a model learned what, from which folder, and what was found of which images then."""
    day, _, clock = step.time.partition("T")
    line = f"{day} {clock[:5]}: learned {counted(sum(step.images), 'image')} of {', '.join(step.classes)}"
    # steps of an earlier lw2g do not say where the images lay
    if learned_from := step.checks.get("learned_from"):
        line += f" from {learned_from}"
    accuracy = step.checks.get("accuracy")
    if accuracy is None:
        return line
    checked = sum(entry["checked"] for entry in step.checks["classes"])
    where = counted(checked, "image")
    tested_on = step.checks.get("tested_on")
    if tested_on:
        where += f" from {tested_on}"
    elif tested_on is not None:
        where = f"{checked} of them, before they were learned"
    return f"{line}; accuracy {accuracy:.1f} % of {where}"


def _row(entry: Mapping[str, Any], like: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the checks of a step have noted of a class; ``like``: what each looks like."""
    return (
        entry["class"],
        ", ".join(entry["taken_for"]),
        like.get(entry["class"], ""),
        str(entry["images"]),
        str(entry["checked"]),
        number(entry["recall"], 0),
    )
