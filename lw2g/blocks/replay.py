"""Building block: replay, which retrains a classifier on samples from class Gaussians.

It is HiDe-Prompt's task-adaptive prediction (NeurIPS 2023). A method with replay derives its options from
:class:`lw2g.blocks.options.ReplayOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.heads import HeadedBaseline
from lw2g.blocks.options import ReplayOptions
from lw2g.blocks.schedules import cosine
from lw2g.blocks.statistics import ClassStatistics
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import ComputePhase, Schedule

__all__ = [
    "Gradients",
    "head_replay",
    "linear_gradients",
    "logit_gradient",
    "replay_phase",
    "replay_statistics",
]

Gradients = Callable[[Tensor, Tensor, int], list[Tensor]]
"""Gradients of the mean cross-entropy over the first classes, by parameter of a head: a function of features
``[B, dim]``, labels ``[B]`` and the number of those classes."""

_MOMENTUM = 0.9

# a name that methods made with 0.2.0 import
replay_statistics = ClassStatistics.of


def head_replay(
    baseline: HeadedBaseline, statistics: ClassStatistics, options: ReplayOptions, context: TaskContext
) -> tuple[ComputePhase, ComputePhase]:
    """Return the phases that take a task's statistics under its set, and correct the head on all of them."""
    routing = context.pool.force(context.set_id)
    replay = replay_phase(
        "replay",
        context,
        baseline.head,
        statistics,
        lr=options.replay_lr,
        epochs=options.replay_epochs,
        per_centroid=options.replay_batch,
    )
    return (
        statistics.phase("statistics", context, lambda batch: baseline.features(batch, routing)),
        replay,
    )


def replay_phase(
    name: str,
    context: TaskContext,
    head: nn.Module,
    statistics: ClassStatistics,
    *,
    lr: float,
    epochs: int,
    per_centroid: int,
    logits: Callable[[Tensor], Tensor] | None = None,
    steps_for: Literal["old", "seen"] = "old",
    weight_decay: float = 0.0,
    schedule: Schedule | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    change: Callable[[Tensor, Tensor, torch.Generator], Tensor] | None = None,
    gradients: Gradients | None = None,
) -> ComputePhase:
    """Return the phase that retrains a classifier on samples of all seen classes.

    Each epoch draws ``per_centroid`` features from every cluster of every seen class, shuffles them and takes
    exactly one SGD step (momentum 0.9) per *old* class (or seen class), of ``per_centroid`` samples each. The
    loss leaves out unseen classes. The first task has no old classes: the phase takes no step and draws no
    number.

    Args:
        name: Shown in the progress, and the purpose of the phase's generator.
        context: The task.
        head: The module to train.
        statistics: Gaussians of the head's input for all seen classes.
        lr: Initial learning rate.
        epochs: Number of epochs.
        per_centroid: Samples per cluster and per step.
        logits: Maps features to logits over all classes; by default the head.
        steps_for: The classes for which an epoch takes one step each.
        weight_decay: L2 coefficient on all trained parameters.
        schedule: Returns the learning rate of each epoch; by default half a cosine.
        loss: Takes logits of the seen classes ``[B, seen]`` and labels.
        change: Maps an epoch's samples, their labels and the phase's generator to the samples to train on.
        gradients: Of the cross-entropy, written out; by default autograd's, or those of a linear head.
    """
    forward = logits or head
    if isinstance(head, nn.Linear) and logits is None and loss is functional.cross_entropy:
        gradients = partial(linear_gradients, head)

    def gradients_of(features: Tensor, labels: Tensor, parameters: list[Tensor]) -> list[Tensor]:
        """Return the gradient of a batch's loss at each parameter."""
        seen = context.task.seen
        if gradients is not None:
            return gradients(features, labels, seen)
        return list(torch.autograd.grad(loss(forward(features)[:, :seen], labels), parameters))

    def run(progress: Callable[[int, int], None]) -> None:
        """Train by SGD with momentum on samples of each cluster, drawn anew for each epoch."""
        seen = range(context.task.seen)
        old = context.task.seen - len(context.task.classes)
        if old == 0 or epochs == 0:
            return
        steps = old if steps_for == "old" else context.task.seen
        generator = context.generator(name)
        rate = schedule or cosine()
        with _trainable(head) as parameters:
            # velocities last over all epochs: the momentum goes on, as with one optimizer
            velocities: list[Tensor] = []
            for epoch in range(epochs):
                lr_now = rate(lr, epoch, epochs)
                # there are more samples than steps: the rest of an epoch's draw is never computed
                rows, owners = statistics.sample(seen, per_centroid, generator, limit=steps * per_centroid)
                if change is not None:
                    rows = change(rows, owners, generator)
                batches = zip(torch.split(rows, per_centroid), torch.split(owners, per_centroid), strict=True)
                for features, labels in batches:
                    gradient = gradients_of(features, labels, parameters)
                    _descend(parameters, gradient, velocities, lr_now, weight_decay)
                progress(epoch + 1, epochs)

    return ComputePhase(name=name, run=run, counts="epochs")


@torch.no_grad()
def logit_gradient(logits: Tensor, labels: Tensor, seen: int) -> Tensor:
    """Return the gradient of the mean cross-entropy over the first ``seen`` classes, ``[B, C]``.

    Like all gradients that are written out for replay it is put together from the operations that autograd
    takes, and equals its to the bit: a step has 24 rows, and keeping a graph is most of it.
    """
    logs = functional.log_softmax(logits[:, :seen], dim=1)
    # the gradient of the loss by the log probabilities: -1 / B at each true class
    by_logs = torch.zeros_like(logs).scatter_(1, labels[:, None], -1 / len(labels))
    errors = torch.zeros_like(logits)
    errors[:, :seen] = torch._log_softmax_backward_data(by_logs, logs, 1, logs.dtype)
    return errors


@torch.no_grad()
def linear_gradients(head: nn.Linear, features: Tensor, labels: Tensor, seen: int) -> list[Tensor]:
    """Return the gradients of the cross-entropy over the seen classes, by weight and bias."""
    errors = logit_gradient(head(features), labels, seen)
    gradients = [errors.T @ features]
    if head.bias is not None:
        gradients.append(errors.sum(dim=0))
    return gradients


@torch.no_grad()
def _descend(
    parameters: list[Tensor], gradients: list[Tensor], velocities: list[Tensor], lr: float, decay: float
) -> None:
    """Take a step of ``torch.optim.SGD`` with momentum 0.9; ``velocities`` is empty before the first one."""
    if decay:
        gradients = list(torch._foreach_add(gradients, parameters, alpha=decay))
    if velocities:
        torch._foreach_mul_(velocities, _MOMENTUM)
        torch._foreach_add_(velocities, gradients)
    else:
        # as in torch the first step is the gradient itself; a copy, for the next one changes it in place
        velocities += [gradient.clone() for gradient in gradients]
    torch._foreach_add_(parameters, velocities, alpha=-lr)


@contextmanager
def _trainable(module: nn.Module) -> Iterator[list[Tensor]]:
    """Enable gradients of a module's parameters within the context, and remove them after it."""
    parameters: list[Tensor] = list(module.parameters())
    before = [parameter.requires_grad for parameter in parameters]
    try:
        with torch.enable_grad():
            module.requires_grad_(True)
            yield parameters
    finally:
        for parameter, flag in zip(parameters, before, strict=True):
            parameter.requires_grad_(flag).grad = None
