"""Test images that are training images, too: an accuracy on them is none of unseen images.

Images are compared by the hashes that a benchmark gives its samples (:class:`TaskData`), over all tasks: an
image that a later task trains on is no test of it either. The hashes are made while the stream is built,
where every image is read for its fingerprint anyway; comparing them sorts 16 bytes an image.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from lw2g.errors import DataError
from lw2g.interfaces.stream import Contents, TaskStream

__all__ = ["SharedImages", "require_unseen_images"]

_NAMED = 5


@attrs.frozen(kw_only=True)
class SharedImages:
    """How many test images of a stream are training images.

    Attributes:
        count: Their number.
        tested: The number of all test images.
        named: Ids of the first ones, each with that of the equal training image.
    """

    count: int
    tested: int
    named: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        first = ", ".join(f"{test!r} is {train!r}" for test, train in self.named)
        more = ", ..." if self.count > len(self.named) else ""
        are = "is a training image" if self.count == 1 else "are training images"
        return f"{self.count} of {self.tested} test images {are}, too ({first}{more})"

    def as_mapping(self) -> dict[str, Any]:
        """Return what the record tells of them."""
        return {"count": self.count, "tested": self.tested, "named": [list(pair) for pair in self.named]}


def require_unseen_images(stream: TaskStream) -> SharedImages | None:
    """Return which test images are training images, too; None where the benchmark does not tell.

    Raises:
        DataError: All of them are.
    """
    splits = [(task.train, task.test) for task in stream.tasks]
    if any(part.contents is None for pair in splits for part in pair):
        return None
    trained, tested = (_joined([pair[which].contents for pair in splits]) for which in (0, 1))
    places = np.flatnonzero(np.isin(tested, trained))
    chosen = places[:_NAMED]
    # only the named ones need their partner: its first place among the training images
    partners = [int(np.flatnonzero(trained == tested[place])[0]) for place in chosen]
    named = zip(_ids(stream, 1, chosen.tolist()), _ids(stream, 0, partners), strict=True)
    shared = SharedImages(count=len(places), tested=len(tested), named=tuple(named))
    if shared.count and shared.count == shared.tested:
        raise DataError(f"benchmark: {shared}", "give test images that are not trained on")
    return shared


def _joined(parts: list[Contents | None]) -> Contents:
    return np.concatenate([part for part in parts if part is not None])


def _ids(stream: TaskStream, which: int, places: list[int]) -> list[str]:
    """Return the ids of training (0) or test images (1) at places in the order of the tasks."""
    parts = [(task.train, task.test)[which] for task in stream.tasks]
    ends = np.cumsum([len(part) for part in parts])
    names = []
    for place in places:
        number = int(np.searchsorted(ends, place, side="right"))
        part = parts[number]
        names.append(part.source.ids[part.indices[place - ends[number] + len(part)]])
    return names
