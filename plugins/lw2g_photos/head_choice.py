"""A head and layers that are chosen for the user, of features that all candidates read of one forward.

`start` chooses among its candidates, and a model that it has made keeps what `learn` and `unlearn` need to
choose again: the candidates (:class:`~lw2g.model.manifest.Candidate`), and features of all images for each
number of layers. So the head is always the one that all images at once would give, whatever steps they
came in. Where images are so many that wide sums have to be formed, the head stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.disk.checkpoint import part, under
from lw2g.errors import DataError, counted
from lw2g.ground.notes import tell_note
from lw2g.interfaces.defaults import CHOSEN_HEAD
from lw2g.maths.choosing import choice_of, first_within_error
from lw2g.maths.few_rows import few_rows
from lw2g.model.exported import Saved
from lw2g.model.exporting import as_exported, lasting_tensors
from lw2g.model.left_out import features_of
from lw2g.model.live import empty_parts, model_of, parts_for
from lw2g.model.manifest import Manifest
from lw2g.model.parts import ModelParts
from lw2g.model.solved import Solved, solved_of
from lw2g.model.trained import TrainedModel
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.own_feature import gathering_own
from lw2g_photos.lesson import Lesson, Rows, rows_of
from lw2g_photos.training_gains import training_gain

__all__ = [
    "Untaught",
    "add_rows",
    "chosen",
    "has_room",
    "known_of_training",
    "learn_again",
    "old_images_found",
    "place_before",
    "rows_of_each",
    "tell_of_sums",
    "untaught",
    "untaught_of",
    "with_candidates",
    "words_of_kept_head",
]

_FEWEST = 3
"""Classes from which on images are held against streams, which have six and more, and choose a head well."""


@attrs.frozen(kw_only=True, eq=False)
class Untaught:
    """A model before a step: one of several among which a head is chosen, or the only one.

    Attributes:
        saved: The model as it would be on disk.
        build: Returns the model that computes, given it with a task more or as it is.
        units: Random units beside its features.
    """

    saved: Saved
    build: Callable[[Saved], TrainedModel]
    units: int = 0

    @property
    def layers(self) -> int:
        """Of how many layers its features are."""
        return self.saved.manifest.fingerprint.layers

    @property
    def head(self) -> str:
        """Its head."""
        return _head_of(self.saved.manifest)

    @property
    def named(self) -> dict[str, Any]:
        """What it is called among others."""
        name: dict[str, Any] = {"head": self.head, "layers": self.layers}
        return {**name, "units": self.units} if self.units else name


def _head_of(manifest: Manifest) -> str:
    name: str = manifest.baseline.options.get("head", "")
    return name


# -- candidates ----------------------------------------------------------------------------------------------


def untaught(
    empty: ModelParts,
    manifest: Manifest,
    catalogue: Catalogue,
    learned: Mapping[str, Tensor] | None = None,
    units: int = 0,
) -> Untaught:
    """Return a model that learns all its steps anew when it is built.

    Args:
        empty: Its parts, before it has learned anything.
        manifest: The model, with the steps that it has taken.
        catalogue: Where its components come from.
        learned: The features of these steps; None where there are none.
        units: Random units beside its features.
    """

    def build(more: Saved) -> TrainedModel:
        # methods are made anew: those of ``empty`` have no room for a class
        model = model_of(more, parts_for(empty, more.manifest, catalogue), catalogue)
        learn_again(model, more)
        return model

    saved = Saved(manifest=manifest, tensors=lasting_tensors(empty), learned=learned or {})
    return Untaught(saved=saved, build=build, units=units)


def untaught_of(saved: Saved, beside: ModelParts, catalogue: Catalogue) -> list[Untaught]:
    """Return the models among which a model's head is chosen.

    Args:
        saved: The model, with its candidates and the features that these need.
        beside: Its parts, whose backbone all of them share.
        catalogue: Where components come from.

    Raises:
        DataError: The features are not those of the backbone.
        ConfigError: The backbone has not as many layers.
    """
    rows = _rows_by_layers(saved)
    # weights that an export brought along go along with whichever is taken
    inside = under("backbone", part(saved.tensors, "backbone"))
    models = []
    for candidate in saved.manifest.history.candidates:
        manifest = as_exported(saved.manifest.with_candidate(candidate), catalogue)
        known = attrs.evolve(manifest.fingerprint, layers=candidate.layers)
        empty = empty_parts(attrs.evolve(manifest, fingerprint=known), beside, catalogue)
        manifest = attrs.evolve(manifest, fingerprint=empty.backbone.fingerprint)
        width = empty.backbone.width
        own = rows.get(candidate.layers) or _last_columns(rows[max(rows)], width)
        if any(of_class.shape[1:] != (width,) for of_class in own.values()):
            raise DataError(
                f"the model keeps features of other widths than {width}, which its backbone has",
                "make it anew: lw2g start",
            )
        model = untaught(empty, manifest, catalogue, under("features", own), candidate.units)
        tensors = {**model.saved.tensors, **inside}
        models.append(attrs.evolve(model, saved=attrs.evolve(model.saved, tensors=tensors)))
    return models


def with_candidates(saved: Saved, models: Sequence[Untaught], taught: Sequence[Saved]) -> Saved:
    """Return a model that can choose its head again, if its images are few enough.

    Args:
        saved: The model that was taken.
        models: Those that it was chosen among; a single one was not chosen.
        taught: These with the features that they have learned.
    """
    learned = {name: rows for name, rows in saved.learned.items() if not name.startswith("tried/")}
    history = attrs.evolve(saved.manifest.history, candidates=[])
    if len(models) > 1 and has_room(taught):
        candidates = [model.saved.manifest.as_candidate(model.units) for model in models]
        history = attrs.evolve(history, candidates=candidates)
        # the smallest has the backbone's own features; of the widest, all others read the last columns
        widest = max(taught, key=lambda one: one.manifest.fingerprint.width)
        for one in (taught[0], widest):
            layers = one.manifest.fingerprint.layers
            if layers != saved.manifest.fingerprint.layers:
                learned |= under(f"tried/{layers}", part(one.learned, "features"))
    return attrs.evolve(saved, manifest=attrs.evolve(saved.manifest, learning=history), learned=learned)


def has_room(models: Sequence[Saved], images: int = 0) -> bool:
    """Whether images are few enough to choose again: sums are small, or rows stand in their place.

    Args:
        models: The candidates.
        images: How many they are to learn.
    """
    few = few_rows(max(one.manifest.fingerprint.width for one in models))
    return few is None or few.has_room(sum(task.num_images for task in models[0].manifest.tasks) + images)


def _rows_by_layers(saved: Saved) -> dict[int, dict[str, Tensor]]:
    """Return the features of a model's steps, ``STEP/PLACE``, by the number of layers that they are of."""
    rows = {saved.manifest.fingerprint.layers: part(saved.learned, "features")}
    for name, of_class in part(saved.learned, "tried").items():
        layers, _, place = name.partition("/")
        rows.setdefault(int(layers), {})[place] = of_class
    return rows


