"""What ``lw2g show`` prints of an exported model: what it is made of, what it knows, what it has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lw2g.errors import counted
from lw2g.runtime.console import printable

if TYPE_CHECKING:
    from lw2g.model.manifest import Manifest

__all__ = ["print_model"]


def print_model(manifest: Manifest) -> None:
    """Print what a model is made of, its classes, and a line for each step of learning."""
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
    for step in manifest.history.steps:
        day, _, clock = step.time.partition("T")
        line = f"{day} {clock[:5]}: learned {counted(sum(step.images), 'image')} of {', '.join(step.classes)}"
        accuracy = step.checks.get("accuracy")
        if accuracy is not None:
            line += f"; accuracy {accuracy:.1f} %"
        lines.append(line)
    for line in lines:
        click.echo(printable(line))
