"""classifier: the residual MLP, its phases, and the hop from class to task."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from lw2g.interfaces.phase import ComputePhase, TrainingPhase
from lw2g_retrieval.classifier import Classifier, ResidualMLP
from lw2g_retrieval.options import ClassifierConfig
from tasks import retrieved

CONFIG = ClassifierConfig(lr=0.2, clusters=2, replay_epochs=20, replay_lr=0.2)


def count(module):
    """Return the number of trainable numbers of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("num_classes", "total"), [(100, 2_440_036), (200, 2_516_936)])
def test_counts_are_those_of_the_official_run(vit_b, num_classes, total):
    """The MLP is by far the largest trainable part of HiDe-Prompt."""
    assert count(ResidualMLP(768, 1536)) == 1_181_184 + 1_180_416 + 1_536
    assert count(Classifier(ClassifierConfig(), vit_b(10, num_classes))) == total


def test_the_mlp_starts_as_the_backbone_it_was_released_in():
    """Normal weights with a deviation of 0.02 whatever the width, and no bias."""
    mlp = ResidualMLP(768, 1536).requires_grad_(False)
    for layer in (mlp.expand, mlp.contract):
        assert float(layer.weight.std()) == pytest.approx(0.02, rel=0.01)
        assert float(layer.weight.abs().max()) > 0.08
        assert not layer.bias.any()


@pytest.mark.parametrize("seen", [3, 10])
def test_written_gradients_are_those_of_autograd(vit_b, seen):
    """Replay descends along the gradients that autograd takes, to the bit, in the order of parameters."""
    classifier = Classifier(ClassifierConfig(), vit_b(10, 10))
    network, x, labels = classifier.network, torch.randn(24, 768), torch.arange(24) % seen
    with torch.no_grad():
        network[0].norm.weight.uniform_(0.5, 2)
    loss = functional.cross_entropy(network(x)[:, :seen], labels)
    expected = torch.autograd.grad(loss, list(network.parameters()))
    written = classifier.gradients(x, labels, seen)
    assert len(written) == len(expected)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(written, expected, strict=True))


def test_without_its_second_layer_the_mlp_is_a_norm():
    """With W2 = 0 only the layer norm is left; in general the formula holds."""
    mlp, x = ResidualMLP(8, 16), torch.randn(5, 8)
    inner = functional.gelu(x @ mlp.expand.weight.T + mlp.expand.bias)
    by_hand = functional.layer_norm(x + inner @ mlp.contract.weight.T + mlp.contract.bias, (8,))
    torch.testing.assert_close(mlp(x), by_hand)
    torch.nn.init.zeros_(mlp.contract.weight)
    torch.testing.assert_close(mlp(x), functional.layer_norm(x, (8,)))


def test_replay_keeps_old_tasks(world):
    """After four tasks every task is still found; without replay the last one swallows the others."""
    shares = []
    for config in (CONFIG, ClassifierConfig(lr=0.2, clusters=2, replay_epochs=0)):
        torch.manual_seed(0)
        strategy, pool_world = (
            Classifier(config, world.build),
            type(world)(build=world.build, pool=type(world.pool)()),
        )
        for _ in range(4):
            context = pool_world.begin(strategy)
            pool_world.learn(strategy, context, steps=60)
        right = [
            float(
                (retrieved(strategy, world.queries(i)[0], range(4), context.task_of_class()) == i)
                .float()
                .mean()
            )
            for i in range(4)
        ]
        shares.append(sum(right) / 4)
    assert shares[0] > 0.95
    assert shares[1] < 0.8


def test_phases_train_then_fit_then_replay_on_queries_alone(world):
    """Three phases, none of which reads an image; the training rate is scaled by the batch."""
    strategy = Classifier(ClassifierConfig(), world.build)
    train, statistics, replay = strategy.phases(world.begin(strategy))
    assert isinstance(train, TrainingPhase)
    assert (train.host, train.epochs) == (False, 20)
    assert train.groups[0].lr == pytest.approx(4.6875e-5)
    assert isinstance(statistics, ComputePhase)
    assert isinstance(replay, ComputePhase)
    train.step(world.batch(0))
    statistics.run(lambda done, total: None)
    assert strategy.statistics.count.sum(1).tolist() == [6, 6, 0, 0, 0, 0, 0, 0]


def test_training_is_masked_to_the_tasks_classes(world):
    """Rows of other classes get no gradient from the task's images."""
    strategy = Classifier(CONFIG, world.build)
    world.begin(strategy)
    train = strategy.phases(world.begin(strategy))[0]
    train.step(world.batch(1)).loss.backward()
    rows = strategy.network[1].weight.grad.norm(dim=1)
    assert (rows > 0).tolist() == [False, False, True, True, False, False, False, False]


def test_a_wrong_class_of_the_right_task_counts(world):
    """The task of the predicted class is returned, whichever class it is."""
    strategy = Classifier(CONFIG, world.build)
    context = world.begin(strategy)
    context = world.begin(strategy)
    query = torch.randn(50, 8)
    predicted = strategy.network(query)[:, :4].argmax(1)
    assert torch.equal(retrieved(strategy, query, [0, 1], context.task_of_class()), predicted // 2)
    one_set = torch.zeros(2, dtype=torch.long)
    assert (one_set[predicted // 2] == 0).all()
