"""Language guidance: its two losses, what they reach, and its negatives."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from guidance import (
    BUILD,
    CLASSES,
    DIM,
    SEEDS,
    TASKS,
    World,
    batch_of,
    built,
    cosine,
    features_of,
    guided,
    keyed,
    loss_of,
)
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import StepOutput
from lw2g_constraints.lgcl import class_loss, task_loss
from lw2g_retrieval.class_keys import ClassKeys
from lw2g_retrieval.options import ClassKeysConfig

# -- the two losses -----------------------------------------------------------------------------------------


@given(seed=SEEDS, count=st.integers(1, 3), scale=st.sampled_from([1e-3, 1.0, 50.0]))
def test_the_losses_are_their_formulas(seed, count, scale):
    """Against torch's cosine, sample by sample; lengths of keys and features do not count."""
    generator = torch.Generator().manual_seed(seed)
    keys, f = (scale * torch.randn(n, 5, generator=generator) for n in (count, 4))
    texts = functional.normalize(torch.randn(9, 5, generator=generator), dim=1)
    positive, negatives, own, old = texts[0], texts[1:5], texts[1:5], texts[5:]
    by_hand = 1 - sum(cosine(key, positive) for key in keys)
    by_hand += sum(cosine(key, text) for key in keys for text in negatives) / 4
    torch.testing.assert_close(task_loss(keys, positive, negatives), by_hand, atol=1e-5, rtol=0)
    by_hand = (1 - cosine(f, own) + cosine(f, old)).mean()
    torch.testing.assert_close(class_loss(f, own, old), by_hand, atol=1e-5, rtol=0)
    order = torch.randperm(4, generator=generator)
    torch.testing.assert_close(class_loss(f[order], own[order], old[order]), by_hand, atol=1e-5, rtol=0)
    if count == 1:
        for value in (task_loss(keys, positive, negatives), class_loss(f, own, old)):
            assert -1 - 1e-5 <= float(value) <= 3 + 1e-5
        assert -1e-5 <= float(task_loss(keys, positive, None)) <= 2 + 1e-5


# -- a run's first and later tasks --------------------------------------------------------------------------


def test_the_first_task_pulls_its_key_alone():
    """Task 1: no class loss, and 1 - cos(key, text of the task) for the key."""
    world, guidance = keyed(), guided(task_weight=0.5)
    context = world.begin(guidance)
    key = world.retrieval.key[0].detach()
    expected = 0.5 * (1 - cosine(key, TASKS[0]))
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)
    only_class = guided(task_weight=0.0)
    assert loss_of(only_class, World().begin(only_class)) is None


def test_the_class_pull_can_begin_with_the_first_task():
    """By name, features are pulled in task 1 too; there is nothing to push from."""
    guidance = guided(task_weight=0.0, class_loss_first_task=True)
    features = features_of()
    expected = (1 - cosine(features, CLASSES[[0, 1, 0, 1, 0, 1]])).mean()
    torch.testing.assert_close(loss_of(guidance, World().begin(guidance), features), expected)


def test_mean_negatives_are_the_expectation_of_sampled_ones():
    """The mean form needs no draw and equals the average over many draws."""
    sampled, mean = guided(), guided(negatives="mean")
    for guidance in (sampled, mean):
        world = keyed()
        contexts = [world.begin(guidance) for _ in range(3)]
    exact = loss_of(mean, contexts[-1]).detach()
    draws = torch.stack([loss_of(sampled, contexts[-1], seed=seed).detach() for seed in range(200)])
    error = draws.std() / len(draws) ** 0.5
    assert draws.std() > 0.01
    assert abs(draws.mean() - exact) < 5 * error


def test_mean_negatives_draw_nothing():
    """The generator is where it was."""
    world, guidance = keyed(), guided(negatives="mean")
    context = [world.begin(guidance) for _ in range(2)][-1]
    output = StepOutput(loss=torch.zeros(()), features=features_of())
    before = torch.get_rng_state()
    guidance.extra_loss(batch_of(context), output, context)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("seed", range(20))
def test_negatives_are_of_earlier_tasks_and_of_old_classes(seed):
    """A draw reproduces one of the losses that earlier tasks and old classes can give, and no other."""
    guidance, world = guided(task_weight=0.0), World()
    context = [world.begin(guidance) for _ in range(3)][-1]
    features = torch.eye(DIM)[:1].requires_grad_(True)
    labels = torch.tensor([5])
    torch.manual_seed(seed)
    batch = Batch(labels=labels, samples=labels, images=None, query=None)
    value = guidance.extra_loss(batch, StepOutput(loss=torch.zeros(()), features=features), context)
    possible = 1 - cosine(features, CLASSES[5]) + cosine(features, CLASSES[:4])
    assert float((possible - value).detach().abs().min()) < 1e-6
    world, guidance = keyed(), guided(class_weight=0.0)
    context = [world.begin(guidance) for _ in range(3)][-1]
    torch.manual_seed(seed)
    batch = Batch(labels=labels, samples=labels, images=None, query=None)
    value = guidance.extra_loss(batch, StepOutput(loss=torch.zeros(()), features=features), context)
    key = world.retrieval.key[2].detach()
    possible = 1 - cosine(key, TASKS[2]) + cosine(key, TASKS[:2])
    assert float((possible - value.detach()).abs().min()) < 1e-6


