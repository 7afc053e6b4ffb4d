"""lora-classifier: a query learned with an update that all tasks share, and its way into evaluation."""

from __future__ import annotations

import pytest
import torch

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.lifecycle.runner import start
from lw2g_retrieval.lora_classifier import LoraClassifier
from lw2g_retrieval.options import LoraClassifierConfig
from lw2g_testing.tiny import tiny_backbone
from tasks import build_of, task_context, tasks_of


@pytest.fixture
def strategy() -> LoraClassifier:
    """A fresh strategy of rank 3 for two tasks of two classes on the tiny backbone."""
    torch.manual_seed(0)
    build = build_of(tiny_backbone(), num_tasks=2, num_classes=4)
    return LoraClassifier(LoraClassifierConfig(rank=3, replay_epochs=2, clusters=2), build)


def batch(task: int) -> Batch:
    """Return eight images of a task."""
    images = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(task))

    def no_query() -> torch.Tensor:
        raise AssertionError("the query is the strategy's own")

    labels = torch.arange(8) % 2 + 2 * task
    return Batch(labels=labels, samples=torch.arange(8), images=lambda: images, query=no_query)


def context_of(strategy: LoraClassifier, tasks: int) -> TaskContext:
    """Return the context of the last of some tasks, each with a set of its own."""
    pool = Pool()
    for _ in range(tasks):
        pool.grow(torch.nn.Linear(1, 1))
    return task_context(
        pool,
        tasks_of([2] * tasks),
        retrieval=strategy,
        memory=None,
        pretrained_space=None,
        backbone=strategy.context.backbone,
        statistics=lambda size: [batch(tasks - 1)],
    )


def moved(strategy: LoraClassifier) -> None:
    """Give the update an effect."""
    torch.manual_seed(1)
    with torch.no_grad():
        strategy.update.up.normal_()


def test_a_fresh_update_changes_nothing(strategy):
    """With its up factors at zero the query is the plain feature; otherwise only five blocks matter."""
    backbone = strategy.context.backbone
    assert torch.equal(strategy.query(batch(0)), backbone.features(batch(0).images))
    assert strategy.update.down.shape == (5, 2, 3, 32)
    assert float(strategy.update.down.detach().abs().max()) <= 3**-0.5
    assert float(strategy.update.down.detach().abs().max()) > 0.9 * 3**-0.5
    moved(strategy)
    assert not torch.allclose(strategy.query(batch(0)), backbone.features(batch(0).images), atol=1e-2)
    assert torch.equal(backbone.features(batch(0).images), backbone.features(batch(0).images))


def test_the_update_learns_slowly_after_the_first_task(strategy):
    """One rate in the first task, a tenth for the update afterwards; the head keeps its rate."""
    first, later = (strategy.phases(context_of(strategy, tasks))[0] for tasks in (1, 2))
    assert isinstance(first, TrainingPhase)
    assert isinstance(later, TrainingPhase)
    assert first.clip_norm == 2.0
    rate = 0.01 * 24 / 256
    assert [group.lr for group in first.groups] == pytest.approx([rate, rate])
    assert [group.lr for group in later.groups] == pytest.approx([0.1 * rate, rate])
    assert set(first.trained) == {*strategy.update.parameters(), *strategy.network.parameters()}


def test_the_first_step_reaches_the_up_factors_alone(strategy):
    """While up is zero, down has no gradient, and nothing becomes NaN."""
    strategy.requires_grad_(True)
    strategy.phases(context_of(strategy, 1))[0].step(batch(0)).loss.backward()
    assert float(strategy.update.down.grad.abs().max()) == 0
    assert float(strategy.update.up.grad.abs().max()) > 0


def test_replay_moves_the_head_alone(strategy):
    """Statistics are taken under the update; replay leaves it alone, and does nothing in the first task."""
    moved(strategy)
    update = {name: value.clone() for name, value in strategy.update.state_dict().items()}
    head = strategy.network.weight.detach().clone()
    for tasks in (1, 2):
        _, statistics, replay = strategy.phases(context_of(strategy, tasks))
        statistics.run(lambda done, total: None)
        replay.run(lambda done, total: None)
        assert torch.equal(strategy.network.weight, head) == (tasks == 1)
    assert all(torch.equal(value, update[name]) for name, value in strategy.update.state_dict().items())
    mean = strategy.query(batch(1))[::2].detach()
    centres, counts = strategy.statistics.mean[2], strategy.statistics.count[2].float()
    torch.testing.assert_close((centres * counts[:, None]).sum(0) / counts.sum(), mean.mean(0))


def test_evaluation_asks_with_the_learned_query(quick, catalogue, tmp_path):
    """What a finished run retrieved is what its restored strategy says of the test images."""
    from lw2g.disk.checkpoint import CheckpointStore
    from lw2g.disk.record import RunDirectory
    from lw2g.learning.session import open_session
    from lw2g.learning.state import restore

    options = {"retrieval.epochs": 2, "retrieval.lr": 0.5, "retrieval.replay_epochs": 2}
    names = {"baseline": "hide-lora", "retrieval": "lora-classifier", "policy": "always"}
    resolved = quick(options, **names)
    start(resolved, catalogue, tmp_path / "run")
    files = RunDirectory(tmp_path / "run")
    session = open_session(resolved.config, catalogue)
    checkpoint, _ = CheckpointStore(files.checkpoints).newest()
    restore(session, checkpoint)
    assert float(session.parts.retrieval.update.up.abs().max()) > 0
    images = session.data.image_set([task.test for task in session.data.stream.tasks], train=False)
    everything = next(iter(images.batches([list(range(len(images)))])))
    with torch.no_grad():
        logits = session.parts.retrieval.network(session.parts.retrieval.query(everything))
        plain = session.parts.retrieval.network(everything.query)
    stored = files.read_predictions(2).retrieved
    task_of_class = [task.index for task in session.data.stream.tasks for _ in task.classes]
    assert stored.tolist() == [task_of_class[best] for best in logits.argmax(1).tolist()]
    assert not torch.equal(logits.argmax(1), plain.argmax(1))
