"""A head and layers that are chosen for the user: each candidate learns the same features of one forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.ground.notes import tell_note
from lw2g.maths.choosing import choice_of, first_within_error
from lw2g.maths.few_rows import sharing_ranges
from lw2g.model.exported import Saved
from lw2g.model.parts import ModelParts
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.own_feature import gathering_own
from lw2g_photos.labelled_images import LabelledImages
from lw2g_photos.lesson import Lesson, Rows, read_lesson, read_rows, rows_of
from lw2g_photos.steps import grown
from lw2g_photos.training_gains import training_gain
from lw2g_photos.updating import check_taught, recall_of_held_out, teach_rows, write_step

__all__ = ["FirstModel", "choose_head"]

_FEWEST = 3
"""Classes from which on images are held against streams, which have six and more."""


@attrs.frozen(kw_only=True, eq=False)
class FirstModel:
    """A model that knows no class.

    Attributes:
        parts: Its parts.
        saved: The same as it would be on disk.
        build: Returns the model that computes, given it with a task.
        units: Random units beside its features.
    """

    parts: ModelParts
    saved: Saved
    build: Callable[[Saved], TrainedModel]
    units: int = 0

    @property
    def layers(self) -> int:
        """Of how many layers its features are."""
        return self.parts.backbone.fingerprint.layers

    @property
    def head(self) -> str:
        """Its head."""
        name: str = self.parts.config.baseline.config.head
        return name


def choose_head(
    models: Sequence[FirstModel],
    folder: Path | LabelledImages,
    catalogue: Catalogue,
    out: Path,
    look: Callable[[Path], None],
    *,
    test: Path | LabelledImages | None,
    crops: Crops | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Let several models learn from a folder, and write the one whose left-out images are found best.

    Each image is left out of the sums in turn, so that all of them say which model is taken, and those of
    ``test`` say nothing. Within one standard error of the best, the first is taken.

    Args:
        models: From the smallest to the largest. The first has the backbone's own features; the others have
            these, too, or all of them those of several of the same last layers.
        folder: As for :func:`~lw2g_photos.updating.take_step`; likewise the others.
        catalogue: Likewise.
        out: Likewise.
        look: Likewise.
        test: Likewise.
        crops: Likewise.

    Returns:
        The model, and the report with ``choice``: what was tried, and ``training``: what training added on
        streams like these images (None where none is known).
    """
    began = time.monotonic()
    empty = models[0].saved
    read = partial(read_lesson, folder, test, empty.manifest, catalogue, crops)
    lesson, (built, trained, own, several) = read_rows(read, partial(_fed, models))
    taught = []
    with sharing_ranges():
        for (_, more), model in zip(built, trained, strict=True):
            rows = own if model is trained[0] else several.of_last(model.backbone.width)
            taught.append(teach_rows(more, model, rows))
    measures = [step.measures for step in taught]
    taken = first_within_error(
        [found["left_out_accuracy"] for found in measures], min(found["left_out"] for found in measures)
    )
    chosen, more = built[taken]
    found = None
    if own.tested is None:
        # by a model that has learned nothing yet
        found = recall_of_held_out(
            chosen.build(more), more.manifest, lesson.images, taught[taken].rows.images
        )
    best = check_taught(chosen.saved, taught[taken], lesson, found)
    choice = choice_of(_tried(models, measures), taken)
    said = {"choice": choice, "training": _known_of_training(choice["tried"][0], lesson)}
    best = attrs.evolve(best, report={**best.report, **said})
    report = write_step(chosen.saved, best, lesson, out, look)
    return best.model, report | {"seconds": round(time.monotonic() - began, 3)}


def _fed(
    models: Sequence[FirstModel], lesson: Lesson
) -> tuple[list[tuple[FirstModel, Saved]], list[TrainedModel], Rows, Rows]:
    """Return models with room for a lesson, as they compute, and the rows of the first and of the widest."""
    _tell_of_sums(models[-1], sum(lesson.counts.values()))
    built = [(one, grown(one.saved, lesson.counts)) for one in models]
    trained = [one.build(more) for one, more in built]
    widest = max(trained, key=lambda model: model.backbone.width)
    return built, trained, *_rows_of_both(models[0], trained[0], widest, lesson)


def _known_of_training(smallest: Mapping[str, Any], lesson: Lesson) -> dict[str, Any] | None:
    """Return what training added on streams of as many images a class, of which as many are found.

    Args:
        smallest: The smallest of the models that were tried, which reads the last layer alone.
        lesson: What was learned.
    """
    # streams are alike by an accuracy, and a few classes are told apart easily whatever they show
    if smallest["accuracy"] is None or len(lesson.counts) < _FEWEST:
        return None
    images = sum(lesson.counts.values()) / len(lesson.counts)
    gain = training_gain(images, smallest["accuracy"])
    return None if gain is None else {**attrs.asdict(gain), "words": str(gain)}


def _tell_of_sums(largest: FirstModel, images: int) -> None:
    """Say what sums of wide features take, where images are too many to stand in their place."""
    head = largest.parts.baseline.closed_form
    few = None if head is None else head.rows_in_range()
    if few is None or not few.has_room(images):
        for text in largest.parts.layer_notes:
            tell_note(text)


def _rows_of_both(
    first: FirstModel, own: TrainedModel, several: TrainedModel, lesson: Lesson
) -> tuple[Rows, Rows]:
    """Return the backbone's own features and those of several layers, of one forward.

    Args:
        first: A model on the former.
        own: It, with room for the classes.
        several: A model on the latter.
        lesson: What both learn from.
    """
    if several.backbone is own.backbone:
        rows = rows_of(own, lesson)
        return rows, rows
    with gathering_own(first.parts.backbone) as gathered:
        rows = rows_of(several, lesson)
    # one after the other, as they were computed
    every = torch.cat(gathered).cpu()
    images, every = _cut_like(rows.images, every)
    tested = None
    if rows.tested is not None:
        tested, every = _cut_like(rows.tested, every)
    return Rows(images=images, tested=tested), rows


def _cut_like(rows: Mapping[str, Tensor], every: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return as many leading rows for each class as others have, and the rows that are left."""
    cut = {}
    for name, others in rows.items():
        # a copy: a view would be written with all the rows
        cut[name] = every[: len(others)].clone()
        every = every[len(others) :]
    return cut, every


def _tried(models: Sequence[FirstModel], measures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what left-out images say of each model."""
    tried = []
    for one, found in zip(models, measures, strict=True):
        entry: dict[str, Any] = {"head": one.head, "layers": one.layers}
        if one.units:
            entry["units"] = one.units
        tried.append({**entry, "accuracy": found["left_out_accuracy"], "images": found["left_out"]})
    return tried
