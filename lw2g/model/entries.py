"""The entries of a prediction, JSON-able: one for each image, also for one that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from lw2g.errors import DataError
from lw2g.model.answers import Answers
from lw2g.pixels.image_files import Crop
from lw2g.pixels.pictures import ImageLike

__all__ = ["entries_of", "place_of", "without_answer"]


def entries_of(
    answers: Answers, names: Sequence[str | None], classes: Sequence[str], top_k: int
) -> list[dict[str, Any]]:
    """Return an entry for each answer.

    Args:
        answers: The answers.
        names: Of the images.
        classes: The name of each number.
        top_k: How many classes are named.
    """
    probabilities, best = answers.top(top_k)
    tasks = _values(answers.tasks, len(names))
    sets = _values(answers.sets, len(names))
    calibrated = answers.temperature is not None
    rows = []
    for row, name in enumerate(names):
        top = []
        for index, probability in zip(best[row].tolist(), probabilities[row].tolist(), strict=True):
            entry = {"class": classes[index], "class_index": index, "probability": probability}
            top.append(entry)
        chosen = {"task": tasks[row], "set": sets[row]}
        rows.append({"path": name, **top[0], "calibrated": calibrated, "top": top, **chosen})
    return rows


def place_of(image: ImageLike, number: int) -> Path:
    """Return how an error names an image: by its file, else by its number (from 0)."""
    return Path(str(image)) if isinstance(image, str | Path | Crop) else Path(f"image {number + 1}")


def without_answer(name: str | None, error: DataError) -> dict[str, Any]:
    """Return the entry of an image that cannot be used."""
    nothing: Mapping[str, Any] = dict.fromkeys(("class", "class_index", "probability", "calibrated"))
    return {"path": name, **nothing, "top": [], "task": None, "set": None, "error": str(error)}


def _values(chosen: Tensor | None, count: int) -> list[int | None]:
    """Return what was chosen for each image; None for all of them where nothing was."""
    return [None] * count if chosen is None else chosen.tolist()
