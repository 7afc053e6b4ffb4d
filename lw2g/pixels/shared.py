"""Images that are there twice: as test images of what is trained on, or in two classes.

An accuracy on training images is none of unseen images, and an image of two classes teaches that both are
one.

Images are compared by the hashes that a benchmark gives its samples (:class:`TaskData`), over all tasks: an
image that a later task trains on is no test of it either. The hashes are made while the stream is built,
where every image is read for its fingerprint anyway; comparing them sorts 16 bytes an image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lw2g.errors import DataError, counted
from lw2g.interfaces.stream import Contents, TaskData, TaskStream
from lw2g.pixels.shared_words import SharedImages

__all__ = [
    "all_contents",
    "notes_on",
    "require_unseen_images",
    "shared_images",
    "short_hashes",
]

_NAMED = 5
_DIGITS = 8


def notes_on(stream: TaskStream) -> list[str]:
    """Return what a user should know of the images of a stream before they are used, a sentence each."""
    notes = list(stream.notes)
    shared = shared_images(stream)
    if shared is not None and shared.count:
        notes.append(str(shared))
    twice = _of_two_classes(stream)
    if twice:
        notes.append(twice)
    return notes


def require_unseen_images(stream: TaskStream) -> SharedImages | None:
    """Return which test images are training images, too; None where the benchmark does not tell.

    Raises:
        DataError: All of them are.
    """
    shared = shared_images(stream)
    if shared is not None and shared.count and shared.count == shared.tested:
        raise DataError(f"benchmark: {shared}", "give test images that are not trained on")
    return shared


def shared_images(stream: TaskStream) -> SharedImages | None:
    """Return which test images are training images, too; None where the benchmark does not tell."""
    train = [task.train for task in stream.tasks]
    test = [task.test for task in stream.tasks]
    trained = all_contents(train)
    tested = all_contents(test)
    if trained is None or tested is None:
        return None
    places = np.flatnonzero(np.isin(tested, trained)).tolist()
    named = []
    for place in places[:_NAMED]:
        partner = int(np.flatnonzero(trained == tested[place])[0])  # the first equal training image
        named.append((_id_at(test, place), _id_at(train, partner)))
    return SharedImages(count=len(places), tested=len(tested), named=tuple(named))


def _of_two_classes(stream: TaskStream) -> str:
    """Return in words which training images are in several classes; empty for none, or where nobody tells."""
    train = [task.train for task in stream.tasks]
    contents = all_contents(train)
    if contents is None:
        return ""
    classes = stream.class_map
    targets = classes.targets_at(np.concatenate([part.labels for part in train]))
    _, first, group = np.unique(contents, return_index=True, return_inverse=True)
    # each image is compared with the first one that is equal
    strange = np.flatnonzero(targets != targets[first[group]])
    if not len(strange):
        return ""
    examples = []
    for place in strange[:_NAMED].tolist():
        partner = int(first[group[place]])
        names = [
            f"{_id_at(train, at)!r} of class {classes.target_names[targets[at]]!r}" for at in (place, partner)
        ]
        examples.append(" is ".join(names))
    if len(strange) > _NAMED:
        examples.append("...")
    are = "is an image" if len(strange) == 1 else "are images"
    return (
        f"{counted(len(strange), 'training image')} {are} of another class, too ({', '.join(examples)}): "
        "keep each in one of the two"
    )


def all_contents(parts: Sequence[TaskData]) -> Contents | None:
    """Return the hashes of all images of some tasks, in their order; None where some have none."""
    contents = []
    for part in parts:
        if part.contents is None:
            return None
        contents.append(part.contents)
    return np.concatenate(contents)


def short_hashes(parts: Sequence[TaskData]) -> list[str] | None:
    """Return eight hexadecimal digits of the hash of each image of some tasks, in their order.

    They tell an image again where another run has it in another place. None where the benchmark has none.
    """
    contents = all_contents(parts)
    if contents is None:
        return None
    digits = contents.tobytes().hex()
    return [digits[start : start + _DIGITS] for start in range(0, len(digits), 2 * contents.itemsize)]


def _id_at(parts: Sequence[TaskData], place: int) -> str:
    """Return the id of the image at a place in the order of the tasks."""
    for part in parts:
        if place < len(part):
            name: str = part.source.ids[part.indices[place]]
            return name
        place -= len(part)
    raise IndexError(place)
