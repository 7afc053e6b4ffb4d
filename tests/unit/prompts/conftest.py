"""A tiny frozen ViT and a hand-made stream of three tasks, to drive baselines without the framework."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import attrs
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.vit.backbone import Backbone

CPU = torch.device("cpu")


@attrs.frozen(kw_only=True)
class Bench:
    """Three tasks of two classes and four images each."""

    backbone: Backbone
    build: BuildContext
    tasks: tuple[TaskInfo, ...]

    def batch(self, index: int, backbone: Backbone | None = None) -> Batch:
        """All images of a task; its query costs a forward of the plain backbone."""
        generator = torch.Generator().manual_seed(index)
        images = torch.randn(4, 3, 32, 32, generator=generator) + index
        return Batch(
            labels=torch.tensor(self.tasks[index].classes).repeat(2),
            samples=torch.arange(4),
            images=lambda: images,
            query=lambda: (backbone or self.backbone).features(images).detach(),
        )

    def begin(
        self, baseline, pool: Pool, index: int, *, reuse: int | None = None, retrieval=None
    ) -> TaskContext:
        """Give the next task its set, as the framework does."""
        baseline.begin_task(self.tasks[index])
        new = baseline.new_set(baseline.source_of(pool)) if reuse is None else None
        set_id = pool.reuse(reuse) if new is None else pool.grow(new)
        context = TaskContext(
            task=self.tasks[index],
            history=self.tasks[: index + 1],
            pool=pool,
            set_id=set_id,
            grew=reuse is None,
            retrieval=retrieval,
            backbone=self.backbone,
            device=CPU,
            seed=0,
            statistics=lambda size: [self.batch(index)],
        )
        if retrieval is not None:
            retrieval.begin_task(context)
        return context

    def learn(self, baseline, context: TaskContext, epochs: int = 2) -> None:
        """Run all phases of a task, with as few epochs as asked for."""
        retrieval = context.retrieval
        own = retrieval.phases(context) if retrieval is not None else ()
        for phase in (*own, *baseline.phases(context)):
            if not isinstance(phase, TrainingPhase):
                phase.run(lambda done, total: None)
                continue
            groups = list(phase.groups)
            if phase.host and retrieval is not None:
                groups += retrieval.parameter_groups(context, phase.groups[0].lr)
            phase = attrs.evolve(phase, groups=tuple(groups))
            optimizer = phase.build_optimizer()
            for _ in range(min(epochs, phase.epochs)):
                batch = self.batch(context.task.index)
                loss = phase.step(batch).loss
                if phase.host and retrieval is not None:
                    added = retrieval.loss(batch, context)
                    loss = loss if added is None else loss + added
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


@pytest.fixture(scope="session")
def tiny_backbone() -> Backbone:
    """A random ViT of six blocks and width 48."""
    torch.manual_seed(0)
    size = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 6, "num_heads": 4, "num_classes": 0}
    return Backbone.wrap(VisionTransformer(**size), name="tiny random ViT")


@pytest.fixture
def bench(tiny_backbone: Backbone) -> Bench:
    """The tiny backbone and the stream, with a fixed global seed."""
    torch.manual_seed(1)
    tasks = tuple(
        TaskInfo(
            index=index,
            classes=(2 * index, 2 * index + 1),
            class_names=(f"c{2 * index}", f"c{2 * index + 1}"),
            seen=2 * index + 2,
            num_images=4,
        )
        for index in range(3)
    )
    build = BuildContext(backbone=tiny_backbone, num_tasks=3, num_classes=6, device=CPU, seed=0)
    return Bench(backbone=tiny_backbone, build=build, tasks=tasks)


@pytest.fixture(scope="session")
def vit_b() -> Callable[[int, int], BuildContext]:
    """Build contexts of ViT-B/16's sizes without a backbone, for counting parameters."""

    def build(num_tasks: int, num_classes: int) -> BuildContext:
        sizes = SimpleNamespace(dim=768, depth=12)
        return BuildContext(backbone=sizes, num_tasks=num_tasks, num_classes=num_classes, device=CPU, seed=0)

    return build
