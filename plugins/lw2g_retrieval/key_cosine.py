"""Learned prompt keys, matched by cosine similarity (L2P, DualPrompt, S-Prompt++)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import Batch, BuildContext, ParameterGroup, RetrievalStrategy, TaskContext
from lw2g_retrieval.options import KeyCosineConfig

__all__ = ["KeyCosine"]


class KeyCosine(RetrievalStrategy):
    """One key per task (or set); the nearest key by cosine names the task.

    The key of the current task is pulled towards its un-prompted features by
    ``-pull * mean cos(query, key)``; all other keys are frozen. All keys are allocated at once so that the
    state dict keeps its shape, but only keys of seen tasks are ever candidates.
    """

    def __init__(self, config: KeyCosineConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.votes = config.vote == "batch"
        dim = context.backbone.width
        self.key = nn.ParameterList()
        for _ in range(context.num_tasks):
            self.key.append(nn.Parameter(torch.empty(dim).uniform_(-1, 1)))
        self._keys = tuple(self.key)  # a ParameterList looks each entry up by name: many times the time
        self.set_of_task: Tensor
        self.register_buffer("set_of_task", torch.zeros(context.num_tasks, dtype=torch.long))
        self.to(context.device)

    def begin_task(self, context: TaskContext) -> None:
        """Note the task's set; on reuse the task's own key starts from the newest key of that set."""
        self.set_of_task[context.task.index] = context.set_id
        earlier = [task for task in context.pool.tasks_of(context.set_id) if task < context.task.index]
        if earlier and self.config.keys == "per-task":
            # as in LW2G's code, where a reused set's key goes on from its last task
            with torch.no_grad():
                self.key[context.task.index].copy_(self.key[earlier[-1]])

    def parameter_groups(self, context: TaskContext, lr: float) -> Sequence[ParameterGroup]:
        """Train the task's key, unless nothing pulls it."""
        if not self.config.pull:
            return ()
        return (ParameterGroup(parameters=(self._current(context),), lr=lr * self.config.lr_factor),)

    def loss(self, batch: Batch, context: TaskContext) -> Tensor | None:
        """Return ``-pull * mean cos(query, key)``; it reaches the forced key only."""
        if not self.config.pull:
            return None
        # the query is of the frozen backbone: the key comes to the images, never the images to the key
        similarity = functional.cosine_similarity(batch.query.detach(), self._current(context)[None], dim=-1)
        return -self.config.pull * similarity.mean()

    def keys(self, context: TaskContext) -> Tensor:
        """Return the task's key, ``[1, dim]`` with gradient."""
        return self._current(context)[None]

    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the cosine to the key of each seen task, ``[B, len(seen)]``, or the batch's votes for it."""
        tasks = torch.as_tensor(tuple(seen), dtype=torch.long, device=query.device)
        sets = self.set_of_task[tasks]
        owners = tasks  # whose keys are compared: one of each task
        if self.config.keys == "per-set":
            owners = sets
        # of seen tasks alone: the released code lets keys of tasks to come win, too
        keys = functional.normalize(torch.stack(self._keys), dim=-1)[owners]
        cosines = functional.normalize(query, dim=-1) @ keys.T
        if self.config.vote == "batch":
            # each image votes for the set of its nearest key, as released, not for the key's task
            votes = torch.bincount(sets[cosines.argmax(dim=-1)], minlength=int(sets.max()) + 1)
            return votes[sets].to(cosines).expand(len(query), -1)
        return cosines

    def _current(self, context: TaskContext) -> nn.Parameter:
        if self.config.keys == "per-task":
            return cast(nn.Parameter, self.key[context.task.index])
        return cast(nn.Parameter, self.key[context.set_id])
