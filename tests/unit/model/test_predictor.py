"""The predictor's tables: who owns a class that comes again, and which task stands for a set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import nn

from lw2g.errors import ContractError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.scope import EACH
from lw2g.model.answers import Answers
from lw2g.model.predictor import Predictor, SetChoice
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


def test_probabilities_of_a_class_that_comes_again_add_up_where_sets_are_mixed() -> None:
    """Those of its two tasks are shares of one; scores of one network have their best instead."""
    targets, domains, _ = STREAMS["one class again"]
    mixed = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).log_softmax(dim=1)
    predictor = predictor_of(
        history_of(targets, domains), [0, 1, 1], logits=lambda rows: rows.sum(-2)[..., :5]
    )
    mixer: Any = SimpleNamespace(combine=lambda *given: mixed - 1000)  # no exponential of it is above 0
    several = SetChoice(
        sets=torch.tensor([[0, 1]]).expand(4, -1),
        first=torch.zeros(4, dtype=torch.long),
        log_sets=torch.zeros(4, 2),
        prior=torch.zeros(4, 5),
    )
    predictor = attrs.evolve(predictor, mixer=mixer)
    shares = mixed.exp()
    together = torch.stack([shares[:, 0] + shares[:, 3], *shares[:, [1, 2, 4]].T], dim=1)
    found = predictor.answer(torch.zeros(4, 2, 1, 5), several, "abcd").logits
    torch.testing.assert_close((found + 1000).exp(), together, rtol=1e-3, atol=0)
    best = torch.stack([torch.maximum(mixed[:, 0], mixed[:, 3]), *mixed[:, [1, 2, 4]].T], dim=1)
    plain = attrs.evolve(predictor, mixer=None)
    found = plain.answer(mixed[:, None], attrs.evolve(several, log_sets=None, prior=None), "abcd").logits
    torch.testing.assert_close(found, best)


def test_what_fills_a_batch_up_may_hold_anything() -> None:
    """Neither its logits nor its scores are looked at; those of an image that was asked for are."""
    rows = torch.ones(4, 1, 3)
    rows[3] = torch.nan
    retrieval: Any = SimpleNamespace(
        query=lambda batch: torch.zeros(len(batch), 3), scores=lambda query, tasks, of_class: rows[:, 0]
    )
    predictor = predictor_of(tasks_of([1, 1, 1]), [0, 1, 2], logits=lambda rows: rows.sum(1))
    predictor = attrs.evolve(predictor, retrieval=retrieval)
    batch = Batch(labels=torch.zeros(4), samples=torch.arange(4), images=None, query=None)
    choice = predictor.sets_of(batch, "abc")
    assert choice.sets[:3].tolist() == [[0], [0], [0]]
    assert predictor.answer(rows, choice, "abc").logits.tolist() == [[1.0, 1.0, 1.0]] * 3
    with pytest.raises(ContractError, match="'d'"):
        predictor.sets_of(batch, "abcd")
    with pytest.raises(ContractError, match="'d'"):
        predictor.answer(rows, choice, "abcd")


def test_a_set_alone_answers_beside_the_expert_at_its_temperature() -> None:
    """Its logits are divided by it before they meet the expert's log probabilities of their targets."""
    targets, domains, _ = STREAMS["one class again"]
    expert: Any = SimpleNamespace(warmth=4.0)
    predictor = predictor_of(history_of(targets, domains), [0, 1, 1], logits=lambda rows: rows.mean(1))
    predictor = attrs.evolve(predictor, expert=expert)
    rows = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0))
    opinion = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(3, -1)
    sets = torch.tensor([[0, 1]]).expand(3, -1)
    answers = Answers(logits=opinion, features=rows.flatten(1))
    found = predictor.alone(rows, SetChoice(sets=sets, expert=opinion), answers, torch.tensor([0, 1, 1]))
    own = torch.stack([rows[0, 0], rows[1, 1], rows[2, 1]])
    torch.testing.assert_close(found, (own / 4).log_softmax(1) + opinion[:, [0, 1, 2, 0, 3]])
