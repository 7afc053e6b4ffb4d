"""Whether the history of a model that goes on learning belongs to the model in the same folder.

A checksum shows that files are unchanged, not that lw2g wrote them, and a step reads features by the numbers
that the history gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
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
    kinds = ["features"]
    # of the layers that other heads read
    kinds += sorted({"/".join(key.split("/")[:2]) for key in learned if key.startswith("tried/")})
    expected: dict[str, int] = {}
    for number, step in enumerate(manifest.history.steps):
        for place, count in enumerate(step.images):
            expected |= {f"{kind}/{number}/{place}": count for kind in kinds}
    widths: dict[str, set[Any]] = {kind: set() for kind in kinds}
    for key, rows in learned.items():
        kind = "features"
        if key.startswith(("features/", "tried/")):
            kind = key.rsplit("/", 2)[0]
            if expected.pop(key, None) != len(rows):
                return f"{key!r} is of no step, or of another number of images"
        elif key.startswith("kept/"):
            # the key has the position of a class before the first step
            position = key.removeprefix("kept/")
            if not position.isdecimal() or int(position) >= manifest.num_base_classes:
                return f"{key!r} is of no class"
        else:
            continue
        widths[kind].add(rows.shape[1:])
    if expected:
        return f"{min(expected)!r} is missing"
    if any(len(of_kind) > 1 for of_kind in widths.values()):
        return "features have several widths"
    return _misfit_of_candidates(manifest, kinds[1:])


def _misfit_of_candidates(manifest: Manifest, kinds: Sequence[str]) -> str:
    """Return whether the model's head is among those that may be chosen, and their features are there.

    Args:
        manifest: The model.
        kinds: ``tried/LAYERS`` of features that are there beside those of the model's head.
    """
    candidates = manifest.history.candidates
    layers = {str(manifest.fingerprint.layers), *(kind.removeprefix("tried/") for kind in kinds)}
    if not layers <= {str(manifest.fingerprint.layers), *(str(one.layers) for one in candidates)}:
        return "there are features of layers that no head may read"
    if not candidates:
        return ""
    if manifest.history.tasks:
        return "heads may be chosen, and sums came before the first step"
    if manifest.as_candidate() not in [attrs.evolve(one, units=0) for one in candidates]:
        return "its head is none of those that it may have"
    # the smallest and the widest have features of their own, and the others the last columns of these
    wanted = {str(candidates[0].layers), str(max(one.layers for one in candidates))}
    if not wanted <= layers:
        return "features are missing that another head would read"
    return ""
