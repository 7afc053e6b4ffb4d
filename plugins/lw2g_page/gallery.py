"""Pictures of a run's test images: some classes of each task, what is confused, what went wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.errors import Lw2gError
from lw2g.results.recomputed import Columns
from lw2g_page.inside import Inside, owned
from lw2g_page.thumbnails import Thumbnails

__all__ = [
    "ConfusedPair",
    "Gallery",
    "GalleryImage",
    "TaskPictures",
    "confused_most",
    "gallery_of",
    "mistakes",
    "task_pictures",
]

_PICTURES = 400
"""The largest number of thumbnails of mistakes."""
_EACH = 5
"""The largest number of thumbnails per task and kind of mistake."""

_PAIRS = 6
"""The largest number of confused pairs of classes that are shown."""
_IMAGES_OF_A_PAIR = 4
"""The largest number of thumbnails of each pair."""
_CLASSES = 6
"""The largest number of classes of a task that are shown."""
_TASKS = 40
"""The largest number of tasks that are shown."""

RETRIEVED = "wrong set retrieved"
CLASSIFIED = "right set, wrong class"
_WRONG = "wrong class"
"""The only mistake of a run that makes no hard choice of a set."""


@attrs.frozen(kw_only=True)
class GalleryImage:
    """A test image with a mistake.

    Attributes:
        task: Its task, from 1.
        mistake: The kind of mistake.
        true: Name of its class.
        predicted: Name of the predicted class.
        right: Whether that is the true one, although another set was retrieved.
        retrieved: The retrieved task, from 1; None without a hard choice.
        sample: Its id.
        source: The thumbnail as a data URL.
    """

    task: int
    mistake: str
    true: str
    predicted: str
    right: bool
    retrieved: int | None
    sample: str
    source: str


@attrs.frozen(kw_only=True)
class Gallery:
    """Pictures, or why there are none."""

    pictures: Sequence[GalleryImage] = ()
    why: str = ""


@attrs.frozen(kw_only=True)
class ConfusedPair:
    """A class that is taken for another one.

    Attributes:
        true: Name of the class.
        predicted: Name of the other one.
        count: How many of its test images are taken for the other.
        of: How many test images it has.
        sources: Thumbnails of some of them, as data URLs.
    """

    true: str
    predicted: str
    count: int
    of: int
    sources: Sequence[str]


@attrs.frozen(kw_only=True)
class TaskPictures:
    """A task and some of its classes.

    Attributes:
        task: The task, from 1.
        domain: The name of its domain; empty without one.
        pictures: Names of classes, each with a thumbnail of a test image as a data URL.
        further: How many classes it has that are not shown.
    """

    task: int
    domain: str
    pictures: Sequence[tuple[str, str]]
    further: int


def task_pictures(inside: Inside, thumbnails: Thumbnails) -> Sequence[TaskPictures]:
    """Return the tasks of a run, each with a test image of some of its classes.

    There are none for a run of somebody else or of stored features, and where the run's test images are not
    on this machine.
    """
    columns = inside.predicted
    if columns is None or inside.run.given is not None or thumbnails.of_vectors:
        return ()
    samples_of: dict[int, dict[int, int]] = defaultdict(dict)  # by task and class: the first image
    for task, true, sample in zip(columns["task"], columns["true"], columns["sample"], strict=True):
        samples_of[int(task)].setdefault(int(true), int(sample))
    tasks = sorted(samples_of)[:_TASKS]
    shown = {task: list(samples_of[task].items())[:_CLASSES] for task in tasks}
    try:
        made = thumbnails.of([sample for task in tasks for _, sample in shown[task]])
    except (Lw2gError, OSError):
        return ()
    names = inside.record["class_names"]
    domains = inside.record.get("domains") or ()
    found = []
    for task in tasks:
        pictures = [(names[true], made[sample]) for true, sample in shown[task] if sample in made]
        if pictures:
            domain = domains[task] if task < len(domains) else ""
            further = len(samples_of[task]) - len(pictures)
            found.append(TaskPictures(task=task + 1, domain=domain, pictures=pictures, further=further))
    return found


def confused_most(inside: Inside, thumbnails: Thumbnails) -> Sequence[ConfusedPair]:
    """Return the pairs of classes that a run's last evaluation confuses most, most images first.

    There are none where :func:`task_pictures` has none.
    """
    columns = inside.predicted
    if columns is None or inside.run.given is not None or thumbnails.of_vectors:
        return ()
    rows_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in np.flatnonzero(columns["predicted"] != columns["true"]).tolist():
        rows_of[int(columns["true"][row]), int(columns["predicted"][row])].append(row)
    if not rows_of:
        return ()
    # equally frequent pairs come by number, so that a page is the same each time
    most = sorted(rows_of.items(), key=lambda item: (-len(item[1]), item[0]))[:_PAIRS]
    samples_of = [[int(columns["sample"][row]) for row in rows[:_IMAGES_OF_A_PAIR]] for _, rows in most]
    try:
        made = thumbnails.of(list(chain.from_iterable(samples_of)))
    except (Lw2gError, OSError):
        return ()
    names = inside.record["class_names"]
    pairs = []
    for ((true, predicted), rows), samples in zip(most, samples_of, strict=True):
        pairs.append(
            ConfusedPair(
                true=names[true],
                predicted=names[predicted],
                count=len(rows),
                of=int((columns["true"] == true).sum()),
                sources=[made[sample] for sample in samples if sample in made],
            )
        )
    return pairs


def mistakes(predicted: Columns, record: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the rows of predictions to show, with the kind of mistake, by task.

    They are spread evenly over each task's mistakes of a kind.
    """
    # under a set of other tasks; a set of -1 is none, and then nothing was retrieved
    elsewhere = (predicted["set"] >= 0) & ~owned(predicted, record)
    wrong = predicted["predicted"] != predicted["true"]
    tasks = int(predicted["task"].max()) + 1
    # each task has two kinds of mistakes
    most_of_task = max(1, min(_EACH, _PICTURES // (2 * tasks)))
    chosen = []
    for task in range(tasks):
        of_task = predicted["task"] == task
        for row in _spread(np.flatnonzero(of_task & elsewhere), most_of_task):
            chosen.append((row, RETRIEVED))
        for row in _spread(np.flatnonzero(of_task & wrong & ~elsewhere), most_of_task):
            chosen.append((row, CLASSIFIED))
    return chosen


def _spread(rows: npt.NDArray[Any], most: int) -> list[int]:
    """Return at most as many rows, at even distances."""
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
    spread: list[int] = rows[places].tolist()
    return spread


def gallery_of(inside: Inside, thumbnails: Thumbnails) -> Gallery:
    """Return thumbnails of a run's mistakes, if its data set is present."""
    if inside.predicted is None:
        return Gallery(why=inside.why)
    columns = inside.predicted
    shown = mistakes(columns, inside.record)
    if not shown:
        return Gallery(why="nothing was retrieved or classified wrongly")
    if thumbnails.of_vectors:
        return Gallery(why="the run is of stored features, of which there are no pictures")
    try:
        made = thumbnails.of([int(columns["sample"][row]) for row, _ in shown])
    except (Lw2gError, OSError) as error:
        return Gallery(why=f"the data set cannot be read: {error}")
    names = inside.record["class_names"]
    pictures = []
    for row, mistake in shown:
        sample = int(columns["sample"][row])
        if sample not in made:
            continue
        retrieved = int(columns["retrieved"][row])
        if retrieved < 0:
            mistake = _WRONG
        pictures.append(
            GalleryImage(
                task=int(columns["task"][row]) + 1,
                mistake=mistake,
                true=names[columns["true"][row]],
                predicted=names[columns["predicted"][row]],
                right=bool(columns["true"][row] == columns["predicted"][row]),
                retrieved=None if retrieved < 0 else retrieved + 1,
                sample=thumbnails.name(sample),
                source=made[sample],
            )
        )
    return Gallery(pictures=pictures)