def test_gradients_reach_selected_keys_and_features_only():
    """The task loss moves the task's key, the class loss the features; texts want no gradient."""
    world, guidance = keyed(), guided()
    context = [world.begin(guidance) for _ in range(2)][-1]
    features = features_of()
    world.retrieval.requires_grad_(True)
    loss_of(guidance, context, features).backward()
    assert [key.grad is not None for key in world.retrieval.key] == [False, True, False, False]
    assert features.grad.abs().sum() > 0
    assert not any(table.requires_grad for table in guidance.state_dict().values())
    assert not isinstance(guidance, torch.nn.Module)


@pytest.mark.parametrize(
    ("weight", "other"), [("task_weight", "class_weight"), ("class_weight", "task_weight")]
)
def test_weights_scale_their_own_loss(weight, other):
    """The sum is linear in both weights."""

    def value(**weights):
        world, guidance = keyed(), guided(negatives="mean", **weights)
        return loss_of(guidance, [world.begin(guidance) for _ in range(2)][-1]).detach()

    alone = value(**{weight: 1.0, other: 0.0})
    torch.testing.assert_close(value(**{weight: 3.0, other: 0.0}), 3 * alone)
    torch.testing.assert_close(
        value(**{weight: 3.0, other: 2.0}), 3 * alone + 2 * value(**{weight: 0.0, other: 1.0})
    )


# -- shared sets, hosts without keys ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "set_text", "others", "together"),
    [
        ("per-task", "current", [0, 1, 2], [3]),
        ("per-set", "current", [1], [3]),
        ("per-set", "union", [1], [0, 2, 3]),
        ("per-task", "union", [0, 1, 2], [3]),
    ],
)
def test_a_shared_key_is_not_pushed_from_its_own_tasks(keys, set_text, others, together):
    """Set 0 has tasks 1, 3 and 4: its one key is pushed from task 2 alone; keys per task from all three."""
    world, guidance = keyed(keys=keys), guided(class_weight=0.0, negatives="mean", set_text=set_text)
    for reuse in (None, None, 0):
        world.begin(guidance, reuse=reuse)
    context = world.begin(guidance, reuse=0)
    key = world.retrieval.keys(context)[0].detach()
    expected = 1 - cosine(key, TASKS[together].mean(dim=0)) + cosine(key, TASKS[others]).mean()
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)


def test_with_one_shared_key_there_is_no_negative_left():
    """All tasks in one set, one key: only the pull is left, and nothing is drawn."""
    world, guidance = keyed(keys="per-set"), guided(class_weight=0.0)
    world.begin(guidance)
    context = world.begin(guidance, reuse=0)
    key = world.retrieval.key[0].detach()
    torch.testing.assert_close(loss_of(guidance, context).detach(), 1 - cosine(key, TASKS[1]))
    after = torch.get_rng_state()
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), after)


def test_class_keys_are_guided_together():
    """A strategy with several keys has all of those that the task selects pulled, summed up."""
    torch.manual_seed(0)
    world, guidance = World(ClassKeys(ClassKeysConfig(), BUILD)), guided(class_weight=0.0)
    context = world.begin(guidance)
    expected = 1 - cosine(world.retrieval.key[:2].detach(), TASKS[0]).sum()
    torch.testing.assert_close(loss_of(guidance, context).detach(), expected)


@pytest.mark.parametrize("levels", ["task", "both"])
def test_a_host_without_keys_is_told_once(levels):
    """The task loss contributes nothing; one warning in the whole run says so."""
    guidance, world = built(levels=levels), World()
    contexts = [world.begin(guidance) for _ in range(3)]
    with pytest.warns(UserWarning, match="no learned prompt keys: the task loss is left out") as caught:
        added = [loss_of(guidance, context) for context in contexts]
    assert len(caught) == 1
    assert (added[-1] is None) == (levels == "task")


def test_keys_of_a_baseline_are_guided():
    """Those that each sample selects are pulled, the mean over samples, and pushed from all earlier tasks."""
    guidance, world = guided(class_weight=0.0, negatives="mean"), World()
    context = [world.begin(guidance) for _ in range(3)][-1]
    keys = torch.randn(6, 2, DIM, requires_grad=True)
    output = StepOutput(loss=torch.zeros(()), keys=keys)
    found = guidance.extra_loss(batch_of(context), output, context)
    pull = torch.stack([cosine(key, TASKS[2]).sum() for key in keys]).mean()
    push = torch.stack([cosine(key[:, None], TASKS[:2]).sum(dim=0).mean() for key in keys]).mean()
    torch.testing.assert_close(found, 1 - pull + push)
    found.backward()
    assert keys.grad.any()


def test_a_host_without_features_is_told_once():
    """The class loss is left out where a step returns no features."""
    guidance, world = guided(task_weight=0.0), World()
    context = [world.begin(guidance) for _ in range(2)][-1]
    output = StepOutput(loss=torch.zeros(()))
    with pytest.warns(UserWarning, match="gives no features"):
        assert guidance.extra_loss(batch_of(context), output, context) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert guidance.extra_loss(batch_of(context), output, context) is None
