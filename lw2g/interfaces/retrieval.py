"""The contract of a retrieval strategy: which task's set a test sample gets, without being told the task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase, ParameterGroup, TrainingPhase

__all__ = ["RetrievalStrategy"]


class RetrievalStrategy(nn.Module, ABC):
    """Maps queries to task ids; the pool maps those to sets.

    A strategy is a module: its parameters and buffers (keys, centroids, a task-identity classifier) are what
    a checkpoint holds. Its query is the un-prompted feature, computed once per run, unless it learns a query
    of its own, which is then computed anew at every evaluation.

    Attributes:
        query_norm: Whether the run's un-prompted features are class tokens after the final norm (else
            before it).
        learned_query: Whether :meth:`query` reads the images, because it changes with what is learned.
    """

    query_norm: ClassVar[bool] = True
    learned_query: ClassVar[bool] = False

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self._context = context

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
        """Return what :meth:`retrieve` is asked with, ``[B, dim]``: the un-prompted features by default.

        It must depend on nothing but the images and the strategy's own state: never on labels, on sets, or on
        the rest of the batch.
        """
        return batch.query

    @abstractmethod
    def retrieve(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the task id of each query, ``[B]`` int64.

        Args:
            query: What :meth:`query` returned, ``[B, dim]`` float32.
            seen: The tasks seen so far.
            task_of_class: The task of each seen class, ``[C_seen]``.
        """
