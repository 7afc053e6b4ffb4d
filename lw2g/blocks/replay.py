"""Building block: replay, which retrains a classifier on samples of class Gaussians.

This is HiDe-Prompt's task-adaptive prediction (NeurIPS 2023). A method that replays derives its options from
:class:`lw2g.blocks.options.ReplayOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.options import ReplayOptions
from lw2g.blocks.schedules import cosine
from lw2g.blocks.statistics import ClassStatistics
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase, Schedule

__all__ = ["replay_phase", "replay_statistics"]


def replay_statistics(options: ReplayOptions, context: BuildContext) -> ClassStatistics:
    """Return statistics, still empty, of features as wide as the backbone, for all classes."""
    made = ClassStatistics(context.num_classes, context.backbone.dim, options.statistics, options.clusters)
    return made.to(context.device)


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
) -> ComputePhase:
    """Return the phase that retrains a classifier on samples of all seen classes.

    Each epoch draws ``per_centroid`` features from every cluster of every seen class, shuffles them and makes
    exactly one SGD step (momentum 0.9) per *old* class (or seen class), of ``per_centroid`` samples each.
    Logits of unseen classes are left out. In the first task there is nothing to correct: no step is made and
    no number drawn.

    Args:
        name: Shown in the progress, and the purpose of the phase's generator.
        context: The task.
        head: Everything that is trained.
        statistics: Gaussians of the head's input for all seen classes.
        lr: Initial learning rate.
        epochs: Number of epochs.
        per_centroid: Samples per cluster and per step.
        logits: Maps features to logits over all classes; the head itself where left out.
        steps_for: Of which classes there is a step for each in an epoch.
        weight_decay: L2 coefficient on everything that is trained.
        schedule: Gives the learning rate of each epoch; by default half a cosine.
        loss: Takes logits of the seen classes ``[B, seen]`` and labels.
        change: Makes of an epoch's samples and labels, with the phase's generator, what is trained on.
    """
    forward = logits or head

    def run(progress: Callable[[int, int], None]) -> None:
        seen = range(context.task.seen)
        old = context.task.seen - len(context.task.classes)
        if old == 0 or epochs == 0:
            return
        steps = old if steps_for == "old" else context.task.seen
        generator = context.generator(name)
        rate = schedule or cosine()
        with _trainable(head) as parameters:
            optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=weight_decay)
            for epoch in range(epochs):
                optimizer.param_groups[0]["lr"] = rate(lr, epoch, epochs)
                drawn = statistics.sample(seen, per_centroid, generator, limit=steps * per_centroid)
                if change is not None:
                    drawn = (change(*drawn, generator), drawn[1])
                batches = (torch.split(part, per_centroid) for part in drawn)
                for features, labels in zip(*batches, strict=True):
                    found = loss(forward(features)[:, : len(seen)], labels)
                    optimizer.zero_grad()
                    torch.autograd.backward(found)
                    optimizer.step()
                progress(epoch + 1, epochs)

    return ComputePhase(name=name, run=run)


@contextmanager
def _trainable(module: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Let gradients reach a module's parameters for a while, and leave none behind."""
    parameters = list(module.parameters())
    before = [parameter.requires_grad for parameter in parameters]
    try:
        with torch.enable_grad():
            module.requires_grad_(True)
            yield parameters
    finally:
        for parameter, flag in zip(parameters, before, strict=True):
            parameter.requires_grad_(flag).grad = None
