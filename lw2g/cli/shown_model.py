"""What ``lw2g show`` prints of an exported model: what it is made of, what it knows, what it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lw2g.api.recorded import head_of
from lw2g.errors import counted
from lw2g.runtime.console import number, print_table, printable

if TYPE_CHECKING:
    from lw2g.model.manifest import Manifest, Step

__all__ = ["print_model"]


def print_model(manifest: Manifest, *, whole: bool) -> None:
    """Print the classes of a model, a line for each step of learning, and what it answers by.

    Args:
        manifest: The model.
        whole: Whether its method and weights follow, and for each step a table of what its checks say of
            every class.
    """
    names = manifest.class_map.target_names
    lines = [f"{counted(len(names), 'class')}: {', '.join(names)}"]
    lines += [_in_a_line(step) for step in manifest.history.steps]
    head = head_of(manifest)
    features = manifest.backbone.name
    if manifest.preprocessing is not None:
        features += f" at {manifest.preprocessing.size} pixels"
    method = f"baseline {manifest.baseline.name}"
    weights = f"weights: {manifest.backbone.weights or manifest.weights_name}"
    # whoever teaches photos asks for the head; one that is trained belongs to its method
    lines.append(f"head {head}, backbone {features}" if head else f"{method}, backbone {features}")
    if whole:
        lines += [method, weights] if head else [weights]
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
        print_table(f"step {number_of_step}", columns, rows, left=3)


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
    # an earlier lw2g noted it of the classes of the step alone
    checked = step.checks.get("checked", sum(entry["checked"] for entry in step.checks["classes"]))
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
