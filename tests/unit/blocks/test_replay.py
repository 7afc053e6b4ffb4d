"""Replay: number and size of steps, what is trained, and the first task."""

from __future__ import annotations

import math
from types import SimpleNamespace

import attrs
import torch
from torch import nn

from lw2g.blocks.options import ReplayOptions
from lw2g.blocks.replay import replay_phase
from lw2g.blocks.statistics import ClassStatistics

DIM, CLASSES = 4, 6


def fitted(seen: int) -> ClassStatistics:
    """Return statistics of far-apart classes."""
    statistics = ClassStatistics(CLASSES, DIM, clusters=2)
    for label in range(seen):
        centre = 4 * torch.eye(CLASSES, DIM)[label] - label
        rows = torch.randn(12, DIM, generator=torch.Generator().manual_seed(label))
        statistics.fit(label, centre + rows)
    return statistics


def context(classes: tuple[int, ...], seed: int = 0) -> SimpleNamespace:
    """Return what the phase reads of a task context."""
    task = SimpleNamespace(index=1, classes=classes, seen=classes[-1] + 1)
    return SimpleNamespace(task=task, generator=lambda name: torch.Generator().manual_seed(seed))


def run(head, classes, epochs=3, per_centroid=5, **options):
    """Run the phase and return the sizes of the batches that reached the head."""
    sizes = []
    handle = head.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    done = []
    replay_phase(
        "replay",
        context(classes),
        head,
        fitted(classes[-1] + 1),
        lr=0.1,
        epochs=epochs,
        per_centroid=per_centroid,
        **options,
    ).run(lambda now, total: done.append((now, total)))
    handle.remove()
    return sizes, done


def test_one_step_per_old_class_and_epoch():
    """Thirty epochs after four old classes are 120 steps of one batch per centroid's worth of samples."""
    torch.manual_seed(0)
    sizes, done = run(nn.Linear(DIM, CLASSES), (4, 5), epochs=30)
    assert sizes == [5] * 120
    assert done[-1] == (30, 30)


def test_the_first_task_is_left_alone():
    """With no old class nothing is drawn and nothing moves."""
    head = nn.Linear(DIM, CLASSES)
    before = head.weight.detach().clone()
    assert run(head, (0, 1)) == ([], [])
    assert torch.equal(head.weight, before)


def test_steps_equal_hand_written_momentum():
    """The result equals SGD with momentum 0.9 and a cosine learning rate, written out."""
    torch.manual_seed(0)
    head, by_hand = nn.Linear(DIM, CLASSES), nn.Linear(DIM, CLASSES)
    by_hand.load_state_dict(head.state_dict())
    run(head, (2, 3), epochs=4)
    generator, statistics = torch.Generator().manual_seed(0), fitted(4)
    speed = [torch.zeros_like(parameter) for parameter in by_hand.parameters()]
    for epoch in range(4):
        lr = 0.1 * 0.5 * (1 + math.cos(math.pi * epoch / 4))
        features, labels = statistics.sample(range(4), 5, generator, limit=10)
        for start in (0, 5):
            part = slice(start, start + 5)
            logits = by_hand(features[part])[:, :4]
            loss = -logits.log_softmax(1)[torch.arange(5), labels[part]].mean()
            gradients = torch.autograd.grad(loss, list(by_hand.parameters()))
            with torch.no_grad():
                for parameter, gradient, velocity in zip(by_hand.parameters(), gradients, speed, strict=True):
                    velocity.mul_(0.9).add_(gradient)
                    parameter.sub_(lr * velocity)
    torch.testing.assert_close(head.weight, by_hand.weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head.bias, by_hand.bias, atol=1e-5, rtol=1e-5)


def test_frozen_flags_come_back():
    """A head that the framework froze is frozen again, without gradients left on it."""
    head = nn.Linear(DIM, CLASSES).requires_grad_(False)
    with torch.no_grad():
        sizes, _ = run(head, (2, 3))
    assert sizes
    assert not head.weight.requires_grad
    assert head.weight.grad is None


def test_any_classifier_can_be_retrained():
    """A module that needs its own forward gives its logits through a function."""
    torch.manual_seed(0)
    parts = nn.ModuleList([nn.Linear(DIM, 3), nn.Linear(DIM, 3)])
    before = [part.weight.detach().clone() for part in parts]
    replay_phase(
        "replay",
        context((3, 4, 5)),
        parts,
        fitted(6),
        lr=0.1,
        epochs=2,
        per_centroid=4,
        logits=lambda features: torch.cat([part(features) for part in parts], dim=1),
    ).run(lambda now, total: None)
    for part, old in zip(parts, before, strict=True):
        assert not torch.equal(part.weight, old)


def test_options_can_stand_beside_others_and_make_their_statistics():
    """A config class may derive from two records; statistics are as wide as the backbone, one per class."""

    @attrs.frozen(kw_only=True)
    class Own:
        epochs: int = 3

    @attrs.frozen(kw_only=True)
    class Both(Own, ReplayOptions):
        clusters: int = 4

    chosen = Both(statistics="multi-centroid", replay_lr=0.1)
    build = SimpleNamespace(backbone=SimpleNamespace(dim=7), num_classes=5, device=torch.device("cpu"))
    assert tuple(ClassStatistics.of(chosen, build).mean.shape) == (5, 4, 7)
    assert tuple(ClassStatistics.of(attrs.evolve(chosen, statistics="covariance"), build).spread.shape) == (
        5,
        1,
        7,
        7,
    )
    assert (chosen.epochs, chosen.replay_epochs, chosen.replay_lr) == (3, 30, 0.1)
