"""One step of learning: what models are taught, how the result is checked, and how it is written.

A model is taught as it is, or it is chosen anew among several (:mod:`lw2g_photos.head_choice`); all of them
read the same images, by one forward each.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import torch
from torch import Tensor

from lw2g import __version__
from lw2g.config.directory import WEIGHTS
from lw2g.disk.checkpoint import part, under
from lw2g.errors import ConfigError, DataError, counted
from lw2g.maths.few_rows import sharing_ranges
from lw2g.model.exported import Saved, write_export
from lw2g.model.exporting import lasting_tensors
from lw2g.model.left_out import Calibration, calibration_of
from lw2g.model.manifest import Manifest, Step
from lw2g.model.parts import ModelParts
from lw2g.model.rejection import Gaussians
from lw2g.model.solved import Solved, solved_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.registry.catalogue import Catalogue
from lw2g_photos.class_folders import ClassImages, digest_of
from lw2g_photos.head_choice import (
    Untaught,
    add_rows,
    chosen,
    known_of_training,
    old_images_found,
    place_before,
    rows_of_each,
    tell_of_sums,
    with_candidates,
    words_of_kept_head,
)
from lw2g_photos.labelled_images import LabelledImages
from lw2g_photos.lesson import Lesson, Rows, read_lesson, read_rows
from lw2g_photos.near_copies import near_copies_told
from lw2g_photos.step_checks import (
    accuracy_of,
    domains_learned,
    learned_rows,
    left_out_classes,
    look_alikes,
    not_learned,
    recall,
    warnings_of,
)
from lw2g_photos.step_words import as_typed, words_of_near_copies
from lw2g_photos.steps import grown

__all__ = ["Measured", "measured", "take_step", "told_of_left_out", "with_base", "write_model"]

Recall: TypeAlias = dict[str, dict[str, Any]]
"""How many images of each class are found, as :func:`~lw2g_photos.step_checks.recall` returns it."""
_LARGE = 2**20
"""Numbers of zeros that a model does not write down."""


@attrs.frozen(kw_only=True, eq=False)
class Measured:
    """What a model says of the images that it keeps, each left out in turn.

    Attributes:
        calibration: What rejects unknown images.
        measures: What left-out images say.
        gaussians: Those of its head, if it keeps any.
    """

    calibration: Calibration
    measures: Mapping[str, Any]
    gaussians: Gaussians | None


def measured(model: TrainedModel, saved: Saved) -> Measured:
    """Return what a model says of the images that it keeps.

    Args:
        model: The model as it computes.
        saved: The same with the features that it keeps.
    """
    with model.computing():
        calibration, measures, gaussians = calibration_of(solved_of(model.parts), saved)
    return Measured(calibration=calibration, measures=measures, gaussians=gaussians)


def told_of_left_out(found: Measured, manifest: Manifest) -> dict[str, Any]:
    """Return what a report, and the last step of a model, say of the images that the model keeps.

    Args:
        found: What the model says of them.
        manifest: The model.
    """
    measures = {key: value for key, value in found.measures.items() if key not in ("right", "wrong")}
    return measures | {"left_out_classes": left_out_classes(found.measures["wrong"], manifest)}


@attrs.frozen(kw_only=True, eq=False)
class _Taught:
    """A model that has learned, before images that it has not learned are asked for.

    Attributes:
        saved: The model; its tensors are those before the step, its features those after it.
        model: Its new state.
        rows: What it was fed.
        found: What it says of the images that it keeps.
    """

    saved: Saved
    model: TrainedModel
    rows: Rows
    found: Measured


@attrs.frozen(kw_only=True, eq=False)
class _Fed:
    """A model with what it is to learn.

    Attributes:
        before: The model before the step.
        more: The same with a task more.
        model: What computes it.
        rows: What it is fed.
    """

    before: Untaught
    more: Saved
    model: TrainedModel
    rows: Rows


def take_step(
    saved: Manifest,
    models: Callable[[int], Sequence[Untaught]],
    folder: Path | LabelledImages,
    catalogue: Catalogue,
    out: Path,
    look: Callable[[Path], None],
    *,
    test: Path | LabelledImages | None,
    max_loss: float | None = None,
    crops: Crops | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Let a model learn from a folder, check the result, and write it.

    Of several models the one is taken whose left-out images are found best: each image is left out of the
    sums in turn, so that all of them say which it is, and those of ``test`` say nothing. Within one standard
    error of the best, the first is taken.

    Args:
        saved: The model; without a task where it begins.
        models: Returns, given the number of images to learn, the models among which it is chosen, from the
            smallest to the largest; or the only one.
        folder: What it learns from.
        catalogue: Where components come from.
        out: The new model's folder.
        look: Opens what was written, and raises where it cannot be used.
        test: As for :func:`lw2g.learn`.
        max_loss: Likewise.
        crops: As for :func:`~lw2g_photos.lesson.read_lesson`.

    Returns:
        The new model, and the report; of several models with ``choice``, and where it begins ``training``:
        what it added on streams with as many images a class
        (:func:`~lw2g_photos.training_gains.training_gain`).

    Raises:
        DataError: The folder or an image cannot be used.
        ConfigError: The head cannot learn, or the old classes lose too much.
    """
    began = time.monotonic()
    read = partial(read_lesson, folder, test, saved, catalogue, crops)
    # what is wrong with a folder is reported before a backbone is opened
    lesson, fed = read_rows(read, partial(_fed, models))
    trials = []
    if lesson.tested is None:
        # before all rows are in the sums, or images would be found by what was learned of them
        trials = [copy.deepcopy(solved_of(one.model.parts)) for one in fed]
    tried = [one.before for one in fed]
    old = place_before(tried, saved)
    # before it learns, too: what the step costs is how many old images fewer are found after it
    before = None if old is None else measured(fed[old].model, tried[old].saved).measures["right"]
    with sharing_ranges():
        taught = [_teach(one) for one in fed]
    taken, choice = 0, None
    if len(fed) > 1:
        taken, choice = chosen(tried, [one.found.measures for one in taught], old)
    best = taught[taken]
    found = _recall_of_held_out(trials[taken], best, lesson.images) if trials else None
    del trials
    # whatever a model of one class is asked, it answers that one: it has no accuracy to lose
    knew_one_class = len(saved.class_map.target_names) == 1
    report = _checked(best, saved, lesson, found) | _costs(before, best, knew_one_class=knew_one_class)
    widest = max(taught, key=lambda one: one.saved.manifest.fingerprint.width)
    held_out = {name: of_class.held_out for name, of_class in lesson.images.items()}
    drawings = catalogue.get("backbone", saved.backbone.name).embedded
    report["near_copies"] = near_copies_told(report, widest.saved, widest.model, held_out, drawings=drawings)
    if choice is not None:
        report["choice"] = choice
        if old is None:
            report["training"] = known_of_training(lesson)
    if not knew_one_class:
        _require_small_loss(report, max_loss)
    best = attrs.evolve(best, saved=with_candidates(best.saved, tried, [one.saved for one in taught]))
    report = _write_step(tried[taken].saved, best, report, lesson, out, look)
    return best.model, report | {"seconds": round(time.monotonic() - began, 3)}


