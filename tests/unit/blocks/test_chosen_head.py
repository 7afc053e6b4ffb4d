"""The head that is chosen: which candidate is taken, by which images, and that sums do not see tasks."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from lw2g.blocks.chosen_head import UNIT_SHARE, ChosenHead
from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.context import TaskInfo
from lw2g.maths.choosing import words_of_choice_in_tasks

DIM = 12
OWN = (8, 10)
"""Two columns stand for the last layer's class token, in features of three layers."""


def images(told_by: slice, classes: int = 4, each: int = 15, apart: float = 2.5) -> tuple[Tensor, Tensor]:
    """Return Gaussian features whose classes differ in some columns alone, and labels."""
    draws = torch.Generator().manual_seed(3)
    labels = torch.arange(classes).repeat_interleave(each)
    rows = torch.randn(len(labels), DIM, generator=draws)
    width = len(range(DIM)[told_by])
    rows[:, told_by] += apart * torch.randn(classes, width, generator=draws)[labels]
    return rows, labels


def chosen(units: int = 0, *, own: tuple[int, int] | None = OWN) -> ChosenHead:
    head = ChosenHead(DIM, 4, seed=5, layers=3, own=own, units=units)
    head.fit_temperature()
    return head


def taught(head: ChosenHead, sizes: tuple[int, ...], rows: Tensor, labels: Tensor) -> ChosenHead:
    """Let a head learn classes in tasks of some sizes, as a run does."""
    first = 0
    for index, size in enumerate(sizes):
        classes = tuple(range(first, first + size))
        names = tuple(map(str, classes))
        info = TaskInfo(index=index, classes=classes, class_names=names, seen=first + size, num_images=1)
        head.begin_task(info)
        of_task = (labels >= first) & (labels < first + size)
        head.learn(rows[of_task], labels[of_task], torch.Generator())
        head.observe(rows[of_task], labels[of_task])
        first += size
    return head


@pytest.mark.parametrize(
    ("told_by", "taken"), [(slice(8, 10), ("lda", 1)), (slice(0, 6), ("ridge", 3))], ids=["own", "others"]
)
def test_it_takes_the_smallest_that_finds_as_many(told_by: slice, taken: tuple[str, int]) -> None:
    """The last layer where it tells the classes apart, several where the others do; the words name all."""
    choice = taught(chosen(), (2, 2), *images(told_by)).findings()["choice"]
    assert (choice["head"], choice["layers"]) == taken
    tried = [(entry["head"], entry["layers"]) for entry in choice["tried"]]
    assert tried == [("lda", 1), ("ridge", 3), ("lda", 3)]
    words = words_of_choice_in_tasks(choice)
    assert words.startswith(f"head chosen: {taken[0]}")
    assert "lda on the scaled last layer" in words
    assert "; ahead of " in words or "; no other is ahead" in words
    assert " of 60 learned images, each left out as its task came, among the classes so far: for" in words


def test_images_of_a_task_are_left_out_of_the_sums_of_all_so_far() -> None:
    """Counted by solving again without each image, for the task's own images alone."""
    rows, labels = images(slice(0, 6), apart=1.0)
    head = taught(chosen(), (2, 2), rows, labels)
    right = [0, 0, 0]
    for seen, of_task in ((2, range(30)), (4, range(30, 60))):
        for place in of_task:
            kept = (labels < seen) & (torch.arange(len(labels)) != place)
            solvers = (
                (Discriminant(2, 4), slice(*OWN)),
                (Ridge(DIM, 4, 0, 5, choice="gcv"), slice(None)),
                (Discriminant(DIM, 4), slice(None)),
            )
            for number, (solver, columns) in enumerate(solvers):
                solver.update(rows[kept][:, columns], labels[kept])
                found = solver.scores(rows[place : place + 1, columns], seen).argmax()
                right[number] += int(found == labels[place])
    # the shrinkage and the penalty of all images differ a little from those without one of them
    assert all(abs(ours - theirs) <= 1 for ours, theirs in zip(head.right.tolist(), right, strict=True))
    assert int(head.judged) == 60


@pytest.mark.parametrize("units", [0, 20])
def test_scores_do_not_depend_on_tasks_once_a_candidate_is_taken(units: int) -> None:
    """Each candidate's, to 1e-8, with as many random units as are asked for."""
    rows, labels = images(slice(0, 6))
    whole = taught(chosen(units), (4,), rows, labels)
    cut = taught(chosen(units), (1, 2, 1), rows, labels)
    assert len(whole.candidates) == (4 if units else 3)
    for place in range(len(whole.candidates)):
        for head in (whole, cut):
            head.taken.fill_(place)
            head._solved = None
        torch.testing.assert_close(whole.scores(rows, 4), cut.scores(rows, 4), rtol=1e-8, atol=1e-8)


def test_a_state_holds_the_choice_and_its_temperature() -> None:
    """Built again and given its state it answers the same; probabilities are of the candidate taken."""
    rows, labels = images(slice(0, 6))
    head = taught(chosen(), (2, 2), rows, labels)
    fresh = chosen()
    fresh.load_state_dict(copy.deepcopy(head.state_dict()))
    assert torch.equal(fresh.scores(rows, 4), head.scores(rows, 4))
    assert fresh.findings() == head.findings()
    assert head.temperature is not None
    assert head.temperatures is not None
    assert int(head.taken) == 1
    assert torch.equal(head.temperature.loss, head.temperatures[1].loss)
    assert not torch.equal(head.temperature.loss, head.temperatures[0].loss)


def test_learning_without_tasks_chooses_nothing_again() -> None:
    """A model that goes on learning grows its sums, and unlearning them gives the bits of before."""
    rows, labels = images(slice(0, 6))
    first = labels < 3
    head = taught(chosen(), (3,), rows[first], labels[first])
    before = copy.deepcopy(head.state_dict())
    scores = head.scores(rows, 3)
    head.update(rows[~first], labels[~first])
    assert head.findings()["choice"]["images"] == 45
    assert not torch.equal(head.scores(rows, 4)[:, :3], scores)
    head.load_state_dict(before)
    assert torch.equal(head.scores(rows, 3), scores)


def test_features_of_one_layer_leave_the_heads_to_choose_from() -> None:
    """Stored features and networks without blocks: LDA and ridge on what there is; one class says nothing."""
    rows, labels = images(slice(0, 6))
    head = taught(chosen(own=None), (1, 3), rows, labels)
    assert [candidate.head for candidate in head.candidates] == ["lda", "ridge"]
    assert int(head.judged) == 45
    alone = taught(chosen(), (1,), rows[:15], labels[:15])
    assert alone.findings()["choice"]["accuracy"] is None
    assert "too few images" in words_of_choice_in_tasks(alone.findings()["choice"])


def test_units_stand_beside_features_at_their_share() -> None:
    """The features are the first columns, and the units' squares sum to the share of theirs, on average."""
    head = Ridge(DIM, 4, 4000, seed=1, choice="gcv", share=UNIT_SHARE)
    rows = images(slice(0, 6))[0].double()
    lifted = head.lifted(rows)
    assert lifted.shape[1] == DIM + 4000 == head.cross.shape[1]
    assert torch.equal(lifted[:, :DIM], rows)
    shares = lifted[:, DIM:].square().sum(1) / rows.square().sum(1)
    assert math.isclose(float(shares.mean()), UNIT_SHARE, rel_tol=0.05)
