"""The contract of a retrieval strategy: it infers the task of a test sample."""

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

_CALIBRATION_BATCH = 64
_CALIBRATION_BATCHES = 8
"""Batches of a task's images that calibration scores; up to twice as many, as a step is a whole number."""


class RetrievalStrategy(nn.Module, ABC):
    """A retrieval strategy maps queries to scores and probabilities of tasks; the pool maps tasks to sets.

    A strategy is a torch module; a checkpoint holds its parameters and buffers (keys, centroids, a
    task-identity classifier). Its query is the un-prompted feature, computed once per run, unless it learns
    its own query, which is then computed at every evaluation.

    Attributes:
        query_norm: Whether the run's un-prompted features are class tokens after the final norm (else
            before it).
        temperature: Divides scores before the softmax makes them probabilities.
        control: Whether it is a control that is given the true task in evaluation; nothing else calls it.
        learned_query: Whether :meth:`query` reads the images, because the query changes during learning.
        votes: Whether scores of an image depend on the rest of its batch, so that batches keep their size.
        learning_only: Names of the strategy's own buffers, parameters and modules that only learning reads,
            such as statistics for replay; an exported model leaves them out.
    """

    query_norm: ClassVar[bool] = True
    control: ClassVar[bool] = False
    learned_query: ClassVar[bool] = False
    votes: bool = False
    learning_only: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self._context = context
        self.temperature = Temperature(1.0)

    @property
    def context(self) -> BuildContext:
        """The context that the strategy was built with."""
        return self._context

    def begin_task(self, context: TaskContext) -> None:
        """Allocate what a task needs once its set is chosen, such as a key that starts from another one."""

    def parameter_groups(self, context: TaskContext, lr: float) -> Sequence[ParameterGroup]:
        """Return the groups to add to the host phase's optimizer, given that phase's learning rate."""
        return ()

    def loss(self, batch: Batch, context: TaskContext) -> Tensor | None:
        """Return a scalar to add to the loss of the host phase; None for no such term."""
        return None

    def keys(self, context: TaskContext) -> Tensor | None:
        """Return the learned keys a training batch selects, ``[K, dim]`` with gradient; None without keys."""
        return None

    def phases(self, context: TaskContext) -> Sequence[TrainingPhase | ComputePhase]:
        """Return the strategy's own phases, which run before the baseline's."""
        return ()

    def query(self, batch: Batch) -> Tensor:
        """Return the queries that :meth:`scores` takes, ``[B, dim]``: the un-prompted features by default.

        A query must depend on its image and the strategy's own state alone: never on labels, on sets, or on
        the rest of the batch.
        """
        return batch.query

    @abstractmethod
    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return how well each seen task suits each query, ``[B, len(seen)]``: the larger, the better.

        The task of the best score is retrieved, among equal ones the first. The scale is free: probabilities
        are the softmax of the scores divided by a fitted temperature.

        Args:
            query: Queries that :meth:`query` returned, ``[B, dim]`` float32.
            seen: The tasks seen so far.
            task_of_class: The task of each seen class, ``[C_seen]``.
        """

    def class_scores(self, query: Tensor, classes: int) -> Tensor | None:
        """Return a score of each of the first classes, ``[B, classes]``; None if it scores tasks alone.

        They have the same temperature as :meth:`scores`; soft routing uses them.
        """
        return None

    @torch.no_grad()
    def calibrate(self, context: TaskContext) -> None:
        """Fit the temperature to the task just learned; called only if the run uses probabilities.

        By default it observes some of the task's training images. A strategy that may have memorised them
        overrides this, and fits to samples of stored statistics or to images that it has held out.
        """
        seen = [info.index for info in context.history]
        # every so many batches, spread over the task: images of one class may stand together
        step = max(1, context.task.num_images // (_CALIBRATION_BATCH * _CALIBRATION_BATCHES))
        for number, batch in enumerate(context.statistics(_CALIBRATION_BATCH)):
            if number % step == 0:
                scores = self.scores(self.query(batch).float(), seen, context.task_of_class())
                self.temperature.observe(scores, seen.index(context.task.index))


class ClassRetrieval(RetrievalStrategy):
    """A retrieval strategy that scores classes and retrieves the task of the best one."""

    @abstractmethod
    def class_scores(self, query: Tensor, classes: int) -> Tensor:
        """Return a score of each of the first classes, ``[B, classes]``: the larger, the better."""

    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the score of the best class of each seen task, ``[B, len(seen)]``."""
        return best_of_task(self.class_scores(query, len(task_of_class)), task_of_class, seen)