def _fed(models: Callable[[int], Sequence[Untaught]], lesson: Lesson) -> tuple[Lesson, list[_Fed]]:
    """Return what is new of a lesson, and models with what they are to learn of it.

    Raises:
        DataError: Nothing is new, or an image was learned before as another class.
    """
    images = sum(lesson.counts.values())
    tried = models(images)
    grown_ones = [grown(one.saved, lesson.counts) for one in tried]
    trained = [one.build(more) for one, more in zip(tried, grown_ones, strict=True)]
    if not tried[0].saved.manifest.tasks:
        tell_of_sums(trained, images)
    rows = rows_of_each(trained, lesson)
    fed = [
        _Fed(before=one, more=more, model=model, rows=of_model)
        for one, more, model, of_model in zip(tried, grown_ones, trained, rows, strict=True)
    ]
    return _without_known(lesson, fed)


def _without_known(lesson: Lesson, fed: list[_Fed]) -> tuple[Lesson, list[_Fed]]:
    """Return a lesson and models without the images that were learned before; as :func:`_fed` says."""
    first = fed[0]
    if not first.before.saved.manifest.tasks:
        return lesson.compared(first.rows, ()), fed
    known = learned_rows(first.before.saved, trained=solved_of(first.model.parts).trained)
    new = not_learned(first.rows.images, lesson.images, known)
    lesson = lesson.compared(first.rows, [features for _, features in known])
    if all(bool(is_new.all()) for is_new in new.values()):
        return lesson, fed
    lesson = lesson.among(new)
    if not lesson.images:
        raise DataError(
            f"there is nothing new to learn: {counted(lesson.num_again, 'image')} learned before",
            "give others",
        )
    left = []
    for one in fed:
        # built anew: a class of which nothing is left has no place in the step
        more = grown(one.before.saved, lesson.counts)
        model = one.before.build(more)
        left.append(_Fed(before=one.before, more=more, model=model, rows=one.rows.among(new)))
    return lesson, left


