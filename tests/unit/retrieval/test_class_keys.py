"""class-keys: the loss, which keys move, retrieval over classes, and what merging sets does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lw2g.blocks.schedules import cosine
from lw2g.config.resolve import resolve
from lw2g.disk.predictions import Predictions
from lw2g.learning.session import open_session
from lw2g_retrieval.class_keys import ClassKeys
from lw2g_retrieval.options import ClassKeysConfig
from lw2g_testing.tiny import tiny_catalogue
from tasks import build_of, retrieved

OF_CLASS = torch.arange(8) // 2


def strategy_of(world, tasks=0):
    """Return a strategy and the context of the last of some tasks that have begun."""
    strategy, context = ClassKeys(ClassKeysConfig(), world.build), None
    for _ in range(tasks):
        context = world.begin(strategy)
    return strategy, context


def test_keys_start_orthonormal(world):
    """No key is nearer to another one's class than any other."""
    strategy, _ = strategy_of(world)
    torch.testing.assert_close(strategy.key @ strategy.key.T, torch.eye(8), atol=1e-5, rtol=0)


def test_loss_is_cross_entropy_of_raw_cosines_over_seen_classes(world):
    """No temperature, all seen classes: equal to a log-softmax by hand."""
    strategy, context = strategy_of(world, 2)
    batch = world.batch(1)
    keys = strategy.key.detach()[:4]
    cosines = (batch.query @ keys.T) / batch.query.norm(dim=1)[:, None] / keys.norm(dim=1)
    by_hand = -cosines.log_softmax(1)[torch.arange(12), batch.labels].mean()
    torch.testing.assert_close(strategy.loss(batch, context), by_hand)


def test_decay_shortens_keys_as_released(world):
    """CIFAR-100: a task shortens every key without gradient to 0.862 of its length, and turns none."""
    strategy = ClassKeys(ClassKeysConfig(weight_decay=5e-4), world.build)
    (group,) = strategy.parameter_groups(world.begin(strategy), 0.01)
    before, strategy.key.grad = strategy.key.detach().clone(), torch.zeros_like(strategy.key)
    trainer = torch.optim.SGD(
        group.parameters, lr=group.lr, momentum=0.9, weight_decay=group.weight_decay, foreach=False
    )
    annealed = cosine()
    for epoch in range(18):
        trainer.param_groups[0]["lr"] = annealed(group.lr, epoch, 18)
        for _ in range(313):
            trainer.step()
    torch.testing.assert_close(strategy.key.detach(), 0.862 * before, atol=5e-4, rtol=0)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_old_keys_never_move(world, optimizer):
    """Keys of earlier and later tasks are the same to the bit after training with momentum."""
    strategy, context = strategy_of(world, 2)
    strategy = ClassKeys(ClassKeysConfig(lr_factor=2.0), world.build)
    (group,) = strategy.parameter_groups(context, 0.05)
    assert (group.lr, group.weight_decay) == (0.1, 0.0)
    before = strategy.key.detach().clone()
    options = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    trainer = optimizer(group.parameters, lr=group.lr, **options)
    for _ in range(5):
        trainer.zero_grad()
        strategy.loss(world.batch(1), context).backward()
        trainer.step()
    moved = (strategy.key != before).any(dim=1)
    assert moved.tolist() == [False, False, True, True, False, False, False, False]


def test_only_classes_of_seen_tasks_can_be_chosen(world):
    """A key of a class that has not come, or of a task left out, cannot win."""
    strategy, _ = strategy_of(world)
    query = world.queries(3)[0]
    with torch.no_grad():
        strategy.key[6:] = query.mean(0)
    assert int(retrieved(strategy, query, [0, 1], OF_CLASS[:4]).max()) <= 1
    assert retrieved(strategy, query, [1], OF_CLASS[:4]).tolist() == [1] * 12
    assert retrieved(strategy, query, range(4), OF_CLASS).tolist() == [3] * 12


def test_a_choice_does_not_depend_on_lengths(world):
    """Every sample gets the same task with longer keys."""
    strategy, _ = strategy_of(world)
    query = torch.randn(30, 8)
    before = retrieved(strategy, query, range(4), OF_CLASS)
    with torch.no_grad():
        strategy.key.mul_(torch.logspace(-2, 2, 8)[:, None])
    assert torch.equal(before, retrieved(strategy, query, range(4), OF_CLASS))
    assert len(before.unique()) > 1


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 3), st.integers(0, 3))
def test_merging_two_sets_never_lowers_retrieval(partition, first, second):
    """For fixed keys, putting two sets together can only help, and one set is always right."""
    found = retrieved(ClassKeys(ClassKeysConfig(), build_of()), torch.randn(80, 8), range(4), OF_CLASS)

    def pra(task_to_set):
        rows = dict.fromkeys(("sample", "true", "predicted"), np.zeros(80, dtype=np.int64))
        sets = np.array(task_to_set)[found.numpy()]
        by_task = Predictions(
            **rows, task=np.arange(4).repeat(20), retrieved=found.numpy(), set=sets, rank=sets
        ).retrievals(task_to_set, [[0]] * 4, "abcd")
        return sum(by_task) / 4

    merged = [first if one == second else one for one in partition]
    assert pra(merged) >= pra(partition)
    assert pra([0] * 4) == 100.0


@pytest.mark.parametrize(("baseline", "norm"), [("cprompt", False), ("dual-prompt", True), ("l2p", True)])
def test_queries_are_taken_before_the_final_norm(baseline, norm):
    """A run's features for training and evaluation are those its strategy asks for."""
    catalogue = tiny_catalogue()
    resolved = resolve(catalogue, baseline=baseline, benchmark="tiny", backbone="tiny", policy="always")
    session = open_session(resolved.config, catalogue)
    training = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    for images in (training, session.data.evaluator._images):
        batch = next(images.batches([[0, 1, 2]]))
        expected = session.parts.backbone.features(batch.images, norm=norm)
        other = session.parts.backbone.features(batch.images, norm=not norm)
        torch.testing.assert_close(batch.query, expected, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(batch.query, other, atol=1e-2)
