"""The entries of a prediction, JSON-able: one for each image, also for one that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from torch import Tensor

from lw2g.errors import DataError
from lw2g.model.answers import Answers
from lw2g.pixels.pictures import ImageLike

__all__ = ["Asked", "entries_of", "named", "reject_below", "without_answer"]


@attrs.frozen(kw_only=True, eq=False)
class Asked:
    """An image that is asked about.

    Attributes:
        name: What a user calls it.
        path: Its file; of a row of vectors its id; None of what is neither.
        image: The image itself, or the vector.
    """

    name: str
    path: str | None
    image: ImageLike

    @property
    def called(self) -> dict[str, str | None]:
        """Name and path, as an entry has them."""
        return {"name": self.name, "path": self.path}


def entries_of(
    answers: Answers, asked: Sequence[Asked], classes: Sequence[str], top_k: int
) -> list[dict[str, Any]]:
    """Return an entry for each answer.

    Args:
        answers: The answers.
        asked: The images.
        classes: The name of each number.
        top_k: How many classes are named.
    """
    probabilities, best = answers.top(top_k)
    tasks = _values(answers.tasks, len(asked))
    sets = _values(answers.sets, len(asked))
    calibrated = answers.temperature is not None
    rows = []
    for row, image in enumerate(asked):
        top = []
        for index, probability in zip(best[row].tolist(), probabilities[row].tolist(), strict=True):
            entry = {"class": classes[index], "class_index": index, "probability": probability}
            top.append(entry)
        chosen = {"task": tasks[row], "set": sets[row]}
        rows.append({**image.called, **top[0], "calibrated": calibrated, "top": top, **chosen})
    return rows


def reject_below(threshold: float, scores: Sequence[float], entries: Sequence[dict[str, Any]]) -> None:
    """Take class and number from each entry whose score is below a threshold, and note scores in all."""
    for entry, score in zip(entries, scores, strict=True):
        rejected = score < threshold
        entry |= {"score": score, "threshold": threshold, "rejected": rejected, "best": entry["class"]}
        if rejected:
            entry |= {"class": None, "class_index": None}


def named(image: Asked, error: DataError) -> DataError:
    """Return the error of an image that says of which it is, as that of a file does."""
    return error if image.path is not None else DataError(f"{image.name!r}: {error.what}", error.remedy)


def without_answer(image: Asked, error: DataError) -> dict[str, Any]:
    """Return the entry of an image that cannot be used."""
    nothing = dict.fromkeys(("class", "class_index", "probability", "calibrated"))
    why = str(named(image, error))
    return {**image.called, **nothing, "top": [], "task": None, "set": None, "error": why}


def _values(chosen: Tensor | None, count: int) -> list[int | None]:
    """Return what was chosen for each image; None for all of them where nothing was."""
    return [None] * count if chosen is None else chosen.tolist()
