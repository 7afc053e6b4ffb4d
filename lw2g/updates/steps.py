"""The steps of a model that goes on learning: read, added to, and taken back, all of them as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import torch
from torch import Tensor

from lw2g.errors import ConfigError, DataError, nearest
from lw2g.files.checkpoint import part, under
from lw2g.models.exported import is_export, read_export, read_learned
from lw2g.models.manifest import Learning, Manifest, Step, TaskNote
from lw2g.models.sizes import require_borne_out

__all__ = [
    "Saved",
    "base_classes",
    "features_of",
    "grown",
    "kept_of",
    "names_of",
    "read_saved",
    "without_class",
    "without_step",
]


@attrs.frozen(kw_only=True, eq=False)
class Saved:
    """A model on disk: what it is made of, its state, and what only learning reads."""

    manifest: Manifest
    tensors: Mapping[str, Tensor]
    learned: Mapping[str, Tensor]

    @property
    def learning(self) -> Learning:
        """Its history; that of an export that has learned nothing yet is empty."""
        manifest, names = self.manifest, names_of(self.manifest)
        return manifest.learning or Learning(
            tasks=len(manifest.tasks),
            num_tasks=manifest.num_tasks,
            num_classes=manifest.num_classes,
            names=names,
            numbers=list(range(len(names))),
        )


def read_saved(directory: Path) -> Saved:
    """Return an exported model.

    Raises:
        DataError: There is none, or its parts do not fit each other.
    """
    if not is_export(directory):
        raise DataError(
            f"{str(directory)!r} holds no exported model", "make one: lw2g export RUN MODEL --learnable"
        )
    manifest, tensors = read_export(directory)
    learned = {} if manifest.learning is None else read_learned(directory, manifest)
    saved = Saved(manifest=manifest, tensors=tensors, learned=learned)
    require_borne_out(manifest, tensors, directory)
    if not _fits(saved):
        raise DataError(f"the history of {str(directory)!r} does not fit its tasks", "export it anew")
    return saved


def _fits(saved: Saved) -> bool:
    """Whether the history of a model is one of its tasks, and all features of its steps are there."""
    learning, names, rows = saved.learning, names_of(saved.manifest), saved.learned
    targets = {target for info in saved.manifest.infos for target in info.targets}
    expected = {
        f"features/{number}/{place}": count
        for number, step in enumerate(learning.steps)
        for place, count in enumerate(step.images)
    }
    features = {key: value for key, value in rows.items() if key.startswith(("features/", "kept/"))}
    kept = [key.removeprefix("kept/") for key in features if key.startswith("kept/")]
    return (
        learning.tasks >= 0
        and [task.class_names for task in saved.manifest.tasks[learning.tasks :]]
        == [step.classes for step in learning.steps]
        and targets == set(range(len(names)))
        and len(set(names)) == len(names)
        and set(learning.numbers) <= set(range(len(learning.names)))
        and [learning.names[one] for one in learning.numbers] == names
        and expected == {key: len(value) for key, value in features.items() if key in expected}
        and len(expected) + len(kept) == len(features)
        and all(one.isdecimal() and int(one) < base_classes(saved) for one in kept)
        and len({value.shape[1:] for value in features.values()}) <= 1
    )


def names_of(manifest: Manifest) -> list[str]:
    """Return the name of each target."""
    named = {
        target: name
        for info in manifest.infos
        for target, name in zip(info.targets, info.class_names, strict=True)
    }
    return [named[target] for target in sorted(named)]


def base_classes(saved: Saved) -> int:
    """Return the number of class positions before the first step."""
    return sum(len(task.class_names) for task in saved.manifest.tasks[: saved.learning.tasks])


def features_of(learned: Mapping[str, Tensor], number: int) -> list[Tensor]:
    """Return the features that a step has added, class by class."""
    own = part(learned, f"features/{number}")
    return [own[str(place)] for place in range(len(own))]


def kept_of(saved: Saved) -> list[tuple[int, Tensor]]:
    """Return targets and features of all images of which the model keeps features."""
    targets = [target for info in saved.manifest.infos for target in info.targets]
    base = {int(place): rows for place, rows in part(saved.learned, "kept").items()}
    kept = [(targets[place], rows) for place, rows in sorted(base.items(), key=lambda item: item[0])]
    first = base_classes(saved)
    for info in saved.manifest.infos[saved.learning.tasks :]:
        rows = features_of(saved.learned, info.index - saved.learning.tasks)
        kept += [(targets[first + place], one) for place, one in enumerate(rows)]
        first += len(rows)
    return kept


# -- more and less -------------------------------------------------------------------------------------------


def grown(saved: Saved, counts: Mapping[str, int]) -> Saved:
    """Return the model with a task for new images, whose rows are still empty."""
    manifest, learning = saved.manifest, saved.learning
    targets = {name: target for target, name in enumerate(names_of(manifest))}
    for name in counts:
        targets.setdefault(name, len(targets))
    new = list(targets)[len(names_of(manifest)) :]
    last = len(learning.names)
    note = TaskNote(
        class_names=list(counts), num_images=sum(counts.values()), targets=[targets[name] for name in counts]
    )
    tasks = [*manifest.tasks, note]
    whole = attrs.evolve(
        manifest,
        tasks=tasks,
        task_to_set=[*manifest.task_to_set, manifest.task_to_set[-1] if manifest.task_to_set else 0],
        num_tasks=max(learning.num_tasks, len(tasks)),
        num_classes=max(learning.num_classes, sum(len(task.class_names) for task in tasks)),
        learning=attrs.evolve(
            learning,
            names=[*learning.names, *new],
            numbers=[*learning.numbers, *range(last, last + len(new))],
        ),
    )
    return attrs.evolve(saved, manifest=whole)


def without_step(saved: Saved) -> Saved:
    """Return the model without its last step.

    Raises:
        DataError: It has none.
    """
    if not saved.learning.steps:
        raise DataError("the model has learned nothing since it was exported", "name a class to unlearn")
    return _less(saved, set(saved.manifest.infos[-1].classes), undone=True)


def without_class(saved: Saved, name: str, has_own_rows: Callable[[], bool]) -> Saved:
    """Return the model without a class.

    Args:
        saved: The model.
        name: The class.
        has_own_rows: Returns whether the head has sums of each class apart, and nothing else keeps any. It is
            asked only if the class was learned before the first step.

    Raises:
        DataError: There is no such class.
        ConfigError: It was learned before the first step, and shares sums with others.
    """
    manifest, names = saved.manifest, names_of(saved.manifest)
    if name not in names:
        forgotten = " any more" if name in saved.learning.names else ""
        raise DataError(
            f"no class is called {name!r}{forgotten}{nearest(name, names)}", "lw2g predict names classes"
        )
    target = names.index(name)
    gone = {
        position
        for info in manifest.infos
        for position, own in zip(info.classes, info.targets, strict=True)
        if own == target
    }
    base = sorted(position for position in gone if position < base_classes(saved))
    if not base:
        return _less(saved, gone)
    if not has_own_rows():
        raise ConfigError(
            f"class {name!r} was learned before the export, in sums that it shares with other classes",
            "only heads cosine and mahalanobis, without an expert, can unlearn it; lw2g start keeps what lda "
            "needs",
        )
    state = _base_state(saved)
    rows = torch.tensor([row for row in range(saved.learning.num_classes) if row not in base])
    for key, value in state.items():
        if key.startswith("baseline/closed_form.") or key in ("baseline/head.weight", "baseline/head.bias"):
            # scatters are there for the classes so far, the others for all of the stream
            state[key] = value[rows[rows < len(value)]]
    learned = dict(saved.learned) | {
        f"base/{key.removeprefix('baseline/')}": value
        for key, value in state.items()
        if key.startswith("baseline/")
    }
    history = attrs.evolve(saved.learning, num_classes=len(rows))
    manifest = attrs.evolve(manifest, learning=history)
    return _less(attrs.evolve(saved, manifest=manifest, tensors=state, learned=learned), gone)


def _less(saved: Saved, gone: set[int], *, undone: bool = False) -> Saved:
    """Return the model without some class positions, in the state before the first step.

    Args:
        saved: The model.
        gone: The positions.
        undone: Whether the numbers of their classes are free again.
    """
    manifest, learning = saved.manifest, saved.learning
    notes: list[tuple[TaskNote, list[str], list[int]]] = []
    steps: list[Step] = []
    sets, tasks = [], learning.tasks
    moved = ("features/", "kept/")
    features = {key: value for key, value in saved.learned.items() if not key.startswith(moved)}
    left = 0
    for index, info in enumerate(manifest.infos):
        own = [place for place, position in enumerate(info.classes) if position not in gone]
        number = index - learning.tasks
        if not own:
            tasks -= number < 0
            continue
        names = [info.class_names[place] for place in own]
        if number >= 0:
            step = learning.steps[number]
            for new, place in enumerate(own):
                features[f"features/{len(steps)}/{new}"] = saved.learned[f"features/{number}/{place}"]
            images = [step.images[place] for place in own]
            steps.append(attrs.evolve(step, classes=names, images=images))
        for new, place in enumerate(own):
            if (kept := saved.learned.get(f"kept/{info.classes[place]}")) is not None:
                features[f"kept/{left + new}"] = kept
        left += len(own)
        note = manifest.tasks[index]
        notes.append((note, names, [info.targets[place] for place in own]))
        sets.append(manifest.task_to_set[index])
    order = list(dict.fromkeys(target for _, _, targets in notes for target in targets))
    fresh = {target: place for place, target in enumerate(order)}
    written = [
        attrs.evolve(
            note,
            class_names=names,
            targets=None if note.targets is None else [fresh[target] for target in targets],
        )
        for note, names, targets in notes
    ]
    numbers = [learning.numbers[target] for target in order]
    lost = [number for number in learning.numbers if number not in numbers]
    names = learning.names[: min(lost)] if undone and lost else learning.names
    history = attrs.evolve(learning, tasks=tasks, names=names, numbers=numbers, steps=steps)
    whole_manifest = attrs.evolve(
        manifest,
        tasks=written,
        task_to_set=sets,
        num_tasks=max(learning.num_tasks, len(written)),
        num_classes=max(learning.num_classes, sum(len(note.class_names) for note in written)),
        learning=history,
    )
    return Saved(manifest=whole_manifest, tensors=_base_state(saved), learned=features)


def _base_state(saved: Saved) -> dict[str, Tensor]:
    """Return the state before the first step."""
    base = part(saved.learned, "base")
    new = {f"baseline/{name}" for name in part(saved.learned, "new")}
    state = {
        key: value
        for key, value in saved.tensors.items()
        if key not in new and not key.startswith("calibration/")
    }
    return state | under("baseline", base)