def _teach(fed: _Fed) -> _Taught:
    """Let a model learn."""
    more = fed.more
    learned = dict(more.learned)
    for number, rows_of_class in enumerate(fed.rows.images.values()):
        learned[f"features/{len(more.manifest.history.steps)}/{number}"] = rows_of_class
    after = attrs.evolve(more, learned=learned)
    with fed.model.computing():
        position = more.manifest.infos[-1].classes[0]
        add_rows(solved_of(fed.model.parts), list(fed.rows.images.values()), position)
    found = measured(fed.model, after)
    return _Taught(saved=after, model=fed.model, rows=fed.rows, found=found)


def _checked(taught: _Taught, before: Manifest, lesson: Lesson, found: Recall | None) -> dict[str, Any]:
    """Return what the checks say of a model that has learned.

    Args:
        taught: The model.
        before: The model before the step.
        lesson: What it has learned from.
        found: What :func:`_recall_of_held_out` says, where nothing else checks the result.
    """
    manifest = taught.saved.manifest
    measures = told_of_left_out(taught.found, manifest)
    with taught.model.computing():
        if taught.rows.tested is not None:
            found = recall(solved_of(taught.model.parts), manifest, taught.rows.tested)
        assert found is not None
        estimate = look_alikes(taught.found.gaussians, taught.found.measures["wrong"], manifest)
    return {
        "classes": _class_entries(lesson.counts, found, before),
        **accuracy_of(found),
        **estimate,
        **measures,
        **lesson.places,
    }


def _costs(before: Tensor | None, taught: _Taught, *, knew_one_class: bool) -> dict[str, Any]:
    """Return what a step costs the old classes, by the images that the model kept of them.

    Args:
        before: Which of these were found before the step, as
            :func:`~lw2g_photos.head_choice.old_images_found` takes it.
        taught: The model after it.
        knew_one_class: Whether the model before it knew one class, which has nothing to lose.
    """
    old = old_images_found(before, taught.found.measures["right"])
    if old is None:
        return {"loss": None, "old_classes": None}
    if knew_one_class:
        return {"loss": None, "old_classes": {**old, "before": None}}
    return {"loss": old["before"] - old["now"], "old_classes": old}


def _write_step(
    before: Saved,
    taught: _Taught,
    report: dict[str, Any],
    lesson: Lesson,
    out: Path,
    look: Callable[[Path], None],
) -> dict[str, Any]:
    """Write a model that has learned, and return the report with warnings.

    Args:
        before: The model before the step.
        taught: The model after it.
        report: What the checks say.
        lesson: What it has learned from.
        out: As for :func:`take_step`.
        look: Likewise.
    """
    after = taught.saved
    history = after.manifest.history
    # the step keeps what the checks say, and of this machine the names of the folders alone
    history = attrs.evolve(history, steps=[*history.steps, _step_of(before, lesson.images, report)])
    after = attrs.evolve(after, manifest=attrs.evolve(after.manifest, learning=history))
    after = attrs.evolve(after, learned=with_base(before, taught.model.parts, after.learned))
    series = words_of_near_copies(report["near_copies"], as_typed(str(out.absolute())))
    warnings = [
        *([series] if series else []),  # first: it says what the accuracy is worth
        *lesson.warnings(),
        *warnings_of(report, lesson.images, before.manifest),
        *lesson.test_warnings(),
        *words_of_kept_head(after.manifest),
    ]
    write_model(after, taught.model, taught.found.calibration.tensors(), out, look)
    unusable = [str(path) for path in lesson.unusable]
    said = {"warnings": warnings, "domains": domains_learned(lesson.images, before.manifest)}
    return {"out": str(out.absolute()), **report, "unusable": unusable, **said}


