"""The contract of a retrieval strategy: which task a test sample may come from, not being told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.calibration import Temperature, best_of_task
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, TrainingPhase

__all__ = ["ClassRetrieval", "RetrievalStrategy"]

_CALIBRATION_BATCH, _CALIBRATION_BATCHES = 64, 8
"""Calibration looks at so many batches of so many images of a task, at most twice as many."""


class RetrievalStrategy(nn.Module, ABC):
    """Maps queries to scores and probabilities of tasks; the pool maps tasks to sets.

    A strategy is a module: its parameters and buffers (keys, centroids, a task-identity classifier) are what
    a checkpoint holds. Its query is the un-prompted feature, computed once per run, unless it learns a query
    of its own, which is then computed anew at every evaluation.

    Attributes:
        query_norm: Whether the run's un-prompted features are class tokens after the final norm (else
            before it).
        temperature: What scores are divided by before they are probabilities.
        learned_query: Whether :meth:`query` reads the images, because it changes with what is learned.
        learning_only: Names of buffers, parameters and modules of its own that only learning reads, such as
            statistics for a replay; an exported model leaves them out.
    """

    query_norm: ClassVar[bool] = True
    learned_query: ClassVar[bool] = False
    learning_only: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self._context = context
        self.temperature = Temperature(1.0)

    @property
    def context(self) -> BuildContext:
        """What was known when the strategy was built."""
        return self._context

    def begin_task(self, context: TaskContext) -> None:
        """Make room for a task that has just got its set (a key that starts from another, say)."""

    def parameter_groups(self, context: TaskContext, lr: float) -> Sequence[ParameterGroup]:
        """Return what joins the optimizer of the host's phase, given that phase's learning rate."""
        return ()

    def loss(self, batch: Batch, context: TaskContext) -> Tensor | None:
        """Return what is added to the host's loss, None for nothing."""
        return None

    def keys(self, context: TaskContext) -> Tensor | None:
        """Return the learned keys a training batch selects, ``[K, dim]`` with gradient; None without keys."""
        return None

    def phases(self, context: TaskContext) -> Sequence[TrainingPhase | ComputePhase]:
        """Return phases of its own, run before the baseline's."""
        return ()

    def query(self, batch: Batch) -> Tensor:
        """Return what :meth:`scores` is asked with, ``[B, dim]``: the un-prompted features by default.

        It must depend on nothing but the images and the strategy's own state: never on labels, on sets, or on
        the rest of the batch.
        """
        return batch.query

    @abstractmethod
    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return how well each seen task suits each query, ``[B, len(seen)]``: the larger, the better.

        Any scale will do: probabilities are the softmax of scores over a temperature that is fitted.

        Args:
            query: What :meth:`query` returned, ``[B, dim]`` float32.
            seen: The tasks seen so far.
            task_of_class: The task of each seen class, ``[C_seen]``.
        """

    def class_scores(self, query: Tensor, classes: int) -> Tensor | None:
        """Return a score of each of the first classes, ``[B, classes]``; None: it knows tasks alone.

        At the same temperature as :meth:`scores`; soft routing listens to it.
        """
        return None

    def retrieve(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the task of the best score, of equals the first in ``seen``, ``[B]`` int64."""
        tasks = torch.as_tensor(tuple(seen), dtype=torch.long, device=query.device)
        return tasks[self.scores(query, seen, task_of_class).argmax(dim=-1)]

    def log_posterior(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the log probability of each seen task, ``[B, len(seen)]`` float32; ``exp`` sums to 1."""
        scores = self.scores(query, seen, task_of_class).double()
        return (scores / self.temperature.value).log_softmax(dim=-1).float()

    @torch.no_grad()
    def calibrate(self, context: TaskContext) -> None:
        """Fit the temperature to a task just learned; called where probabilities are wanted.

        By default to queries of some of its training images. A strategy that could know these by heart
        overrides this, and fits it to samples of stored statistics or to images it has held back.
        """
        seen = [info.index for info in context.history]
        step = max(1, context.task.num_images // (_CALIBRATION_BATCH * _CALIBRATION_BATCHES))
        for number, batch in enumerate(context.statistics(_CALIBRATION_BATCH)):
            if number % step == 0:
                scores = self.scores(self.query(batch).float(), seen, context.task_of_class())
                self.temperature.observe(scores, seen.index(context.task.index))


class ClassRetrieval(RetrievalStrategy):
    """A strategy that tells classes apart: the task of the best class is retrieved."""

    @abstractmethod
    def class_scores(self, query: Tensor, classes: int) -> Tensor:
        """Return a score of each of the first classes, ``[B, classes]``: the larger, the better."""

    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the score of the best class of each seen task, ``[B, len(seen)]``."""
        return best_of_task(self.class_scores(query, len(task_of_class)), task_of_class, seen)
