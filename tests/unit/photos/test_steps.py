"""The history of a model that learns: tables over steps of more than ten classes, known ones among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from lw2g.model.exported import Saved
from lw2g.model.history import misfit_of_history
from lw2g.model.left_out import features_of, kept_of
from lw2g.model.manifest import BackboneSection, Learning, Manifest, Section, Step, TaskNote
from lw2g_photos.steps import without_class, without_step
from lw2g_testing.tiny import tiny_backbone

BASE = [f"old {number}" for number in range(12)]
FIRST = ["new 0", "old 5", *(f"new {number}" for number in range(1, 11))]
"""The first step: eleven new classes, and more images of a known one among them."""
SECOND = ["new 3", "late"]
AGAIN = ["old 7", "old 1"]
"""The second task of the base: two classes of the first come again."""
NAMES = [*BASE, *(name for name in FIRST if name not in BASE), "late"]


def step(names: list[str]) -> Step:
    """A step with one image more of each class than of the one before."""
    images = [place + 1 for place in range(len(names))]
    return Step(
        time="2026-01-01T00:00:00+00:00",
        lw2g="0",
        parent="",
        classes=names,
        images=images,
        digest="",
        checks={},
    )


def filed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the order in which a file gives them: by name, so that 10 comes before 2."""
    return {name: tensors[name] for name in sorted(tensors)}


def rows_of(position: int, count: int = 1) -> Tensor:
    """Features of some images of a class position, which tell it."""
    return torch.full((count, 3), float(position))


@pytest.fixture
def saved() -> Saved:
    """Two tasks before the export, whose features are kept, and two steps after it."""
    tasks = [BASE, AGAIN, FIRST, SECOND]
    notes = [
        TaskNote(class_names=names, num_images=len(names), targets=[NAMES.index(name) for name in names])
        for names in tasks
    ]
    manifest = Manifest(
        baseline=Section(name="simple-cil", options={}),
        backbone=BackboneSection(name="tiny", options={}),
        routing={},
        run={},
        num_tasks=4,
        num_classes=28,
        tasks=notes,
        task_to_set=[0, 0, 0, 0],
        preprocessing=None,
        weights_name="tiny",
        fingerprint=tiny_backbone(depth=1).fingerprint,
        learning=Learning(
            tasks=2,
            num_tasks=2,
            num_classes=14,
            names=NAMES,
            numbers=list(range(len(NAMES))),
            steps=[step(FIRST), step(SECOND)],
        ),
    )
    learned = {f"kept/{position}": rows_of(position) for position in range(14)}
    first = 14
    for number, names in enumerate((FIRST, SECOND)):
        for place in range(len(names)):
            learned[f"features/{number}/{place}"] = rows_of(first + place, place + 1)
        first += len(names)
    learned |= {"base/closed_form.count": torch.ones(14), "new/heads.2.weight": torch.zeros(0)}
    tensors = {
        "backbone/cls_token": torch.full((1,), 7.0),
        "baseline/closed_form.count": torch.full((28,), 2.0),
        "baseline/head.bias": torch.full((14,), 3.0),
        "baseline/heads.2.weight": torch.full((2,), 4.0),
        "calibration/known": torch.full((2,), 5.0),
        "pool/0.up": torch.full((2,), 6.0),
    }
    return Saved(manifest=manifest, tensors=filed(tensors), learned=filed(learned))


def _fits(saved: Saved) -> bool:
    return not misfit_of_history(saved.manifest, saved.learned)


def told(one: Saved) -> list[tuple[str, int]]:
    """The class that each kept image is said to be of, and the position that its features tell."""
    names = one.manifest.class_map.target_names
    return [(names[target], int(row[0])) for target, rows in kept_of(one) for row in rows]


def expected(gone: tuple[str, ...] = (), steps: int = 2) -> list[tuple[str, int]]:
    """The same from the names alone: all positions in their order, as often as images are kept of them."""
    found, position = [], 0
    for number, names in enumerate([BASE, AGAIN, FIRST, SECOND][: 2 + steps]):
        for place, name in enumerate(names):
            images = 1 if number < 2 else place + 1
            found += [(name, position)] * (0 if name in gone else images)
            position += 1
    return found


def test_features_belong_to_their_class_in_the_order_of_the_step(saved: Saved) -> None:
    """The twelfth class of a step comes last, whatever the order of names in the file."""
    assert _fits(saved)
    for number, first, names in ((0, 14, FIRST), (1, 26, SECOND)):
        found = features_of(saved.learned, number)
        assert [(int(rows[0, 0]), len(rows)) for rows in found] == [
            (first + place, place + 1) for place in range(len(names))
        ]
    assert told(saved) == expected()


