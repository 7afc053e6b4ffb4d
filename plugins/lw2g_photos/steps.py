"""The steps of a model that goes on learning: added to and taken back, all of them as plain values.

``learned.safetensors`` holds, beside the features of images:

- ``features/STEP/PLACE``: of the images that a step has learned, class by class in the order of the step;
- ``tried/LAYERS/STEP/PLACE``: of the same images, of as many layers as other heads read than its own;
- ``kept/POSITION``: of some images of each class that was learned before the first step;
- ``base/NAME``: the baseline's state before the first step, where steps have changed it;
- ``zero/NAME``: the shape of a large tensor of that state which is all zeros;
- ``new/NAME``: empty; names what the baseline had not before the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import TypeVar

import attrs
import torch
from torch import Tensor

from lw2g.disk.checkpoint import part, under
from lw2g.errors import ConfigError, DataError, nearest
from lw2g.ground.spelling import composed
from lw2g.interfaces.context import TaskInfo
from lw2g.model.exported import Saved
from lw2g.model.manifest import Manifest, Step, TaskNote
from lw2g_photos.step_checks import accuracy_of

T = TypeVar("T")
_SHOWN = 10
"""Classes that a message names."""

__all__ = ["grown", "layers_tried", "without_class", "without_step"]


# -- more and less -------------------------------------------------------------------------------------------


def grown(saved: Saved, counts: Mapping[str, int]) -> Saved:
    """Return the model with a task for new images, whose rows are still empty.

    Args:
        saved: The model.
        counts: The number of images of each class.
    """
    manifest = saved.manifest
    history = manifest.history
    known = manifest.class_map.by_name
    targets = dict(known)
    for name in counts:
        targets.setdefault(name, len(targets))
    new_names = list(targets)[len(known) :]
    note = TaskNote(
        class_names=list(counts), num_images=sum(counts.values()), targets=[targets[name] for name in counts]
    )
    tasks = [*manifest.tasks, note]
    # a step learns no set: its images answer under the last one
    last_set = manifest.task_to_set[-1] if manifest.task_to_set else 0
    # numbers are never given twice: new ones follow those of forgotten classes, too
    first_number = len(history.names)
    new_numbers = range(first_number, first_number + len(new_names))
    history = attrs.evolve(
        history, names=[*history.names, *new_names], numbers=[*history.numbers, *new_numbers]
    )
    larger = attrs.evolve(
        manifest,
        tasks=tasks,
        task_to_set=[*manifest.task_to_set, last_set],
        num_tasks=max(history.num_tasks, len(tasks)),
        num_classes=max(history.num_classes, _num_positions(tasks)),
        learning=history,
    )
    return attrs.evolve(saved, manifest=larger)


def without_step(saved: Saved) -> Saved:
    """Return the model without its last step.

    Raises:
        DataError: It has none.
    """
    if not saved.manifest.history.steps:
        raise DataError("the model has learned nothing since it was exported", "name a class to unlearn")
    return _without_positions(saved, set(saved.manifest.infos[-1].classes), undone=True)


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
    manifest = saved.manifest
    gone = _positions_of(manifest, name)
    base = gone.intersection(range(manifest.num_base_classes))
    if not base:
        return _without_positions(saved, gone)
    if not has_own_rows():
        raise ConfigError(
            f"class {name!r} was learned before the export, in sums that it shares with other classes",
            "only heads cosine and mahalanobis, without an expert, can unlearn it; lw2g start keeps what lda "
            "needs",
        )
    # the state before the first step, without its rows
    state = _base_state(saved)
    rows = torch.tensor([row for row in range(manifest.history.num_classes) if row not in base])
    for key, value in state.items():
        if key.startswith("baseline/closed_form.") or key in ("baseline/head.weight", "baseline/head.bias"):
            # scatters are there for the classes so far, the others for all of the stream
            state[key] = value[rows[rows < len(value)]]
    learned = {**saved.learned, **under("base", part(state, "baseline"))}
    history = attrs.evolve(manifest.history, num_classes=len(rows))
    fewer = attrs.evolve(manifest, learning=history)
    return _without_positions(attrs.evolve(saved, manifest=fewer, tensors=state, learned=learned), gone)


def _positions_of(manifest: Manifest, name: str) -> set[int]:
    """Return the positions of a class: it has one in each task that brought images of it.

    Raises:
        DataError: There is no such class.
    """
    name = composed(name)
    targets = manifest.class_map.by_name
    if name not in targets:
        forgotten = " any more" if name in manifest.history.names else ""
        raise DataError(
            f"no class is called {name!r}{forgotten}{nearest(name, targets)}",
            f"the model knows {', '.join(list(targets)[:_SHOWN])}{', ...' if len(targets) > _SHOWN else ''}",
        )
    return set(manifest.class_map.positions_of(targets[name]))


@attrs.frozen(kw_only=True)
class _Rest:
    """What is left of a task.

    Attributes:
        info: The task as it was.
        note: What the manifest noted of it.
        set_id: Its set.
        places: Where among its classes those stand that are left.
    """

    info: TaskInfo
    note: TaskNote
    set_id: int
    places: list[int]

    @property
    def names(self) -> list[str]:
        """The classes that are left."""
        return _at(self.info.class_names, self.places)

    @property
    def targets(self) -> list[int]:
        """Their targets as they were."""
        return _at(self.info.targets, self.places)

    def as_note(self, targets: Mapping[int, int]) -> TaskNote:
        """Return the task as it is from now on, by the new target of each old one."""
        new = None if self.note.targets is None else [targets[target] for target in self.targets]
        return attrs.evolve(self.note, class_names=self.names, targets=new)


def _without_positions(saved: Saved, gone: set[int], *, undone: bool = False) -> Saved:
    """Return the model without some class positions, in the state before the first step.

    Args:
        saved: The model.
        gone: The positions.
        undone: Whether the numbers of their classes are free again.
    """
    manifest = saved.manifest
    history = manifest.history
    steps: list[Step] = []
    renamed = ("features/", "kept/", "tried/")
    learned = {key: value for key, value in saved.learned.items() if not key.startswith(renamed)}
    position = 0
    kept = []
    for rest in _rests_of(manifest, gone):
        number = rest.info.index - history.tasks
        if number >= 0:  # learned in a step, and not before the first one
            step = _without_places(history.steps[number], rest.places)
            learned |= _features_moved(saved, rest.places, number, len(steps))
            steps.append(step)
            rest = attrs.evolve(rest, note=attrs.evolve(rest.note, num_images=sum(step.images)))
        kept.append(rest)
        learned |= _kept_moved(saved, rest.info, rest.places, position)
        position += len(rest.places)
    # targets count the classes that are left, in the order in which the tasks meet them
    targets: dict[int, int] = {}
    for rest in kept:
        for target in rest.targets:
            targets.setdefault(target, len(targets))
    tasks = [rest.as_note(targets) for rest in kept]
    numbers = [history.numbers[target] for target in targets]
    names = history.names
    lost = set(history.numbers) - set(numbers)
    lost_names = {names[number] for number in lost}
    for number, rest in enumerate(kept[len(kept) - len(steps) :]):
        # a step before them has not asked of these classes: its checks stay as they are
        if min(gone) < rest.info.seen:
            steps[number] = _without_names(steps[number], lost_names)
    forgotten = dict(history.forgotten)
    if undone and lost:
        # a step that is taken back gives back its numbers, which are the last ones
        names = names[: min(lost)]
    elif lost:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        forgotten |= {str(number): now for number in sorted(lost)}
    fewer = attrs.evolve(
        manifest,
        tasks=tasks,
        task_to_set=[rest.set_id for rest in kept],
        num_tasks=max(history.num_tasks, len(tasks)),
        num_classes=max(history.num_classes, _num_positions(tasks)),
        learning=attrs.evolve(
            history,
            tasks=len(kept) - len(steps),
            names=names,
            numbers=numbers,
            steps=steps,
            forgotten=forgotten,
        ),
    )
    return Saved(manifest=fewer, tensors=_base_state(saved), learned=learned)


def _rests_of(manifest: Manifest, gone: set[int]) -> list[_Rest]:
    """Return what is left of each task without some class positions; a task without classes is left out."""
    rests = []
    for info in manifest.infos:
        places = [place for place, position in enumerate(info.classes) if position not in gone]
        if places:
            note = manifest.tasks[info.index]
            set_id = manifest.task_to_set[info.index]
            rests.append(_Rest(info=info, note=note, set_id=set_id, places=places))
    return rests


def _without_places(step: Step, places: list[int]) -> Step:
    """Return a step with the classes at some places alone."""
    if len(places) == len(step.classes):
        return step
    # the checksum was over the images of all of its classes: it would tell whether one is among them
    return attrs.evolve(step, classes=_at(step.classes, places), images=_at(step.images, places), digest="")


def _without_names(step: Step, gone: Set[str]) -> Step:
    """Return a step whose checks name no class that is gone, count no image of one, and note that one is."""
    checks = dict(step.checks)
    if "classes" not in checks:
        return step
    entries = []
    for entry in checks["classes"]:
        if entry["class"] not in gone:
            taken_for = [name for name in entry["taken_for"] if name not in gone]
            entries.append({**entry, "taken_for": taken_for})
    checks["classes"] = entries
    left_out = []
    for entry in checks.get("left_out_classes", []):
        if entry["class"] not in gone:
            taken_for = [pair for pair in entry["taken_for"] if pair[0] not in gone]
            left_out.append({**entry, "taken_for": taken_for})
    checks["left_out_classes"] = left_out
    for key in ("twins", "losing"):
        pairs = checks.get(key, [])
        checks[key] = [pair for pair in pairs if gone.isdisjoint((pair["class"], pair.get("like")))]
    checks |= accuracy_of({entry["class"]: entry for entry in entries})
    checks["forgotten_since"] = True
    return attrs.evolve(step, checks=checks)


def _at(values: Sequence[T], places: Sequence[int]) -> list[T]:
    """Return the values at some places."""
    return [values[place] for place in places]


def _features_moved(saved: Saved, places: list[int], number: int, new_number: int) -> dict[str, Tensor]:
    """Return the features of some classes of a step, by its new number and their new places in it."""
    moved = {}
    kinds = ["features", *(f"tried/{layers}" for layers in layers_tried(saved.learned))]
    for new_place, place in enumerate(places):
        for kind in kinds:
            moved[f"{kind}/{new_number}/{new_place}"] = saved.learned[f"{kind}/{number}/{place}"]
    return moved


def layers_tried(learned: Mapping[str, Tensor]) -> list[int]:
    """Return the numbers of layers of which a model keeps features beside those of its head."""
    return sorted({int(name.partition("/")[0]) for name in part(learned, "tried")})


def _kept_moved(saved: Saved, info: TaskInfo, places: list[int], position: int) -> dict[str, Tensor]:
    """Return the features that are kept of classes of a task, by their new positions from one on."""
    moved = {}
    for new, place in enumerate(places, start=position):
        kept = saved.learned.get(f"kept/{info.classes[place]}")
        if kept is not None:
            moved[f"kept/{new}"] = kept
    return moved


def _num_positions(tasks: list[TaskNote]) -> int:
    return sum(len(task.class_names) for task in tasks)


def _base_state(saved: Saved) -> dict[str, Tensor]:
    """Return the state before the first step."""
    new = {f"baseline/{name}" for name in part(saved.learned, "new")}
    state = dict(under("baseline", part(saved.learned, "base")))
    for name, shape in part(saved.learned, "zero").items():
        key = f"baseline/{name}"
        state[key] = torch.zeros(shape.tolist(), dtype=saved.tensors[key].dtype)
    for key, value in saved.tensors.items():
        # what rejects unknown images was fitted to the model with its steps
        if key not in new and not key.startswith("calibration/"):
            state.setdefault(key, value)
    return state
