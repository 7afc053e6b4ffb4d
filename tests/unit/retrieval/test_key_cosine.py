"""key-cosine: learning, selection, sharing of keys, and the named leak."""

from __future__ import annotations

import torch

from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.options import KeyCosineConfig
from tasks import retrieved


def test_loss_is_minus_the_mean_cosine(world):
    """The pull term equals its formula and reaches the task's key only."""
    strategy = KeyCosine(KeyCosineConfig(pull=0.5), world.build)
    world.begin(strategy)
    context = world.begin(strategy)
    batch = world.batch(1)
    key = strategy.key[1].detach()
    by_hand = -0.5 * (batch.query @ key / batch.query.norm(dim=1) / key.norm()).mean()
    loss = strategy.loss(batch, context)
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert [parameter.grad is not None for parameter in strategy.key] == [False, True, False, False]
    assert strategy.keys(context).shape == (1, 8)
    (group,) = strategy.parameter_groups(context, 0.3)
    assert group.lr == 0.3
    assert group.parameters[0] is strategy.key[1]


def test_matching_ignores_the_length_of_keys(world):
    """Scaling keys by positive numbers changes no choice."""
    strategy = KeyCosine(KeyCosineConfig(), world.build)
    for _ in range(4):
        world.begin(strategy)
    query = torch.randn(50, 8)
    before = retrieved(strategy, query, range(4), torch.arange(8) // 2)
    with torch.no_grad():
        for factor, key in zip((0.01, 3.0, 70.0, 1.0), strategy.key, strict=True):
            key.mul_(factor)
    assert torch.equal(before, retrieved(strategy, query, range(4), torch.arange(8) // 2))


def test_the_batch_vote_is_a_named_deviation(world):
    """Voting gives the whole batch one set, which is why it is a named deviation."""
    config = KeyCosineConfig(vote="batch")
    strategy = KeyCosine(config, world.build)
    for _ in range(2):
        world.learn(strategy, world.begin(strategy))
    mixed = torch.cat([world.queries(0)[0], world.queries(1)[0][:5]])
    assert retrieved(strategy, mixed, range(2), torch.arange(4) // 2).tolist() == [0] * 17


def test_the_batch_vote_is_over_sets(world):
    """Votes for two tasks of one set count together."""
    strategy = KeyCosine(KeyCosineConfig(vote="batch"), world.build)
    for reuse in (None, None, 0):
        world.learn(strategy, world.begin(strategy, reuse=reuse))
    mixed = torch.cat([world.queries(0)[0][:4], world.queries(2)[0][:4], world.queries(1)[0][:6]])
    found = retrieved(strategy, mixed, range(3), torch.arange(6) // 2)
    assert world.pool.sets_of(found).tolist() == [0] * 14


def test_on_reuse_a_key_of_its_own_starts_from_the_newest_of_the_set(world):
    """Per task: the new key is a copy of the set's newest, which stays as it is."""
    strategy = KeyCosine(KeyCosineConfig(keys="per-task"), world.build)
    for reuse in (None, None, 0):
        context = world.begin(strategy, reuse=reuse)
        world.learn(strategy, context, steps=3)
    newest = strategy.key[2].detach().clone()
    context = world.begin(strategy, reuse=0)
    assert torch.equal(strategy.key[3], newest)
    world.learn(strategy, context, steps=3)
    assert torch.equal(strategy.key[2], newest)
    assert not torch.equal(strategy.key[3], newest)


def test_per_set_the_pair_is_updated(world):
    """Per set: a reused set's key is trained on, and there are as many keys in use as sets."""
    strategy = KeyCosine(KeyCosineConfig(keys="per-set"), world.build)
    for _ in range(2):
        world.learn(strategy, world.begin(strategy), steps=3)
    before = [key.detach().clone() for key in strategy.key]
    world.learn(strategy, world.begin(strategy, reuse=0), steps=3)
    moved = [not torch.equal(a, b) for a, b in zip(before, strategy.key, strict=True)]
    assert moved == [True, False, False, False]
    found = retrieved(strategy, world.queries(2)[0], range(3), torch.arange(6) // 2)
    assert world.pool.sets_of(found).tolist() == [0] * 12


def test_without_pull_nothing_is_trained(world):
    """Weight 0 adds no loss and no parameters."""
    strategy = KeyCosine(KeyCosineConfig(pull=0.0), world.build)
    context = world.begin(strategy)
    assert strategy.loss(world.batch(0), context) is None
    assert strategy.parameter_groups(context, 0.1) == ()


def test_state_carries_over(world):
    """A fresh strategy that loads the state chooses the same, with keys shared by sets."""
    strategy = KeyCosine(KeyCosineConfig(keys="per-set"), world.build)
    for reuse in (None, None, 0):
        world.learn(strategy, world.begin(strategy, reuse=reuse), steps=5)
    fresh = KeyCosine(KeyCosineConfig(keys="per-set"), world.build)
    fresh.load_state_dict(strategy.state_dict())
    query = torch.randn(40, 8)
    chosen = [retrieved(item, query, range(3), torch.arange(6) // 2) for item in (strategy, fresh)]
    assert torch.equal(*chosen)