def _last_columns(rows: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    return {name: of_class[:, -width:].contiguous() for name, of_class in rows.items()}


# -- features ------------------------------------------------------------------------------------------------


def rows_of_each(trained: Sequence[TrainedModel], lesson: Lesson) -> list[Rows]:
    """Return what each model is fed of a lesson, by one forward an image.

    Args:
        trained: The models. The first has the backbone's own features; the others have these, too, or all of
            them those of several of the same last layers.
        lesson: What all of them learn from.
    """
    first = trained[0]
    widest = max(trained, key=lambda model: model.backbone.width)
    if widest.backbone.width == first.backbone.width:
        rows = rows_of(first, lesson)
        return [rows for _ in trained]
    with gathering_own(first.backbone) as gathered:
        several = rows_of(widest, lesson)
    # one after the other, as they were computed
    every = torch.cat(gathered).cpu()
    images, every = _cut_like(several.images, every)
    tested = None
    if several.tested is not None:
        tested, every = _cut_like(several.tested, every)
    own = Rows(images=images, tested=tested)
    return [own if model is first else several.of_last(model.backbone.width) for model in trained]


def _cut_like(rows: Mapping[str, Tensor], every: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return as many leading rows for each class as others have, and the rows that are left."""
    cut = {}
    for name, others in rows.items():
        # a copy: a view would be written with all the rows
        cut[name] = every[: len(others)].clone()
        every = every[len(others) :]
    return cut, every


def learn_again(model: TrainedModel, saved: Saved) -> None:
    """Let a model learn all of its steps, from the state before the first one on."""
    solved = solved_of(model.parts)
    with model.computing():
        position = saved.manifest.num_base_classes
        for number in range(len(saved.manifest.history.steps)):
            rows = features_of(saved.learned, number)
            add_rows(solved, rows, position)
            position += len(rows)


def add_rows(solved: Solved, rows: Sequence[Tensor], position: int) -> None:
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


# -- the choice ----------------------------------------------------------------------------------------------


def chosen(
    models: Sequence[Untaught], measures: Sequence[Mapping[str, Any]], old: int | None
) -> tuple[int, dict[str, Any]]:
    """Return which model is taken, and the choice in the words of reports.

    Args:
        models: Several, from the smallest to the largest.
        measures: What left-out images say of each.
        old: As :func:`place_before` returns it.
    """
    found = [of_model["left_out_accuracy"] for of_model in measures]
    taken = first_within_error(found, min(of_model["left_out"] for of_model in measures))
    tried = []
    for one, of_model in zip(models, measures, strict=True):
        said = {"accuracy": of_model["left_out_accuracy"], "images": of_model["left_out"]}
        tried.append({**one.named, **said})
    choice = choice_of(tried, taken)
    if old is not None and old != taken:
        choice["before"] = models[old].named
    return taken, choice


def place_before(models: Sequence[Untaught], before: Manifest) -> int | None:
    """Return which of the models has the head of before; None where there was no model.

    Args:
        models: Several, or the only one.
        before: The model as it was; without a task where it begins.
    """
    if not before.tasks:
        return None
    candidates = [model.saved.manifest.as_candidate() for model in models]
    return candidates.index(before.as_candidate())


def old_images_found(before: Tensor | None, after: Tensor | None) -> dict[str, Any] | None:
    """Return how many ``images`` are old, and how many per cent a model finds ``before`` a step and ``now``.

    Both models are asked for the same images, each left out in turn; None where nothing tells.

    Args:
        before: Whether the old model finds each image without it: 1, 0, or NaN where nothing is known.
        after: The same of the new model, whose first images are these.
    """
    if before is None or after is None:
        return None
    after = after[: len(before)]
    both = ~(before.isnan() | after.isnan())
    if not bool(both.any()):
        return None
    return {
        "images": int(both.sum()),
        "before": 100 * float(before[both].double().mean()),
        "now": 100 * float(after[both].double().mean()),
    }


def words_of_kept_head(after: Manifest) -> Iterator[str]:
    """Yield, in one line, that the head was chosen on few classes and stays; nothing where it was not.

    Args:
        after: The model after a step that has not chosen again.
    """
    history = after.history
    seen: set[str] = set()
    known: set[str] = set()
    for step in history.steps:
        seen |= set(step.classes)
        if "choice" in step.checks:
            known = set(seen)
    if _head_of(after) == CHOSEN_HEAD:  # chosen with the tasks of its run
        names = after.class_map.target_names
        known = {names[after.class_map.target(place)] for place in range(after.num_base_classes)}
    if 0 < len(known) < min(_FEWEST, len(after.class_map.target_names)):
        classes = counted(len(known), "class")
        yield (
            f"the formula was chosen on {classes} and stays, as the model keeps not all that a choice needs; "
            "lw2g start on the photos of all classes chooses again"
        )


def known_of_training(lesson: Lesson) -> dict[str, Any] | None:
    """Return what training added on streams with as many images a class as a lesson; None where none has.

    One class alone tells nothing of training.
    """
    if len(lesson.counts) == 1:
        return None
    images = sum(lesson.counts.values()) / len(lesson.counts)
    gain = training_gain(images)
    return None if gain is None else {**attrs.asdict(gain), "advised": gain.advised, "words": gain.words}


def tell_of_sums(trained: Sequence[TrainedModel], images: int) -> None:
    """Say what sums of wide features take, where this is much.

    Args:
        trained: The models that are tried, before they have learned anything; the last one is the largest.
        images: How many they are to learn.
    """
    notes, _ = trained[-1].parts.layer_notes(images)
    for text in notes:
        tell_note(text)
