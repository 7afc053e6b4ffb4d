"""The command that trains on the images of which `lw2g start` made a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.api.arguments import as_typed, for_folder
from lw2g.config.describe import plain
from lw2g.pixels.found_images import named_folders, split_folder

__all__ = ["training_command"]

_OF_BOXES = {"boxes": None, "margin": 0, "min_side": 0, "square": True}
"""Options that say how boxes become images, and what they are where nobody gave them."""
_AS_MEASURED = {"benchmark.test_resize": "squash", "benchmark.train_transform": "none"}
"""Options under which the gains of :mod:`lw2g_photos.training_gains` were measured."""


def training_command(folder: Path, report: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the command that trains on the images of a first model; empty where none can.

    Args:
        folder: The folder, as it was given.
        report: What was learned of each of ``classes``, with its number of ``images``; and files that are
            ``unusable``.
        options: Those of the command that made the model.
    """
    classes = report["classes"]
    fewest = min(entry["images"] for entry in classes)
    if len(classes) < 2 or fewest < 2:  # one image of each class tests
        return ""
    given = {name: options[name] for name in ("backbone", "weights") if options[name] is not None}
    root = _root_of(folder)
    typed = given | for_folder(root, ("backbone.name",), len(classes)) | _AS_MEASURED
    # a run refuses what a model leaves out
    if excluded := _ids_below(root, report["unusable"]):
        typed["benchmark.exclude"] = json.dumps(excluded, ensure_ascii=False)
    for name, default in _OF_BOXES.items():
        value = options[name]
        if value != default:
            typed[f"benchmark.{name}"] = plain(value) if isinstance(value, bool) else value
    if options["image_size"] is not None:
        typed["backbone.image_size"] = options["image_size"]
    typed["out"] = Path("runs") / root.resolve().name
    return f"lw2g run --trained {as_typed(typed)}"


def _ids_below(root: Path, files: Sequence[str]) -> list[str]:
    """Return the names that a run has for those of some files that lie below its root."""
    top = root.absolute()
    places = [Path(file).absolute() for file in files]
    below = [place.relative_to(top) for place in places if place.is_relative_to(top)]
    return [f"{root.resolve().name}/{place.as_posix()}" for place in below]


def _root_of(folder: Path) -> Path:
    """Return the folder, or the one above where that has its classes in ``test/``, too."""
    test = split_folder(folder.parent, "test")
    if folder.name.lower() != "train" or not test.is_dir():
        return folder
    return folder.parent if named_folders(test).keys() == named_folders(folder).keys() else folder
