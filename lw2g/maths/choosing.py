"""Choosing among heads by images that are left out of them, and what is said of it. It imports no torch.

A choice, as records and reports have it, is a mapping: ``head`` and ``layers`` of the one that was taken,
``accuracy`` in per cent (None where nothing could be left out), ``images``, ``standard_error`` in points, and
``tried``, which has the first four of all of them; ``units`` is there where random units stand beside, and
``before``, the names of the one that was taken before, where that was another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lw2g.errors import is_counted, share_of

__all__ = [
    "choice_of",
    "first_within_error",
    "named_candidate",
    "named_in_tasks",
    "words_of_change",
    "words_of_choice",
    "words_of_choice_in_tasks",
]


_NAMED_BY = ("head", "layers", "units")
"""What tells one candidate from another."""


def first_within_error(found: Sequence[float | None], images: int) -> int:
    """Return which candidate is taken: the first within one standard error of the best.

    A difference that may be chance does not pay for more, so put the smallest first.

    Args:
        found: The accuracy of each in per cent; None where there are too few images to leave one out.
        images: How many images it is of.

    >>> first_within_error([80.0, 88.5, 91.0], 100)
    1
    """
    known = [accuracy for accuracy in found if accuracy is not None]
    if len(known) < len(found):
        return 0
    best = max(known)
    error = _standard_error(best, images)
    return next(place for place, accuracy in enumerate(known) if accuracy >= best - error)


def choice_of(tried: Sequence[Mapping[str, Any]], taken: int) -> dict[str, Any]:
    """Return a choice.

    Args:
        tried: The candidates.
        taken: Which of them was taken.
    """
    known = [entry["accuracy"] for entry in tried if entry["accuracy"] is not None]
    error = _standard_error(max(known), tried[taken]["images"]) if known else None
    return {**tried[taken], "standard_error": error, "tried": list(tried)}


def words_of_choice(choice: Mapping[str, Any]) -> str:
    """Return in a line which head a model has taken, and what the others would be."""
    words = f"head: {_figure(choice)}"
    if others := _others(choice):
        words += f" (also tried: {', '.join(map(_figure, others))})"
    if choice["accuracy"] is not None:
        count = "" if is_counted(choice["images"]) else f" of {choice['images']}"
        words += f"{count} images, each left out in turn"
    words += _reason(choice)
    if "before" in choice:
        words += f"; before: {_figure({**choice['before'], 'accuracy': None})}"
    return words


def words_of_change(choice: Mapping[str, Any]) -> str:
    """Return in a few words that a model answers by another head than before; empty where it does not.

    >>> words_of_change({"head": "lda", "layers": 1, "before": {"head": "ridge", "layers": 12}})
    'formula chosen anew: lda; before: ridge on 12 layers'
    """
    if "before" not in choice:
        return ""
    words = f"formula chosen anew: {named_candidate(choice)}"
    figures = [entry for entry in choice.get("tried", ()) if entry["accuracy"] is not None]
    if better := [entry for entry in figures if entry["accuracy"] > choice["accuracy"]]:
        told = ", ".join(map(_figure, better))
        words += f"{_accuracy(choice)}, smaller and within a standard error of {told}"
    return f"{words}; before: {named_candidate(choice['before'])}"


def words_of_choice_in_tasks(choice: Mapping[str, Any]) -> str:
    """Return in a line which head a run has taken, by images that tell nothing of its final accuracy.

    They are those that it learned, and of an early task they were held against its classes and earlier ones.
    """
    words = f"head chosen: {named_in_tasks(choice, choice)}"
    if choice["accuracy"] is not None:
        words += (
            f" ({choice['accuracy']:.1f} % of {choice['images']} learned images, each left out as its task "
            "came, among the classes so far: for the choice alone)"
        )
    others = _others(choice)
    if others:
        told = [f"{named_in_tasks(entry, choice)}{_accuracy(entry)}" for entry in others]
        words += f"; also tried: {', '.join(told)}"
    return words + (_reason(choice) or _lead(choice, others))


def named_in_tasks(entry: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    """Return a head with its layers and units, as a run reads them.

    Args:
        entry: The head.
        choice: The choice: where a candidate reads several layers, each of these is scaled, the last one too.
    """
    is_scaled = any(other["layers"] > 1 for other in choice.get("tried", ()))
    if entry["layers"] == 1 and is_scaled:
        return f"{named_candidate(entry)} on the scaled last layer"
    return named_candidate(entry)


def _others(choice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the candidates that were not taken."""
    return [entry for entry in choice["tried"] if any(entry.get(key) != choice.get(key) for key in _NAMED_BY)]


def _lead(choice: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Return by how much the best candidate, which was taken, is ahead of the next."""
    if choice["accuracy"] is None or not others:
        return ""
    second = max(others, key=lambda entry: float(entry["accuracy"]))
    lead = choice["accuracy"] - second["accuracy"]
    if lead <= choice["standard_error"]:
        return "; no other is ahead"
    return f"; ahead of {named_in_tasks(second, choice)} by {lead:.1f} points"


def _reason(choice: Mapping[str, Any]) -> str:
    """Return why one was taken that is not the best; nothing where it is."""
    if choice["accuracy"] is None:
        return ": the smallest head, as there are too few images to compare them"
    best = max(entry["accuracy"] for entry in choice["tried"])
    if best <= choice["accuracy"]:
        return ""
    return f"; the smallest head within a standard error ({choice['standard_error']:.1f} points) of the best"


def _standard_error(accuracy: float, images: int) -> float:
    """Return the standard error of an accuracy in points; as if one image more were right and one wrong."""
    share = (accuracy / 100 * images + 1) / (images + 2)
    return 100 * math.sqrt(share * (1 - share) / (images + 2))


def named_candidate(entry: Mapping[str, Any]) -> str:
    """Return a head with its layers and units.

    >>> named_candidate({"head": "ridge", "layers": 12})
    'ridge on 12 layers'
    """
    layers = "" if entry["layers"] == 1 else f" on {entry['layers']} layers"
    units = f" beside {entry['units']} units" if entry.get("units") else ""
    return f"{entry['head']}{layers}{units}"


def _figure(entry: Mapping[str, Any]) -> str:
    """Return a head with its layers and its accuracy."""
    return f"{named_candidate(entry)}{_accuracy(entry)}"


def _accuracy(entry: Mapping[str, Any]) -> str:
    return "" if entry["accuracy"] is None else f" {share_of(entry['accuracy'], entry['images'], 1)}"
