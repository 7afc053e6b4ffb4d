"""Learning after the run: new classes, or more images of known ones, from their images alone.

The backbone and the sets stay as they are; only the sums of a closed-form head grow. So a step is exact: it
gives the head that a stream with the same images would have. The model keeps the features of the images it
learns from (``learned.safetensors``) and the sums before the first step. Taking a step or a class back means
to add up again without it, which has the same bits as never having learned it.

A model has two forms on its way: :class:`~lw2g.model.exported.Saved`, values as they are on disk, and
:class:`~lw2g.model.trained.TrainedModel`, which computes. Each is made once.
"""

from __future__ import annotations

import copy
import math
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
from lw2g.errors import ConfigError
from lw2g.model.exported import Saved, read_export, write_export
from lw2g.model.exporting import lasting_tensors
from lw2g.model.frozen_expert import expert_of
from lw2g.model.left_out import Calibration, calibration_of, features_of
from lw2g.model.live import live_model
from lw2g.model.manifest import Manifest, Step
from lw2g.model.parts import ModelParts
from lw2g.model.places import reserved
from lw2g.model.rejection import Gaussians
from lw2g.model.saved import require_usable
from lw2g.model.solved import Solved, solved_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.registry.catalogue import Catalogue
from lw2g_photos.class_folders import ClassImages, digest_of
from lw2g_photos.labelled_images import LabelledImages, paths_among
from lw2g_photos.lesson import Lesson, Rows, read_lesson, read_rows, rows_of
from lw2g_photos.step_checks import accuracy_of, learned_twice, look_alikes, recall, warnings_of
from lw2g_photos.steps import grown, without_class, without_step

__all__ = [
    "Learned",
    "Taught",
    "check_taught",
    "learn",
    "recall_of_held_out",
    "take_step",
    "teach_rows",
    "unlearn",
    "write_step",
]

Recall: TypeAlias = dict[str, dict[str, Any]]
"""How many images of each class are found, as :func:`~lw2g_photos.step_checks.recall` returns it."""
_LARGE = 2**20
"""Numbers of zeros that a model does not write down."""


