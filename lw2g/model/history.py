"""Whether the history of a model that goes on learning belongs to the model in the same folder.

A checksum shows that files are unchanged, not that lw2g wrote them, and a step reads features by the numbers
that the history gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lw2g.errors import DataError
from lw2g.model.manifest import Manifest

__all__ = ["misfit_of_history", "require_history"]


def require_history(manifest: Manifest, learned: Mapping[str, Tensor], directory: Path) -> None:
    """Refuse a history that is not one of its model's tasks, or whose features are not there.

    Args:
        manifest: The model.
        learned: What only learning reads of it.
        directory: Where it lies.

    Raises:
        DataError: It does not fit.
    """
    if problem := misfit_of_history(manifest, learned):
        raise DataError(
            f"the history of {str(directory)!r} does not fit its tasks: {problem}", "export it anew"
        )


def misfit_of_history(manifest: Manifest, learned: Mapping[str, Tensor]) -> str:
    """Return what does not fit; empty where all fits."""
    return (
        _misfit_of_tasks(manifest) or _misfit_of_numbers(manifest) or _misfit_of_features(manifest, learned)
    )


def _misfit_of_tasks(manifest: Manifest) -> str:
    """Return whether one task a step follows the tasks before the first step."""
    history = manifest.history
    if history.tasks < 0:
        return f"{history.tasks} tasks came before the first step"
    learned = [task.class_names for task in manifest.tasks[history.tasks :]]
    if learned != [step.classes for step in history.steps]:
        return "the steps have other classes than the tasks that they are"
    return ""


def _misfit_of_numbers(manifest: Manifest) -> str:
    """Return whether each class has a name and a number of its own, and both agree."""
    classes = manifest.class_map
    names = list(classes.target_names)
    history = manifest.history
    if classes.known != list(range(len(names))):
        return "a target has no class"
    if len(set(names)) < len(names):
        return "two classes have one name"
    if not set(history.numbers) <= set(range(len(history.names))):
        return "a class has a number that nothing names"
    if [history.names[number] for number in history.numbers] != names:
        return "classes have other names than their numbers"
    return ""


def _misfit_of_features(manifest: Manifest, learned: Mapping[str, Tensor]) -> str:
    """Return whether there are the features of each image of each step, and others of known classes alone."""
    expected = {}
    for number, step in enumerate(manifest.history.steps):
        for place, count in enumerate(step.images):
            expected[f"features/{number}/{place}"] = count
    widths = set()
    for key, rows in learned.items():
        if key.startswith("features/"):
            if expected.pop(key, None) != len(rows):
                return f"{key!r} is of no step, or of another number of images"
        elif key.startswith("kept/"):
            # the key has the position of a class before the first step
            position = key.removeprefix("kept/")
            if not position.isdecimal() or int(position) >= manifest.num_base_classes:
                return f"{key!r} is of no class"
        else:
            continue
        widths.add(rows.shape[1:])
    if expected:
        return f"{min(expected)!r} is missing"
    if len(widths) > 1:
        return "features have several widths"
    return ""
