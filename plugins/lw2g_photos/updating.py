"""Learning after the run: new classes, or more images of known ones, from their images alone.

The backbone and the sets stay as they are; only the sums of a closed-form head grow. So a step is exact: it
gives the head that a stream with the same images would have. The model keeps the features of the images it
learns from (``learned.safetensors``) and the sums before the first step. Taking a step or a class back means
to add up again without it, which has the same bits as never having learned it.

A model has two forms on its way: :class:`~lw2g.model.exported.Saved`, values as they are on disk, and
:class:`~lw2g.model.trained.TrainedModel`, which computes. Each is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import attrs

from lw2g.disk.checkpoint import part
from lw2g.errors import ConfigError
from lw2g.maths.few_rows import sharing_ranges
from lw2g.model.exported import Saved, read_export
from lw2g.model.frozen_expert import expert_of
from lw2g.model.live import live_model
from lw2g.model.manifest import Manifest
from lw2g.model.parts import ModelParts
from lw2g.model.places import reserved
from lw2g.model.saved import require_usable
from lw2g.model.solved import solved_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.registry.catalogue import Catalogue
from lw2g.results.leading_check import leading_check
from lw2g_photos.head_choice import (
    Untaught,
    chosen,
    has_room,
    learn_again,
    place_before,
    untaught_of,
    with_candidates,
)
from lw2g_photos.labelled_images import LabelledImages, paths_among
from lw2g_photos.near_copies import near_copies_told
from lw2g_photos.step_taking import (
    Measured,
    measured,
    take_step,
    told_of_left_out,
    with_base,
    write_model,
)
from lw2g_photos.steps import without_class, without_step

__all__ = ["learn", "unlearn"]


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
    saved = _read(directory, weights)

    def models(images: int) -> Sequence[Untaught]:
        """Return what the model is chosen among with so many images more; itself where nothing is chosen."""
        if saved.manifest.history.candidates:
            beside = live_model(saved, catalogue, device=device, weights=weights)
            tried = untaught_of(saved, beside.parts, catalogue)
            if has_room([one.saved for one in tried], images):
                return tried

        def build(more: Saved) -> TrainedModel:
            tasks = len(saved.manifest.tasks)
            return live_model(more, catalogue, device=device, weights=weights, tasks=tasks)

        return [Untaught(saved=saved, build=build)]

    look = partial(require_usable, catalogue=catalogue, whole=True, device=device, weights=weights)
    with reserved(out, directory, inputs=paths_among(folder, test)) as place:
        return take_step(
            saved.manifest, models, folder, catalogue, place, look, test=test, max_loss=max_loss, crops=crops
        )


def unlearn(
    directory: Path,
    name: str | int | None,
    catalogue: Catalogue,
    *,
    out: Path | None = None,
    device: str | None = None,
    weights: Path | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Take a class or the last step back, as :func:`lw2g.unlearn` says, and write the result."""
    saved = _read(directory, weights)
    if isinstance(name, Integral):  # as a program labels images
        name = str(name)
    if not isinstance(name, str | None):
        raise ConfigError(f"{name!r} is no name of a class", "unlearn one class after the other")

    def has_own_rows() -> bool:
        """Return whether the sums of a class can be left out; asked by need: it opens the backbone."""
        baseline = live_model(saved, catalogue, device=device, weights=weights).baseline
        head = baseline.closed_form
        # an expert has a scatter of all classes, out of which none can be taken
        return head is not None and head.class_rows and expert_of(baseline) is None

    less = without_step(saved) if name is None else without_class(saved, name, has_own_rows)
    if not less.manifest.tasks:
        raise ConfigError("the model would know no class any more", "remove its folder instead")
    tried = _all_of(saved, less, catalogue, device=device, weights=weights)
    after, model, found, choice = _retaught(tried, less.manifest)
    look = partial(require_usable, catalogue=catalogue, whole=True, device=device, weights=weights)
    with reserved(out, directory) as place:
        write_model(after, model, found.calibration.tensors(), place, look)
    remaining = list(less.manifest.class_map.target_names)
    remains = _remains(model.parts)
    if choice is None:
        remains += _choices_of(saved.manifest, less.manifest)
    report: dict[str, Any] = {
        "out": str(place.absolute()),
        "forgotten": sorted(set(saved.manifest.class_map.target_names) - set(remaining)),
        "classes": remaining,
        "remains": remains,
        **told_of_left_out(found, after.manifest),
    }
    steps = after.manifest.history.steps
    report["near_copies"] = steps[-1].checks.get("near_copies") if steps else None
    if choice is not None:
        report["choice"] = choice
    return model, report


