"""Retrieval strategies need no ViT: queries are given, contexts are made by hand."""

from __future__ import annotations

import attrs
import pytest
import torch

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from tasks import build_of, given_set, task_context, tasks_of

DIM = 8


@attrs.frozen(kw_only=True)
class World:
    """Four tasks of two classes whose queries lie in separate clouds."""

    build: BuildContext
    pool: Pool

    def queries(self, index: int, count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and labels of a task, balanced."""
        generator = torch.Generator().manual_seed(100 + index)
        labels = torch.arange(count) % 2 + 2 * index
        centres = 3 * torch.eye(DIM)[labels] + torch.eye(DIM)[index] * 2
        return centres + 0.2 * torch.randn(count, DIM, generator=generator), labels

    def batch(self, index: int) -> Batch:
        """Return the task's queries as a batch without images."""
        query, labels = self.queries(index)

        def no_images() -> torch.Tensor:
            raise AssertionError("retrieval must not read images")

        return Batch(labels=labels, samples=torch.arange(len(labels)), images=no_images, query=lambda: query)

    def begin(self, strategy, *, reuse: int | None = None) -> TaskContext:
        """Give the next task its set and tell the strategy."""
        index = len(self.pool.task_to_set)
        given_set(self.pool, reuse)
        context = task_context(
            self.pool,
            tasks_of([2] * (index + 1)),
            retrieval=strategy,
            memory=None,
            pretrained_space=None,
            backbone=self.build.backbone,
            statistics=lambda size: [self.batch(index)],
        )
        strategy.begin_task(context)
        return context

    def learn(self, strategy, context: TaskContext, steps: int = 100) -> None:
        """Run the strategy's own phases, then its part in a host phase."""
        batch = self.batch(context.task.index)
        for phase in strategy.phases(context):
            if not isinstance(phase, TrainingPhase):
                phase.run(lambda done, total: None)
                continue
            optimizer = phase.build_optimizer()
            for _ in range(steps):
                optimizer.zero_grad()
                phase.step(batch).loss.backward()
                optimizer.step()
        groups = strategy.parameter_groups(context, 0.05)
        if groups:
            optimizer = torch.optim.Adam([{"params": list(g.parameters), "lr": g.lr} for g in groups])
            for _ in range(steps):
                optimizer.zero_grad()
                strategy.loss(batch, context).backward()
                optimizer.step()


@pytest.fixture
def world() -> World:
    """Four tasks, an empty pool, a fixed global seed."""
    torch.manual_seed(0)
    return World(build=build_of(dim=DIM), pool=Pool())
