"""What a command says of a head that was chosen. Importing it imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["words_of_choice"]


def words_of_choice(choice: Mapping[str, Any]) -> str:
    """Return in a line which head was taken, and what the others would be.

    Args:
        choice: As the report has it.
    """
    others = []
    for entry in choice["tried"]:
        if (entry["head"], entry["layers"]) != (choice["head"], choice["layers"]):
            others.append(_figure(entry))
    words = f"head: {_figure(choice)}"
    if others:
        words += f" ({', '.join(others)})"
    if choice["accuracy"] is None:
        return f"{words}: the smallest, for too few images tell them apart"
    words += f" of {choice['images']} images, each left out in turn"
    best = max(entry["accuracy"] for entry in choice["tried"])
    if best > choice["accuracy"]:
        words += f"; the smallest within a standard error ({choice['standard_error']:.1f}) of the best"
    return words


def _figure(entry: Mapping[str, Any]) -> str:
    """Return a head with its layers and its accuracy."""
    layers = "" if entry["layers"] == 1 else f" on {entry['layers']} layers"
    accuracy = "" if entry["accuracy"] is None else f" {entry['accuracy']:.1f} %"
    return f"{entry['head']}{layers}{accuracy}"
