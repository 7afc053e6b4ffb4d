"""The command that trains on the images of which `lw2g start` made a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.api.arguments import as_typed, for_folder
from lw2g.config.describe import plain
from lw2g.pixels.found_images import named_folders

__all__ = ["training_command"]

_OF_BOXES = {"boxes": None, "margin": 0, "min_side": 0, "square": True}
"""Options that say how boxes become images, and what they are where nobody gave them."""


def training_command(folder: Path, classes: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    """Return the command that trains on the images of a first model; empty where none can.

    Args:
        folder: The folder, as it was given.
        classes: What was learned of each class, with its number of ``images``.
        options: Those of the command that made the model.
    """
    fewest = min(entry["images"] for entry in classes)
    if len(classes) < 2 or fewest < 2:  # one image of each class tests
        return ""
    given = {name: options[name] for name in ("backbone", "weights") if options[name] is not None}
    typed = given | for_folder(_root_of(folder), ("backbone.name",), len(classes))
    for name, default in _OF_BOXES.items():
        value = options[name]
        if value != default:
            typed[f"benchmark.{name}"] = plain(value) if isinstance(value, bool) else value
    if options["image_size"] is not None:
        typed["backbone.image_size"] = options["image_size"]
    return f"lw2g run --trained {as_typed(typed)}"


def _root_of(folder: Path) -> Path:
    """Return the folder, or the one above where that has its classes in ``test/``, too."""
    test = folder.parent / "test"
    if folder.name != "train" or not test.is_dir():
        return folder
    return folder.parent if named_folders(test).keys() == named_folders(folder).keys() else folder