def _read(directory: Path, weights: Path | None) -> Saved:
    """Return an exported model; weights that are given are from now on those that it records."""
    saved = read_export(directory, whole=True)
    if weights is None or part(saved.tensors, "backbone"):
        return saved
    backbone = attrs.evolve(saved.manifest.backbone, weights=str(weights.absolute()))
    return attrs.evolve(saved, manifest=attrs.evolve(saved.manifest, backbone=backbone))


def _all_of(
    saved: Saved, less: Saved, catalogue: Catalogue, *, device: str | None, weights: Path | None
) -> list[Untaught]:
    """Return what a model is chosen among once something was taken back; itself where nothing is chosen.

    Args:
        saved: The model.
        less: The same without what was taken back, in the state before its first step.
        catalogue: Where components come from.
        device: As for :func:`unlearn`.
        weights: Likewise.
    """
    if less.manifest.history.candidates:
        beside = live_model(saved, catalogue, device=device, weights=weights)
        return untaught_of(less, beside.parts, catalogue)

    def build(rest: Saved) -> TrainedModel:
        # it begins with the tasks that it had before the first step
        tasks = rest.manifest.history.tasks
        model = live_model(rest, catalogue, device=device, weights=weights, tasks=tasks)
        learn_again(model, rest)
        return model

    return [Untaught(saved=less, build=build)]


def _retaught(
    tried: Sequence[Untaught], less: Manifest
) -> tuple[Saved, TrainedModel, Measured, dict[str, Any] | None]:
    """Return a model that has learned all of its steps again, from the sums before the first one on.

    Args:
        tried: What it is chosen among, or itself.
        less: It, with the head of before.

    Returns:
        The model as it is on disk, but for its tensors; as it computes; what it says of the images that it
        keeps; and the choice, None where there was none.
    """
    with sharing_ranges():
        built = [one.build(one.saved) for one in tried]
        found = [measured(model, one.saved) for one, model in zip(tried, built, strict=True)]
    taken, choice = 0, None
    if len(tried) > 1:
        measures = [of_model.measures for of_model in found]
        taken, choice = chosen(tried, measures, place_before(tried, less))
    model = built[taken]
    before = tried[taken].saved
    after = with_candidates(before, tried, [one.saved for one in tried])
    # "base/" and by shape "zero/": the state before the first step; "new/": names of what came with it
    learned = {
        key: rows for key, rows in after.learned.items() if not key.startswith(("base/", "new/", "zero/"))
    }
    if less.history.steps:  # else nothing can be taken back any more
        learned = with_base(before, model.parts, learned)
    widest = max(range(len(tried)), key=lambda place: tried[place].saved.manifest.fingerprint.width)
    kept = attrs.evolve(tried[widest].saved, manifest=after.manifest)
    noted = _noting(kept, choice, found[taken], built[widest])
    after = attrs.evolve(after, manifest=noted, learned=learned)
    return after, model, found[taken], choice


def _noting(saved: Saved, choice: Mapping[str, Any] | None, found: Measured, model: TrainedModel) -> Manifest:
    """Return a model whose last step notes what holds without what is forgotten now.

    Args:
        saved: The model, with features of all that it keeps.
        choice: The choice that was made, None where there was none.
        found: What the model says of the images that it keeps.
        model: What has these features.
    """
    manifest = saved.manifest
    history = manifest.history
    if not history.steps:
        return manifest
    *steps, last = history.steps
    # what the step cost stays as it was
    checks = {**last.checks, **told_of_left_out(found, manifest)}
    lead = leading_check(checks, has_old_classes=False)
    if lead is not None and lead.leaves_out:  # images that were set apart have the neighbours that they had
        checks["near_copies"] = near_copies_told(checks, saved, model, {}, drawings=False)
    if choice is not None:
        checks["choice"] = dict(choice)
    last = attrs.evolve(last, checks=checks)
    return attrs.evolve(manifest, learning=attrs.evolve(history, steps=[*steps, last]))


def _choices_of(before: Manifest, after: Manifest) -> list[str]:
    """Return, in words, what was chosen by images of a class that is forgotten now."""
    first, *_ = (*before.history.steps, None)
    left, *_ = (*after.history.steps, None)
    if first is None or left is None or "choice" not in first.checks or first.classes == left.classes:
        return []
    return ["the choice of the formula, in which images of this class took part"]


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
