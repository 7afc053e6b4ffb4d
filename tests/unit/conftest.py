"""A hand-made stream of three tasks, to drive baselines of several families without the framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.phase import ParameterGroup, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.learning.phases import only_trainable
from lw2g.learning.protection import Protection
from lw2g.maths.moments import SecondMoment
from lw2g.pixels import heic
from lw2g.vit.backbone import Backbone
from lw2g_constraints.options import OrthogonalConfig
from lw2g_constraints.orthogonal import Orthogonal
from tasks import Sizes, build_of, task_context, tasks_of


@attrs.frozen(kw_only=True)
class Bench:
    """Three tasks of two classes and four images each, and a memory of their spaces."""

    backbone: Backbone
    build: BuildContext
    tasks: tuple[TaskInfo, ...]
    memory: SubspaceMemory

    def batch(self, index: int, backbone: Backbone | None = None) -> Batch:
        """All images of a task; its query costs a forward of the plain backbone."""
        size = self.backbone.fingerprint.image_size
        generator = torch.Generator().manual_seed(index)
        images = torch.randn(4, 3, size, size, generator=generator) + index
        return Batch(
            labels=torch.tensor(self.tasks[index].classes).repeat(2),
            samples=torch.arange(4),
            images=lambda: images,
            query=lambda: (backbone or self.backbone).features(images).detach(),
        )

    def probe_loss(self, baseline, batch: Batch, routing: Routing, index: int) -> Tensor:
        """The loss whose gradient is the evidence on a task."""
        return baseline.probe_loss(baseline.features(batch, routing), batch, self.tasks[index])

    def begin(
        self, baseline, pool: Pool, index: int, *, reuse: int | None = None, retrieval=None
    ) -> TaskContext:
        """Give the next task its set, as the framework does."""
        baseline.begin_task(self.tasks[index])
        new = baseline.new_set(baseline.source_of(pool)) if reuse is None else None
        pool.reuse(reuse) if new is None else pool.grow(new)
        context = self.context(pool, index, retrieval)
        if retrieval is not None:
            retrieval.begin_task(context)
        return context

    def begun(self, kind, config, tasks: int = 1, **others) -> tuple[Any, Pool, TaskContext]:
        """A baseline, its pool and the context of the last of some tasks, each with a set of its own."""
        baseline, pool = kind(config, self.build), Pool()
        for index in range(tasks):
            context = self.begin(baseline, pool, index, **others)
        return baseline, pool, context

    def context(self, pool: Pool, index: int, retrieval=None) -> TaskContext:
        """The context of a task that has its set."""
        return task_context(
            pool,
            self.tasks[: index + 1],
            retrieval=retrieval,
            memory=self.memory,
            pretrained_space=lambda site: None,
            backbone=self.backbone,
            statistics=lambda size: [self.batch(index)],
        )

    def learn(self, baseline, context: TaskContext, *, epochs: int = 2, sgd: float | None = None) -> None:
        """Run a task's phases under the orthogonal condition, with as few epochs as asked for.

        ``sgd`` replaces the phases' optimizers by SGD at that rate.
        """
        retrieval = context.retrieval
        own = retrieval.phases(context) if retrieval is not None else ()
        for phase in (*own, *baseline.phases(context)):
            if not isinstance(phase, TrainingPhase):
                phase.run(lambda done, total: None)
                continue
            if not phase.wanted():
                continue
            groups: Sequence[ParameterGroup] = ()
            if phase.host and retrieval is not None:
                groups = retrieval.parameter_groups(context, phase.groups[0].lr)
            self._train(baseline, attrs.evolve(phase, groups=(*phase.groups, *groups)), context, epochs, sgd)

    def _train(
        self, baseline, phase: TrainingPhase, context: TaskContext, epochs: int, sgd: float | None
    ) -> None:
        sites = baseline.sites(context.parameters) if phase.host else ()
        protection = Protection.for_task(
            [Orthogonal(OrthogonalConfig(), self.build)], sites, context, phase.trained
        )
        optimizer = torch.optim.SGD(phase.trained, lr=sgd) if sgd else phase.build_optimizer()
        modules = [module for module in (baseline, context.retrieval) if module is not None]
        with only_trainable([*modules, *context.pool.sets], phase.trained):
            for _ in range(min(epochs, phase.epochs)):
                batch = self.batch(context.task.index)
                loss = phase.step(batch).loss
                added = None
                if phase.host and context.retrieval is not None:
                    added = context.retrieval.loss(batch, context)
                optimizer.zero_grad()
                (loss if added is None else loss + added).backward()
                protection.after_backward()
                protection.before_step()
                optimizer.step()
                if phase.adjust is not None:
                    with torch.no_grad():
                        phase.adjust()
                protection.after_step()

    def inputs(self, baseline, context: TaskContext, block: int) -> Tensor:
        """Activations at a block's first site on the task's images, its set in force: ``[tokens, dim]``."""
        site = next(site for site in baseline.sites(context.parameters) if site.activation.tap.block == block)
        with torch.no_grad():
            routing = context.pool.force(context.set_id)
            batch = self.batch(context.task.index)
            seen = self.backbone.read([site.activation.tap], lambda: baseline.features(batch, routing))
        return seen[site.activation.tap].flatten(0, 1)

    def absorb(self, baseline, context: TaskContext) -> None:
        """Extend the spaces of the task's set by its activations."""
        for site in baseline.sites(context.parameters):
            moment = SecondMoment(self.backbone.dim)
            moment.update(self.inputs(baseline, context, site.activation.tap.block))
            self.memory.absorb(context.set_id, site, moment)


@pytest.fixture(scope="session")
def bench_of() -> Callable[[Backbone], Bench]:
    """Make a stream for a backbone, and set the global seed."""

    def make(backbone: Backbone) -> Bench:
        torch.manual_seed(1)
        return Bench(
            backbone=backbone,
            build=build_of(backbone, num_tasks=3, num_classes=6),
            tasks=tasks_of([2, 2, 2]),
            memory=SubspaceMemory(SpaceOptions(energy=0.9)),
        )

    return make


@pytest.fixture(scope="session")
def vit_b() -> Callable[..., BuildContext]:
    """Build contexts of ViT-B/16's sizes without a backbone, for counting parameters."""

    def build(num_tasks: int = 10, num_classes: int = 100) -> BuildContext:
        sizes = Sizes(dim=768, depth=12)
        return build_of(sizes, num_tasks=num_tasks, num_classes=num_classes)

    return build


@pytest.fixture
def without_heic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where pillow-heif is not installed."""
    monkeypatch.setattr(heic, "_is_installed", lambda: False)
