"""What `lw2g start`, `learn` and `test` print: a line for each thing that was found."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.api.recorded import words_of_choice
from lw2g.errors import counted, share_of
from lw2g.model.places import free_folder
from lw2g.results.leading_check import ClassCheck, leading_check

__all__ = [
    "as_typed",
    "loss_words",
    "lowest_classes",
    "made_from",
    "new_folder",
    "step_lines",
]

_LOWEST = 3
"""Classes that are named beside the accuracy."""


def step_lines(report: Mapping[str, Any], before: Path | None = None) -> Iterator[str]:
    """Yield what a model has learned, and what the checks say.

    Args:
        report: Of the step.
        before: The model that took it; None where it is the first one, which knew no class.
    """
    has_old_classes = before is not None
    classes = report["classes"]
    images = sum(entry["images"] for entry in classes)
    new = [entry for entry in classes if entry["new"]]
    kinds = []
    if new:
        kinds.append(counted(len(new), "new class" if has_old_classes else "class"))
    if len(new) < len(classes):
        kinds.append(counted(len(classes) - len(new), "known class"))
    model = as_typed(report["out"])
    learned = f"learned {counted(images, 'image')} of {' and '.join(kinds)}"
    yield f"{made_from(model, before)}: {learned} in {report['seconds']:.1f} s"
    check = leading_check(report, has_old_classes=has_old_classes)
    if check is not None:
        # a candidate that was chosen by some images may look a little better on these than it is
        chose = "; they chose the head, too" if check.leaves_out and "choice" in report else ""
        yield f"accuracy: {check.words}{chose}"
        # what they are taken for is named by a note where it is many
        lowest = lowest_classes([attrs.evolve(row, taken_for=[]) for row in check.classes])
        if lowest:
            yield f"{lowest}; each class: lw2g show {shlex.quote(model)} --all"
    # later steps choose again, and say so where it is another one
    if "choice" in report and ("before" in report["choice"] or not has_old_classes):
        yield words_of_choice(report["choice"])
    if has_old_classes:
        yield loss_words(report["loss"], report["estimated_loss"])
    if report["ece"] is not None:
        yield f"calibration error of probabilities: {report['ece']:.1f} % (ECE, 15 bins)"


def made_from(model: str, before: Path | None) -> str:
    """Return a new model with the one that it was made from.

    >>> made_from("model-3", Path("model"))
    'model-3 (from model)'
    """
    return model if before is None else f"{model} (from {as_typed(str(before))})"


def loss_words(measured: float | None, estimated: float | None) -> str:
    """Return what old classes lose by a step, in points; below 0 they gain.

    >>> loss_words(3.1, 0.5)
    'loss of the old classes: 3.1 points (measured), 0.5 points (estimated)'
    >>> loss_words(-3.1, 0.5)
    'old classes gain 3.1 points (measured); loss of the old classes: 0.5 points (estimated)'
    >>> loss_words(-3.1, None)
    'old classes gain 3.1 points (measured)'
    """
    gains: list[str] = []
    losses: list[str] = []
    for how, value in (("measured", measured), ("estimated", estimated)):
        if value is not None:
            (gains if value < 0 else losses).append(f"{abs(value):.1f} points ({how})")
    words = []
    if gains:
        words.append(f"old classes gain {', '.join(gains)}")
    if losses or not gains:
        words.append(f"loss of the old classes: {', '.join(losses) or 'not known for this head'}")
    return "; ".join(words)


def lowest_classes(rows: Iterable[ClassCheck]) -> str:
    """Return the classes of which the fewest images are found; nothing where all are.

    >>> lowest_classes([ClassCheck("cat", 20, 80.0, ["dog"]), ClassCheck("dog", 8, 75.0, ["cat", "ant"])])
    'lowest: dog 6 of 8 right (others taken for cat, ...), cat 80 % right (others taken for dog)'
    """
    missed = [(row.found, row.name, row) for row in rows if row.found is not None and row.found < 100]
    missed.sort(key=lambda one: one[:2])
    shown = []
    for found, name, row in missed[:_LOWEST]:
        others = ""
        if row.taken_for:
            others = f" (others taken for {row.taken_for[0]}{', ...' * (len(row.taken_for) > 1)})"
        shown.append(f"{name} {share_of(found, row.images)} right{others}")
    return f"lowest: {', '.join(shown)}" if shown else ""


def new_folder(model: Path, out: Path | None) -> Path:
    """Return where a step writes its model: the folder that was named, or the next free one."""
    return free_folder(model) if out is None else out


def as_typed(place: str) -> str:
    """Return a path as the next command may name it: from here, if it lies below."""
    path = Path(place)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return place
