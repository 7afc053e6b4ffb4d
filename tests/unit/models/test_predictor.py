"""The predictor's tables: who owns a class that comes again, and which task stands for a set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import nn

from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.scope import EACH
from lw2g.models.predictor import Predictor
from tasks import CPU, tasks_of

STREAMS: dict[str, tuple[list[list[int]], list[str], list[int]]] = {
    # targets of each task, domain of each, and the newest task for each class position
    "no class again": ([[0, 1], [2], [3, 4]], ["", "", ""], [0, 0, 1, 2, 2]),
    "one class again": ([[0, 1], [2, 0], [3]], ["", "", ""], [1, 0, 1, 1, 2]),
    "again and again": ([[0, 1], [1, 2], [2, 0], [1]], ["", "", "", ""], [2, 3, 3, 2, 2, 2, 3]),
    "other domains": ([[0, 1], [0, 1], [1, 0]], ["a", "b", "c"], [0, 0, 1, 1, 2, 2]),
    "a domain again": ([[0, 1], [0, 1], [1], [0]], ["a", "b", "a", "b"], [0, 2, 3, 1, 2, 3]),
}


def history_of(targets: list[list[int]], domains: list[str]) -> tuple[TaskInfo, ...]:
    """Tasks with these targets and domains."""
    return tuple(
        attrs.evolve(info, targets=tuple(own), domain=domain)
        for info, own, domain in zip(tasks_of(map(len, targets)), targets, domains, strict=True)
    )


def predictor_of(history: tuple[TaskInfo, ...], owners: list[int], **baseline: Any) -> Predictor:
    """A predictor of tasks with these sets, whose baseline answers as told."""
    pool = Pool()
    for owner in owners:
        pool.reuse(owner) if owner in pool.ids else pool.grow(nn.Module())
    context = SimpleNamespace(backbone=SimpleNamespace(device=CPU))
    own: Any = SimpleNamespace(context=context, scope=EACH, beside=tuple, **baseline)
    return Predictor(baseline=own, pool=pool, retrieval=None, history=history)


@pytest.mark.parametrize("owners", [[0, 1, 2, 3], [0, 0, 1, 0], [0, 1, 0, 1], [0, 1, 1, 2]])
@pytest.mark.parametrize("stream", STREAMS)
def test_a_class_belongs_to_its_newest_task_and_to_all_sets_that_learned_it(
    stream: str, owners: list[int]
) -> None:
    """In the same domain alone: the same class in another domain has other test images."""
    targets, domains, newest = STREAMS[stream]
    history = history_of(targets, domains)
    owners = owners[: len(targets)]
    predictor = predictor_of(history, owners)
    assert predictor.newest.tolist() == newest
    places = [
        (domain, target, owner)
        for own, domain, owner in zip(targets, domains, owners, strict=True)
        for target in own
    ]
    wanted = [
        [any(other == (domain, target, one) for other in places) for one in sorted(set(owners))]
        for domain, target, _ in places
    ]
    assert predictor.owning.tolist() == wanted
    # what was known earlier does not hear of later tasks
    for count in range(1, len(history)):
        before = predictor_of(history[:count], owners)
        assert max(before.newest.tolist()) == count - 1
        assert len(before.newest) == history[count - 1].seen


@pytest.mark.parametrize(
    ("owners", "first"),
    [([0, 1, 2], [0, 1, 2]), ([0, 1, 0, 1], [0, 1]), ([0, 0, 1, 0, 2, 1], [0, 2, 4]), ([0, 0, 0], [0])],
)
def test_where_each_set_answers_the_first_task_of_the_best_stands_for_it(
    owners: list[int], first: list[int]
) -> None:
    """Each image gets the set that suits it best, and of the tasks that share this set the first."""
    history = tasks_of([1] * len(owners))
    sets = len(first)
    suits = torch.eye(sets)[torch.arange(2 * sets).flip(0) % sets] + torch.arange(2 * sets)[:, None]
    predictor = predictor_of(
        history,
        owners,
        logits=lambda rows: rows.sum(1)[:, : len(owners)],
        set_scores=lambda rows: suits[: len(rows)],
    )
    rows = torch.randn(2 * sets, sets, 8)
    names = [f"image {number}" for number in range(2 * sets - 1)]  # the last one fills up
    answers = predictor.answer(rows, predictor.all_members(len(rows)), names)
    best = [place % sets for place in reversed(range(2 * sets))][:-1]
    assert answers.sets is not None
    assert answers.tasks is not None
    assert answers.sets.tolist() == best
    assert answers.tasks.tolist() == [first[one] for one in best]
    assert torch.equal(answers.logits, rows.sum(1)[:-1, : len(owners)])
