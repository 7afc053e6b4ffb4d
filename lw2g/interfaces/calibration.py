"""Calibration: temperatures that turn the scores of tasks into probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

__all__ = ["Temperature", "best_of", "best_of_task", "least_loss"]

_STEPS = 97
"""Temperatures of the grid; an odd number, so that the start is one of them."""
_DECADES = 4.0
"""Powers of ten on either side of the start."""


def best_of(scores: Tensor, owner: Tensor, count: int) -> Tensor:
    """Return the best score among the columns of each owner.

    Args:
        scores: ``[B, N]``.
        owner: The owner of each column, from 0 to ``count - 1``, ``[N]`` int64.
        count: Number of owners.

    Returns:
        ``[B, count]``; minus infinity for an owner without a column.

    >>> best_of(torch.tensor([[1.0, 5.0, 2.0]]), torch.tensor([0, 1, 0]), 2)
    tensor([[2., 5.]])
    """
    worst = scores.new_full((len(scores), count), float("-inf"))
    return worst.scatter_reduce(1, owner.expand(len(scores), -1), scores, "amax")


def best_of_task(scores: Tensor, task_of_class: Tensor, tasks: Sequence[int]) -> Tensor:
    """Return the best score among each task's classes: the best task is then the task of the best class.

    Args:
        scores: Scores of the seen classes, ``[B, C]``.
        task_of_class: The task of each class, ``[C]``.
        tasks: The tasks to score.

    Returns:
        ``[B, len(tasks)]``.

    >>> best_of_task(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0, 1, 1]), [0, 1])
    tensor([[3., 2.]])
    """
    # the number of classes bounds the number of tasks; task_of_class.max() would wait for the device
    by_task = best_of(scores, task_of_class, max(len(task_of_class), 1 + max(tasks)))
    return by_task[:, torch.as_tensor(tuple(tasks), device=scores.device)]


class Temperature(nn.Module):
    """The temperature that divides scores, fitted to all observations so far.

    It sums the loss of every temperature of a fixed grid over all observations. So the fit does not depend on
    the order of the tasks, and the state is one number per temperature. The grid is logarithmic: 97 values
    over eight decades around ``start``.

    Args:
        start: The temperature before the first observation.

    Attributes:
        loss: Summed negative log likelihood of each temperature, ``[97]`` float64.
    """

    loss: Tensor

    def __init__(self, start: float) -> None:
        super().__init__()
        self.grid = start * torch.logspace(-_DECADES, _DECADES, _STEPS, dtype=torch.float64)
        self.register_buffer("loss", torch.zeros(_STEPS, dtype=torch.float64))

    @property
    def value(self) -> float:
        """The temperature of least loss; among equal ones the one nearest to the start."""
        # before the first observation all losses are 0, and so the start is the nearest one
        best = (self.loss <= self.loss.min()).cpu().nonzero()[:, 0]
        start = _STEPS // 2
        nearest = best[(best - start).abs().argmin()]
        return float(self.grid[nearest])

    def log_posterior(self, scores: Tensor) -> Tensor:
        """Return the log probabilities that follow from scores, ``[n, tasks]`` float32; ``exp`` sums to 1."""
        return (scores.double() / self.value).log_softmax(dim=1).float()

    @torch.no_grad()
    def observe(self, scores: Tensor, place: int | Tensor) -> None:
        """Add the losses of samples that were not used to fit what scores them.

        Args:
            scores: ``[n, tasks]``.
            place: The column of the true task: one for all samples, or one each, ``[n]``.
        """
        rows = torch.arange(len(scores), device=scores.device)
        # float64: the sums over all tasks are compared, and neighbours on the grid differ little
        for position, temperature in enumerate(self.grid.tolist()):
            log_posterior = (scores.double() / temperature).log_softmax(dim=1)
            self.loss[position] -= log_posterior[rows, place].sum()

    def reset(self) -> None:
        """Forget all observations."""
        self.loss.zero_()


def least_loss(scores: Tensor, place: Tensor, *, doubt: float = 0.0) -> float:
    """Return the temperature that a :class:`Temperature` of start 1 has after these samples alone.

    The loss is convex in the inverse temperature. So two neighbours tell on which side of them the least one
    lies, and a sixth of the grid is looked at.

    Args:
        scores: ``[n, tasks]``.
        place: The column of the true task of each, ``[n]``.
        doubt: Weight from 0 to 1 of the best other column as if it were the true one. Without doubt, samples
            that are all right make every small temperature as good as the start.
    """
    grid: list[float] = Temperature(1.0).grid.tolist()
    rows = torch.arange(len(scores), device=scores.device)
    # the true column cannot be the best other one
    others = scores.double().scatter(1, place[:, None], float("-inf"))
    rival = others.argmax(1)

    @cache  # a step of the search asks for a temperature that its neighbour has asked for
    def loss(position: int) -> float:
        """Return the loss of all samples at a temperature of the grid."""
        log_posterior = (scores.double() / grid[position]).log_softmax(dim=1)
        likely = log_posterior[rows, place].sum()
        if doubt:
            likely = (1 - doubt) * likely + doubt * log_posterior[rows, rival].sum()
        return -float(likely)

    def falls(position: int, side: int) -> bool:
        """Whether the next temperature on a side has a smaller loss."""
        beyond = position + side
        return 0 <= beyond < _STEPS and loss(beyond) < loss(position)

    start = _STEPS // 2  # the grid's middle: temperature 1
    side = 1 if falls(start, 1) else -1
    near, far = 0, start + 1  # the loss falls before `near` steps, and no more after `far`
    while near < far:
        steps = (near + far) // 2
        if falls(start + side * steps, side):
            near = steps + 1
        else:
            far = steps
    return grid[start + side * near]
