"""What ``lw2g show`` prints of an exported model: what it is made of, what it knows, what it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from lw2g.api.recorded import check_of, head_of, leading_check, words_of_choice
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
    if check := check_of(manifest):
        lines.append(f"accuracy: {check.words}")
    head = head_of(manifest)
    features = manifest.backbone.name
    if manifest.preprocessing is not None:
        features += f" at {manifest.preprocessing.size} pixels"
    method = f"baseline {manifest.baseline.name}"
    weights = f"weights: {manifest.backbone.weights or manifest.weights_name}"
    # a formula is chosen for photos; a head that is trained belongs to its method
    lines.append(f"formula {head}, backbone {features}" if head else f"{method}, backbone {features}")
    if whole:
        lines += _of_choice(manifest)
        lines += [method, weights] if head else [weights]
    for line in lines:
        click.echo(printable(line))
    if whole:
        _print_classes(manifest)


def _of_choice(manifest: Manifest) -> list[str]:
    """Return in a line what the formula was chosen among; nothing where the last step has not chosen."""
    steps = manifest.history.steps
    choice = steps[-1].checks.get("choice") if steps else None
    return [words_of_choice(choice)] if choice else []


def _print_classes(manifest: Manifest) -> None:
    """Print tables of what checks say of each class.

    Each image that the model keeps is left out in turn, of all classes. Images that a step has set apart are
    told where they lead, and of a model by an earlier lw2g, which did not note the others.
    """
    steps = manifest.history.steps
    left_out = steps[-1].checks.get("left_out_classes", []) if steps else []
    if left_out:
        now = []
        for entry in left_out:
            taken_for = ", ".join(f"{name} ({count})" for name, count in entry["taken_for"])
            now.append((entry["class"], taken_for, str(entry["left_out"]), number(entry["recall"], 0)))
        click.echo("the model now, each image left out in turn:")
        print_table("", ("class", "taken for", "images", "found %"), now, left=2)
    for number_of_step, step in enumerate(steps, start=1):
        check = leading_check(step.checks, has_old_classes=number_of_step > 1)
        if left_out and (check is None or check.leaves_out):
            continue
        rows = [_row(entry) for entry in step.checks.get("classes", ())]
        columns = ("class", "taken for", "images", "checked", "found %")
        print_table(f"step {number_of_step}, images set apart", columns, rows, left=2)


def _in_a_line(step: Step) -> str:
    """Return when a model learned what, and from which folder."""
    day, _, clock = step.time.partition("T")
    line = f"{day} {clock[:5]}: learned {counted(sum(step.images), 'image')} of {', '.join(step.classes)}"
    # steps of an earlier lw2g do not say where the images lay
    if learned_from := step.checks.get("learned_from"):
        line += f" from {learned_from}"
    return line


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the checks of a step have noted of a class."""
    return (
        entry["class"],
        ", ".join(entry["taken_for"]),
        str(entry["images"]),
        str(entry["checked"]),
        number(entry["recall"], 0),
    )