@pytest.mark.parametrize(
    "gone",
    [
        ("new 0",),  # the first class of a step
        ("old 5",),  # in the base, and again in a step
        ("old 7",),  # twice in the base
        ("new 3",),  # in both steps
        ("late",),
        ("new 9", "new 10", "old 1"),
        tuple(SECOND),  # no step is left of the second
    ],
    ids="+".join,
)
def test_what_is_left_keeps_its_images_and_its_number(saved: Saved, gone: tuple[str, ...]) -> None:
    """A class forgotten anywhere: features of all others stay with their names, in their order."""
    # cosine keeps sums by class, so that a class of the base can go, too
    sums = {"baseline/closed_form.count": torch.arange(14.0), "baseline/closed_form.total": torch.eye(14)}
    grown = {"baseline/closed_form.count": torch.ones(28), "baseline/closed_form.total": torch.ones(28, 14)}
    learned = saved.learned | {f"base/{name.removeprefix('baseline/')}": one for name, one in sums.items()}
    left = attrs.evolve(saved, tensors=saved.tensors | grown, learned=learned)
    for name in gone:
        left = without_class(left, name, lambda: True)
        left = attrs.evolve(left, tensors=filed(dict(left.tensors)), learned=filed(dict(left.learned)))
        assert _fits(left)
    assert told(left) == expected(gone)
    history = left.manifest.history
    numbers = {
        name: history.names[number]
        for name, number in zip(left.manifest.class_map.target_names, history.numbers, strict=True)
    }
    assert numbers == {name: name for name in NAMES if name not in gone}
    assert history.names == NAMES
    base = [position for position, name in enumerate([*BASE, *AGAIN]) if name not in gone]
    assert left.manifest.num_base_classes == len(base)
    assert left.tensors["baseline/closed_form.count"].tolist() == base
    assert left.tensors["baseline/closed_form.total"].argmax(1).tolist() == base


def test_the_state_before_the_first_step_holds_nothing_of_the_steps(saved: Saved) -> None:
    """Old sums come back; tensors that a step has brought and its calibration go; the rest stays."""
    less = without_step(saved)
    assert {name: value.flatten()[0].item() for name, value in less.tensors.items()} == {
        "backbone/cls_token": 7.0,
        "baseline/closed_form.count": 1.0,
        "baseline/head.bias": 3.0,
        "pool/0.up": 6.0,
    }
    assert less.tensors["baseline/closed_form.count"].shape == (14,)
    assert told(less) == expected(steps=1)
    # its own number is free again; that of a class with images in an earlier step is not
    assert less.manifest.history.names == NAMES[:-1]
    assert told(without_step(less)) == expected(steps=0)
    assert without_step(less).manifest.history.names == BASE


def _tasks(saved: Saved, change: Callable[[list[TaskNote]], Any]) -> Saved:
    notes = [attrs.evolve(note) for note in saved.manifest.tasks]
    change(notes)
    return attrs.evolve(saved, manifest=attrs.evolve(saved.manifest, tasks=notes))


def _history(saved: Saved, **changes: Any) -> Saved:
    learning = attrs.evolve(saved.manifest.history, **changes)
    return attrs.evolve(saved, manifest=attrs.evolve(saved.manifest, learning=learning))


def _learned(saved: Saved, changes: dict[str, Tensor | None]) -> Saved:
    every = {**saved.learned, **changes}
    return attrs.evolve(saved, learned={name: one for name, one in every.items() if one is not None})


SWAPPED = [1, 0, *range(2, len(NAMES))]

FORGED: dict[str, Callable[[Saved], Saved]] = {
    "fewer tasks than none": lambda one: _history(one, tasks=-2),
    "a task too many before the steps": lambda one: _history(one, tasks=3),
    "a step of other classes": lambda one: _history(one, steps=[step(FIRST), step(["new 3", "never"])]),
    "a step in another order": lambda one: _history(one, steps=[step(FIRST), step(SECOND[::-1])]),
    "a step is missing": lambda one: _history(one, steps=[step(FIRST)]),
    "a target that nobody has": lambda one: _tasks(
        one, lambda notes: notes.append(attrs.evolve(notes.pop(), targets=[15, 40]))
    ),
    "one name twice": lambda one: _history(
        _tasks(
            one, lambda notes: notes.insert(0, attrs.evolve(notes.pop(0), class_names=["old 1", *BASE[1:]]))
        ),
        names=["old 1", *NAMES[1:]],
    ),
    "a number that was never given": lambda one: _history(one, numbers=[*range(len(NAMES) - 1), 99]),
    "a negative number": lambda one: _history(one, numbers=[*range(len(NAMES) - 1), -1]),
    "numbers of one another": lambda one: _history(one, numbers=SWAPPED),
    "a number is missing": lambda one: _history(one, numbers=list(range(len(NAMES) - 1))),
    "features are missing": lambda one: _learned(one, {"features/0/11": None}),
    "an image is missing": lambda one: _learned(one, {"features/0/10": rows_of(24, 10)}),
    "features of no step": lambda one: _learned(one, {"features/9/0": rows_of(0)}),
    "kept of no class": lambda one: _learned(one, {"kept/14": rows_of(0)}),
    "kept by no number": lambda one: _learned(one, {"kept/-1": rows_of(0)}),
    "features of another width": lambda one: _learned(one, {"kept/3": torch.ones(1, 4)}),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_history_does_not_fit(what: str, saved: Saved) -> None:
    """Each thing that the parts of a model say of one another is compared."""
    assert not _fits(FORGED[what](saved))


def test_numbers_in_another_order_fit_their_names(saved: Saved) -> None:
    """A number is a place in the list of all names ever given, whatever the order of the targets."""
    names = [NAMES[number] for number in SWAPPED]
    assert _fits(_history(saved, names=names, numbers=SWAPPED))
    assert _fits(_history(saved, names=["forgotten", *NAMES], numbers=[n + 1 for n in range(len(NAMES))]))