def learn(
    directory: Path,
    folder: Path | LabelledImages,
    catalogue: Catalogue,
    *,
    out: Path | None = None,
    test: Path | LabelledImages | None = None,
    max_loss: float | None = None,
    device: str | None = None,
    weights: Path | None = None,
    crops: Crops | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Let an exported model learn from new images, as :func:`lw2g.learn` says, and write the result."""
    if max_loss is not None and not 0 <= max_loss < math.inf:  # NaN is not, either
        raise ConfigError(f"--max-loss: expected points of accuracy from 0 but got {max_loss}", "such as 2.5")
    saved = read_export(directory, whole=True)

    def build(more: Saved) -> TrainedModel:
        tasks = len(saved.manifest.tasks)
        return live_model(more, catalogue, device=device, weights=weights, tasks=tasks)

    look = partial(require_usable, catalogue=catalogue, whole=True, device=device, weights=weights)
    with reserved(out, directory, inputs=paths_among(folder, test)) as place:
        return take_step(
            saved, folder, build, catalogue, place, look, test=test, max_loss=max_loss, crops=crops
        )


def unlearn(
    directory: Path,
    name: str | None,
    catalogue: Catalogue,
    *,
    out: Path | None = None,
    device: str | None = None,
    weights: Path | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Take a class or the last step back, as :func:`lw2g.unlearn` says, and write the result."""
    saved = read_export(directory, whole=True)

    def has_own_rows() -> bool:
        """Return whether the sums of a class can be left out; asked by need: it opens the backbone."""
        baseline = live_model(saved, catalogue, device=device, weights=weights).baseline
        head = baseline.closed_form
        # an expert has a scatter of all classes, out of which none can be taken
        return head is not None and head.class_rows and expert_of(baseline) is None

    less = without_step(saved) if name is None else without_class(saved, name, has_own_rows)
    history = less.manifest.history
    if not less.manifest.tasks:
        raise ConfigError("the model would know no class any more", "remove its folder instead")
    # from the sums before the first step on, all steps that are left are learned again: so the model begins
    # with the tasks that it had by then
    model = live_model(less, catalogue, device=device, weights=weights, tasks=history.tasks)
    solved = solved_of(model.parts)
    with model.computing():
        position = less.manifest.num_base_classes
        for number in range(len(history.steps)):
            rows = features_of(less.learned, number)
            _add(solved, rows, position)
            position += len(rows)
        calibration = calibration_of(solved, less)[0].tensors()
    if not history.steps:
        # nothing can be taken back any more: no need of the state before the first step ("base/", and by
        # shape "zero/"), and of the names of what came with it ("new/")
        learned = {
            key: rows for key, rows in less.learned.items() if not key.startswith(("base/", "new/", "zero/"))
        }
        less = attrs.evolve(less, learned=learned)
    look = partial(require_usable, catalogue=catalogue, whole=True, device=device, weights=weights)
    with reserved(out, directory) as place:
        _write(less, model, calibration, place, look)
    remaining = list(less.manifest.class_map.target_names)
    report = {
        "out": str(place),
        "forgotten": sorted(set(saved.manifest.class_map.target_names) - set(remaining)),
        "classes": remaining,
        "remains": [*_remains(model.parts), *_choices_of(saved.manifest, less.manifest)],
    }
    return model, report


# -- a step --------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False)
class Learned:
    """A model after a step that nobody has written yet.

    Attributes:
        saved: The model; its tensors are those before the step.
        model: Its new state.
        calibration: What rejects unknown images.
        rows: What it was fed.
        report: What the checks say.
    """

    saved: Saved
    model: TrainedModel
    calibration: Mapping[str, Tensor]
    rows: Rows
    report: dict[str, Any]


def take_step(
    saved: Saved,
    folder: Path | LabelledImages,
    build: Callable[[Saved], TrainedModel],
    catalogue: Catalogue,
    out: Path,
    look: Callable[[Path], None],
    *,
    test: Path | LabelledImages | None,
    max_loss: float | None = None,
    crops: Crops | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Let a model learn from a folder, check the result, and write it.

    Args:
        saved: The model.
        folder: What it learns from.
        build: Returns the model that computes, given it with a task more.
        catalogue: Where components come from.
        out: The new model's folder.
        look: Opens what was written, and raises where it cannot be used.
        test: As for :func:`lw2g.learn`.
        max_loss: Likewise.
        crops: As for :func:`~lw2g_photos.lesson.read_lesson`.

    Returns:
        The new model, and the report.

    Raises:
        DataError: The folder or an image cannot be used.
        ConfigError: The head cannot learn, or the old classes lose too much.
    """
    began = time.monotonic()

    def fed(lesson: Lesson) -> tuple[Saved, TrainedModel, Rows]:
        # only now: what is wrong with a folder is reported before a backbone is opened
        more = grown(saved, lesson.counts)
        model = build(more)
        return more, model, rows_of(model, lesson)

    read = partial(read_lesson, folder, test, saved.manifest, catalogue, crops)
    lesson, (more, model, rows) = read_rows(read, fed)
    found = None
    if rows.tested is None:
        # before all rows are in the sums, or images would be found by what was learned of them
        found = recall_of_held_out(model, more.manifest, lesson.images, rows.images)
    learned = check_taught(saved, teach_rows(more, model, rows), lesson, found)
    _require_small_loss(learned.report, max_loss)
    report = write_step(saved, learned, lesson, out, look)
    return model, report | {"seconds": round(time.monotonic() - began, 3)}


@attrs.frozen(kw_only=True, eq=False)
class Taught:
    """A model whose sums have grown, before images that it has not learned are asked for.

    Attributes:
        saved: The model; its tensors are those before the step.
        model: Its new state.
        rows: What it was fed.
        calibration: What rejects unknown images.
        measures: What left-out images say.
        gaussians: Those of its head, if it keeps any.
    """

    saved: Saved
    model: TrainedModel
    rows: Rows
    calibration: Calibration
    measures: Mapping[str, Any]
    gaussians: Gaussians | None


def teach_rows(more: Saved, model: TrainedModel, rows: Rows) -> Taught:
    """Let a model learn.

    Args:
        more: The model before the step, with a task more.
        model: What computes it; its sums grow.
        rows: What it is fed.
    """
    solved = solved_of(model.parts)
    learned = dict(more.learned)
    for number, rows_of_class in enumerate(rows.images.values()):
        learned[f"features/{len(more.manifest.history.steps)}/{number}"] = rows_of_class
    after = attrs.evolve(more, learned=learned)
    with model.computing():
        position = more.manifest.infos[-1].classes[0]
        _add(solved, list(rows.images.values()), position)
        calibration, measures, gaussians = calibration_of(solved, after, learned=True)
    return Taught(
        saved=after,
        model=model,
        rows=rows,
        calibration=calibration,
        measures=measures,
        gaussians=gaussians,
    )


def check_taught(saved: Saved, taught: Taught, lesson: Lesson, found: Recall | None) -> Learned:
    """Return a model that has learned, with what the checks say.

    Args:
        saved: The model before the step.
        taught: The model after it.
        lesson: What it has learned from.
        found: What :func:`recall_of_held_out` says, where nothing else checks the result.
    """
    rows = taught.rows
    manifest = taught.saved.manifest
    measures = dict(taught.measures)
    with taught.model.computing():
        if rows.tested is not None:
            found = recall(solved_of(taught.model.parts), manifest, rows.tested)
        assert found is not None
        calibration = taught.calibration.tensors()
        estimate = look_alikes(taught.gaussians, measures.pop("wrong"), manifest)
    report = {
        "classes": _class_entries(lesson.counts, found, saved.manifest),
        **accuracy_of(found),
        **estimate,
        **measures,
    }
    return Learned(saved=taught.saved, model=taught.model, calibration=calibration, rows=rows, report=report)


def write_step(
    saved: Saved, learned: Learned, lesson: Lesson, out: Path, look: Callable[[Path], None]
) -> dict[str, Any]:
    """Write a model that has learned, and return the report with warnings.

    Args:
        saved: The model before the step.
        learned: The model after it.
        lesson: What it has learned from.
        out: As for :func:`take_step`.
        look: Likewise.
    """
    after = learned.saved
    warnings = [
        *warnings_of(learned.report, lesson.images, saved.manifest),
        *learned_twice(learned.rows.images, lesson.images, saved),
        *lesson.test_warnings(learned.rows),
    ]
    history = after.manifest.history
    # the step keeps what the checks say, and no place of this machine
    history = attrs.evolve(history, steps=[*history.steps, _step_of(saved, lesson.images, learned.report)])
    after = attrs.evolve(
        after,
        manifest=attrs.evolve(after.manifest, learning=history),
        learned=_with_base(saved, learned.model.parts, after.learned),
    )
    _write(after, learned.model, learned.calibration, out, look)
    return {"out": str(out), **learned.report, "warnings": warnings}


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


def recall_of_held_out(
    model: TrainedModel, manifest: Manifest, images: Mapping[str, ClassImages], rows: Mapping[str, Tensor]
) -> Recall:
    """Return how many of the images that are set apart are found by a copy that learns the others.

    Args:
        model: The model before the step, with room for it; it stays as it is.
        manifest: The model with the step.
        images: Of each class.
        rows: Their features.
    """
    checked = {}
    others = []
    for name, rows_of_class in rows.items():
        is_held_out = torch.tensor(images[name].held_out)
        others.append(rows_of_class[~is_held_out])
        if is_held_out.any():
            checked[name] = rows_of_class[is_held_out]
    with model.computing():
        # a copy: those that are set apart join the sums of the model afterwards
        trial = copy.deepcopy(solved_of(model.parts))
        _add(trial, others, manifest.infos[-1].classes[0])
        return recall(trial, manifest, checked)


def _add(solved: Solved, rows: Sequence[Tensor], position: int) -> None:
    """Add the features of classes to the sums.

    Args:
        solved: What learns.
        rows: The features, class by class.
        position: The position of the first class; the others follow.
    """
    if not rows:
        return
    counts = torch.tensor([len(rows_of_class) for rows_of_class in rows])
    labels = torch.arange(position, position + len(rows)).repeat_interleave(counts)
    solved.update(torch.cat(list(rows)).to(solved.device), labels.to(solved.device))


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
    elif max(known) > max_loss:
        what = f"is {max(known):.1f} points"
    else:
        return
    raise ConfigError(f"--max-loss: the loss of the old classes {what}", "raise it, or leave it out")


# -- writing -------------------------------------------------------------------------------------------------


def _with_base(saved: Saved, parts: ModelParts, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
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


def _write(
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


def _choices_of(before: Manifest, after: Manifest) -> list[str]:
    """Return, in words, what was chosen by images of a class that is forgotten now."""
    first, *_ = (*before.history.steps, None)
    left, *_ = (*after.history.steps, None)
    if first is None or left is None or "choice" not in first.checks or first.classes == left.classes:
        return []
    return ["the choice of the head and its layers, which images of this class took part in"]


def _remains(parts: ModelParts) -> list[str]:
    """Return, in words, the parts of a model that were fitted to images now forgotten and that stay."""
    solved = solved_of(parts)
    words = []
    if parts.baseline.scope.learned:
        words.append("the sets, which were trained before the export")
    if not solved.head.exact:
        words.append("constants that the head chose before the export")
    if solved.expert is not None and solved.expert.temperature is not None:
        words.append("the head's temperature beside the expert, which was fitted before the export")
    return words
