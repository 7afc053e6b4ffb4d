"""A tiny frozen ViT and hand-made streams, to drive single-set methods without the framework."""

from __future__ import annotations

import pytest
import torch

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import TrainingPhase
from lw2g_testing.tiny import tiny_backbone
from tasks import build_of, task_context, tasks_of


class Stream:
    """Tasks made of numbered classes; a class has the same images wherever it stands in the order."""

    def __init__(self, backbone, groups, per_class=5):
        self.backbone, self.per_class = backbone, per_class
        self.order = [number for group in groups for number in group]
        self.build = build_of(backbone, num_tasks=len(groups), num_classes=len(self.order))
        self.groups = [tuple(group) for group in groups]
        self.tasks = tasks_of(map(len, groups), images=per_class)

    def images(self, numbers):
        """Return noisy patterns, one pattern per class."""
        parts = []
        for number in numbers:
            generator = torch.Generator().manual_seed(number)
            pattern = 2 * torch.randn(3, 16, 16, generator=generator)
            parts.append(pattern + torch.randn(self.per_class, 3, 16, 16, generator=generator))
        return torch.cat(parts)

    def batch(self, numbers, rows=slice(None)):
        """Return images of some classes, or some of these images."""
        images = self.images(numbers)[rows]
        labels = torch.tensor([self.order.index(n) for n in numbers]).repeat_interleave(self.per_class)[rows]
        return Batch(
            labels=labels,
            samples=torch.arange(len(labels)),
            images=lambda: images,
            query=lambda: self.backbone.features(images).detach(),
        )

    def begin(self, baseline, pool, index, size=None):
        """Give the next task its set, as the framework does, and return its context."""
        baseline.begin_task(self.tasks[index])
        pool.reuse(0) if len(pool) else pool.grow(baseline.new_set(None))
        total = self.tasks[index].num_images
        parts = torch.split(torch.arange(total), size or total)
        return task_context(
            pool,
            self.tasks[: index + 1],
            backbone=self.backbone,
            statistics=lambda _: [self.batch(self.groups[index], part) for part in parts],
        )

    def learn(self, baseline, context, epochs=2):
        """Run the phases of a task, training phases on one batch with as few epochs as asked for."""
        for phase in baseline.phases(context):
            if not isinstance(phase, TrainingPhase):
                phase.run(lambda done, total: None)
                continue
            optimizer, batch = phase.build_optimizer(), self.batch(self.groups[context.task.index])
            for _ in range(epochs):
                optimizer.zero_grad()
                phase.step(batch).loss.backward()
                optimizer.step()
                if phase.adjust is not None:
                    with torch.no_grad():
                        phase.adjust()


@pytest.fixture(scope="session")
def tiny():
    """A random ViT of six blocks and width 32 whose features differ between images."""
    found = tiny_backbone()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        for parameter in found.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return found


@pytest.fixture(scope="session")
def stream_of(tiny):
    """Make a stream from groups of class numbers and set the global seed."""

    def make(groups, **options):
        torch.manual_seed(1)
        return Stream(tiny, groups, **options)

    return make
