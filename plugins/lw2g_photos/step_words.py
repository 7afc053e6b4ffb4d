"""What `lw2g start`, `learn` and `test` print: a line for each thing that was found."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.api.recorded import words_of_choice
from lw2g.errors import counted
from lw2g.model.places import free_folder
from lw2g.results.summaries import FEW_IMAGES, doubt_of_few

__all__ = [
    "accuracy_words",
    "as_typed",
    "doubt_words",
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
    if report["accuracy"] is not None:
        where = f"{counted(report['checked'], 'image')} not yet learned from"
        said = accuracy_words(report["accuracy"], report["interval"], where)
        yield f"accuracy: {said}{doubt_words(report)}"
    lowest = lowest_classes([(entry["class"], entry["recall"], entry["taken_for"]) for entry in classes])
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


def doubt_words(report: Mapping[str, Any]) -> str:
    """Return of few checked images whether they are too few to tell much, and what more say; else nothing.

    Args:
        report: Of a step.
    """
    if report["checked"] >= FEW_IMAGES:
        return ""
    words = doubt_of_few(report["interval"], report["checked"])
    more, accuracy = report["left_out"], report["left_out_accuracy"]
    if more > report["checked"] and accuracy is not None:
        # a model may keep fewer images than it has learned
        images = sum(entry["images"] for entry in report["classes"])
        which = "learned" if more == images else "kept"
        words += f"; {accuracy:.1f} % of the {more} {which} images are right, each left out in turn"
    return words


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


def accuracy_words(accuracy: float, interval: Sequence[float], where: str) -> str:
    """Return an accuracy with its interval, in percent, and the images that it is of."""
    low, high = interval
    return f"{accuracy:.1f} % of {where} (95 % interval {low:.1f} to {high:.1f})"


def lowest_classes(rows: Iterable[tuple[str, float | None, Sequence[str]]]) -> str:
    """Return the classes of which the fewest images are found; nothing where all are.

    Args:
        rows: Of each class its name, how many of its images are found in percent (None where none was
            checked), and what the others are taken for, the most frequent first.

    >>> lowest_classes([("cat", 80.0, ["dog"]), ("dog", 90.0, ["cat", "ant"]), ("ant", None, [])])
    'lowest: cat 80 % right (others taken for dog), dog 90 % right (others taken for cat, ...)'
    """
    missed = [
        (found, name, taken_for) for name, found, taken_for in rows if found is not None and found < 100
    ]
    missed.sort(key=lambda row: row[:2])
    shown = []
    for found, name, taken_for in missed[:_LOWEST]:
        others = f" (others taken for {taken_for[0]}{', ...' * (len(taken_for) > 1)})" if taken_for else ""
        shown.append(f"{name} {found:.0f} % right{others}")
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
