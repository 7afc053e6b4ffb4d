"""What `lw2g start`, `learn` and `test` print: a line for each thing that was found."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.api.recorded import accuracy_words, words_of_change
from lw2g.errors import as_word, counted, is_counted, share_of
from lw2g.model.places import free_folder
from lw2g.results.leading_check import ClassCheck, leading_check

__all__ = [
    "as_typed",
    "calibration_words",
    "lowest_classes",
    "made_from",
    "new_folder",
    "old_classes_words",
    "step_lines",
    "words_of_near_copies",
    "words_of_test",
]

_LEAST = 2
"""Images that say something: a single one may be an accident."""
_LOWEST = 3
"""Classes that are named beside the accuracy."""
_SERIES = 0.25
"""Share of near copies from which on they are told: a few are in every collection of photos."""


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
        yield f"accuracy: {check.words}"
        # what they are taken for is named by a note where it is many
        lowest = lowest_classes([attrs.evolve(row, taken_for=[]) for row in check.classes])
        if len(check.missed) > _LOWEST:
            lowest += f"; fewer than half of {len(check.missed)} classes"
        if lowest:
            yield f"{lowest}; each class: lw2g show {shlex.quote(model)} --all"
    if changed := words_of_change(report.get("choice", {})):
        yield changed
    knows_one_class = check is not None and check.knows_one_class
    if has_old_classes and not knows_one_class:
        yield old_classes_words(report["old_classes"], report["estimated_loss"])
    if report["ece"] is not None:
        yield calibration_words(report["ece"])


def calibration_words(ece: float, whose: str = "probabilities") -> str:
    """Return how far probabilities are from shares of right answers.

    >>> calibration_words(3.14)
    'probabilities are off by 3.1 points on average (calibration error, ECE of 15 bins)'
    """
    return f"{whose} are off by {ece:.1f} points on average (calibration error, ECE of 15 bins)"


def words_of_test(scored: Mapping[str, Any], of: str = "") -> str:
    """Return how many images of a test are right, and how many of them the model has learned.

    Args:
        scored: As :func:`lw2g.test` returns it.
        of: What stands behind the number of images, with a space before it.

    >>> found = {"accuracy": 100.0, "interval": (88.6, 100.0), "images": 30, "learned": 0}
    >>> words_of_test(found, " of 2 classes")
    '100.0 % of 30 images of 2 classes (95 % interval 88.6 to 100.0)'
    >>> words_of_test({**found, "learned": 30})
    '100.0 % of 30 images, of which it has learned all'
    """
    images, num_learned = scored["images"], scored["learned"]
    has_learned_all = num_learned == images
    learned = ""
    if num_learned:
        learned = f", of which it has learned {'all' if has_learned_all else num_learned}{',' if of else ''}"
    # images that were all learned say nothing of others, so that no interval holds what these would give
    interval = None if has_learned_all else scored["interval"]
    return accuracy_words(scored["accuracy"], interval, images, f"{counted(images, 'image')}{learned}{of}")


def made_from(model: str, before: Path | None) -> str:
    """Return a new model with the one that it was made from.

    >>> made_from("model-3", Path("model"))
    'model-3 (from model)'
    """
    return model if before is None else f"{model} (from {as_typed(str(before))})"


def old_classes_words(found: Mapping[str, Any] | None, estimated: float | None) -> str:
    """Return how many images of old classes are found before a step and after it.

    Args:
        found: As :func:`~lw2g_photos.head_choice.old_images_found` returns it, with None ``before`` where the
            model knew one class; None where nothing tells.
        estimated: What they lose by an estimate, in points; None where there is none.

    >>> old_classes_words({"images": 80, "before": 80.0, "now": 73.75}, None)
    'old classes: 80.0 % before, 73.8 % now (6.2 points fewer), each image left out in turn'
    >>> old_classes_words({"images": 800, "before": 87.75, "now": 87.5}, None)
    'old classes: 87.8 % before, 87.5 % now (0.3 points fewer), each image left out in turn'
    >>> old_classes_words({"images": 8, "before": 75.0, "now": 100.0}, None)
    'old classes: 6 of 8 images before, 8 now, each image left out in turn'
    >>> old_classes_words({"images": 80, "before": 80.0, "now": 80.0}, 0.5)
    'old classes: 80.0 % before and now, each image left out in turn; estimated: 0.5 points fewer'
    >>> old_classes_words({"images": 20, "before": None, "now": 80.0}, None)
    'old class: 80.0 % now (before, it was the only class), each image left out in turn'
    >>> old_classes_words(None, None)
    'old classes: what they lose is not known for this formula'
    """
    if found is not None and found["before"] is None:
        now = share_of(found["now"], found["images"], digits=1)
        return f"old class: {now} now (before, it was the only class), each image left out in turn"
    words = []
    if found is not None:
        words.append(f"{_before_and_now(**found)}, each image left out in turn")
    if estimated is not None:
        words.append(f"estimated: {estimated:.1f} points fewer")
    return f"old classes: {'; '.join(words) or 'what they lose is not known for this formula'}"


def _before_and_now(images: int, before: float, now: float) -> str:
    """Return the share of so many images that is found before a step and after it."""
    if is_counted(images):
        first, last = (round(share * images / 100) for share in (before, now))
        told = [f"{first} of {images} images", f"{last}"]
    else:
        told = [f"{before:.1f} %", f"{now:.1f} %"]
    if before == now:
        return f"{told[0]} before and now"
    words = f"{told[0]} before, {told[1]} now"
    if is_counted(images):
        return words
    points = abs(round(before, 1) - round(now, 1))  # of what is printed: whoever subtracts gets it, too
    return f"{words} ({points:.1f} points {'fewer' if now < before else 'more'})"


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


def words_of_near_copies(counts: Mapping[str, int] | None, model: str) -> str:
    """Return that the accuracy is of series, and how to know better; nothing where it is not.

    Args:
        counts: As :func:`~lw2g_photos.near_copies.near_copies` returns it; None where nobody has looked.
        model: The model's folder, as one types it.

    >>> words_of_near_copies({"images": 100, "near": 24}, "m")
    ''
    """
    if counts is None or counts["near"] < max(_LEAST, _SERIES * counts["images"]):
        return ""
    return (
        f"{counts['near']} of {counts['images']} checked images are nearly the same as another of their "
        "class (a series of one object?): expect fewer right on new photos; check with other photos: "
        f"lw2g test {as_word(model)} FOLDER"
    )