def _step_of(saved: Saved, images: dict[str, ClassImages], checks: dict[str, Any]) -> Step:
    """Return what a model notes of a step.

    Args:
        saved: The model before it.
        images: What it learned from.
        checks: What was found of the result.
    """
    return Step(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        lw2g=__version__,
        parent=saved.manifest.files.get(WEIGHTS, ""),
        classes=list(images),
        images=[len(of_class.paths) for of_class in images.values()],
        digest=digest_of(images),
        checks=checks,
    )


def _recall_of_held_out(trial: Solved, taught: _Taught, images: Mapping[str, ClassImages]) -> Recall:
    """Return how many of the images that are set apart are found by what learns the others alone.

    Args:
        trial: What of the model learns, before the step.
        taught: The model after it.
        images: Of each class.
    """
    checked = {}
    others = []
    for name, rows_of_class in taught.rows.images.items():
        is_held_out = torch.tensor(images[name].held_out)
        others.append(rows_of_class[~is_held_out])
        if is_held_out.any():
            checked[name] = rows_of_class[is_held_out]
    manifest = taught.saved.manifest
    with taught.model.computing():
        add_rows(trial, others, manifest.infos[-1].classes[0])
        return recall(trial, manifest, checked)


def _class_entries(
    counts: Mapping[str, int], found: Mapping[str, Mapping[str, Any]], before: Manifest
) -> list[dict[str, Any]]:
    """Return what the report says of each class of a step.

    Args:
        counts: Its images.
        found: How many of those that were checked are found.
        before: The model before the step.
    """
    known = before.class_map.by_name
    unchecked: dict[str, Any] = {"checked": 0, "recall": None, "taken_for": []}
    entries = []
    for name, count in counts.items():
        entry = {"class": name, "images": count, "new": name not in known}
        entries.append({**entry, **found.get(name, unchecked)})
    return entries


def _require_small_loss(report: Mapping[str, Any], max_loss: float | None) -> None:
    """Refuse a step that costs old classes more than is allowed.

    Raises:
        ConfigError: It does, or nobody knows.
    """
    if max_loss is None:
        return
    known = [loss for loss in (report["loss"], report["estimated_loss"]) if loss is not None]
    if not known:
        what = "cannot be estimated for this head"
        remedy = "leave --max-loss out to learn all the same"
    elif max(known) > max_loss:
        what = f"is {max(known):.1f} points, above {max_loss:g}"
        remedy = "raise --max-loss to accept it"
    else:
        return
    raise ConfigError(f"--max-loss: the loss of the old classes {what}: nothing was written", remedy)


# -- writing -------------------------------------------------------------------------------------------------


def with_base(saved: Saved, parts: ModelParts, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what only learning reads, with the state before the first step of all that steps change.

    Args:
        saved: The model before the step.
        parts: Those of the model after it.
        learned: The features that it keeps; where it has learned before, with the state before that.
    """
    now = {name: value.cpu() for name, value in part(lasting_tensors(parts), "baseline").items()}
    before = part(saved.tensors, "baseline")
    base = {}
    for name, value in before.items():
        if f"zero/{name}" in learned:
            continue  # before the first step; what a later one finds is no base
        same = name in now and now[name].shape == value.shape and torch.equal(now[name], value.cpu())
        if not same and value.numel() >= _LARGE and not value.any():
            base[f"zero/{name}"] = torch.tensor(value.shape)
        elif not same:
            base[f"base/{name}"] = value
    for name in now.keys() - before.keys():
        base[f"new/{name}"] = torch.zeros(0)  # the name says all: there was no such tensor
    return {**base, **learned}  # what came before the first step stays


def write_model(
    saved: Saved,
    model: TrainedModel,
    calibration: Mapping[str, Tensor],
    out: Path,
    look: Callable[[Path], None],
) -> None:
    """Write a model in its new state, and let it reject by its new calibration.

    Args:
        saved: The model; its tensors are those before.
        model: Its new state.
        calibration: What rejects unknown images.
        out: The folder.
        look: As for :func:`take_step`.
    """
    # weights that an export brought along go along with the next one
    tensors = {
        **lasting_tensors(model.parts),
        **under("backbone", part(saved.tensors, "backbone")),
        **under("calibration", calibration),
    }
    write_export(attrs.evolve(saved, tensors=tensors), out, look=look)
    model.calibration = calibration
