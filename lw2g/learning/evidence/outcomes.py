"""Outcomes: what training has brought, judged by a regression on training images that were set apart.

The regression is the same for all methods and sets, so that it compares sets and not heads; it takes one
forward of the images a set.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lw2g.errors import ConfigError
from lw2g.interfaces.stream import Task
from lw2g.maths.normal_equations import best_penalty, left_out_scores, require_factor, weights_of

__all__ = ["PER_CLASS", "left_out_errors", "require_images_apart"]

PER_CLASS = 2
"""The least images of a class that are set apart: one to learn of, one to ask."""


def require_images_apart(tasks: Sequence[Task]) -> None:
    """Refuse tasks that are too small for outcomes, before anything is learned.

    Args:
        tasks: All of the run; the first one is learned without a choice.

    Raises:
        ConfigError: A task has fewer images than four a class, half of them to be set apart.
    """
    least = 2 * PER_CLASS
    for task in tasks[1:]:
        classes = len(task.classes)
        if len(task.train) < least * classes:
            raise ConfigError(
                f"growth: task {task.index + 1} has {len(task.train)} training images of {classes} classes, "
                f"too few to set {PER_CLASS} a class apart, which judge what training brings",
                f"give each task {least} images a class, or choose a policy that sets none apart",
            )


def left_out_errors(features: Tensor, labels: Tensor) -> Tensor:
    """Return the squared error of each image under the ridge regression on all others, ``[n]`` float64.

    The penalty is that of least generalised cross-validation error.

    Args:
        features: ``[n, F]``.
        labels: Their classes, ``[n]`` int64.
    """
    rows = features.double().cpu()
    centred = rows - rows.mean(dim=0)
    # an intercept of the scale of the features
    level = centred.square().mean().sqrt().clamp(min=1e-12)  # no column of zeros where all images are alike
    rows = torch.cat([centred, level.expand(len(rows), 1)], dim=1)
    targets = torch.unique(labels, return_inverse=True)[1]
    wanted = torch.nn.functional.one_hot(targets).double()
    gram = rows.T @ rows
    cross = rows.T @ wanted
    # the squared norm of one-hot targets is the number of rows
    penalty = best_penalty(gram, cross, len(rows), float(len(rows)))
    scores = left_out_scores(require_factor(gram, penalty), weights_of(gram, cross, penalty), rows, targets)
    return (scores - wanted).square().sum(dim=1)
