"""A tiny frozen ViT and a hand-made stream of three tasks, to drive low-rank baselines by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import attrs
import pytest
import torch
from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.subspace import SecondMoment
from lw2g.testing.tiny import tiny_backbone
from lw2g.training.phases import only_trainable
from lw2g.training.protection import Protection
from lw2g.vit.backbone import Backbone
from lw2g_constraints.orthogonal import Orthogonal

CPU = torch.device("cpu")


@attrs.frozen(kw_only=True)
class Bench:
    """Three tasks of two classes and four images each, and a memory of their spaces."""

    backbone: Backbone
    build: BuildContext
    tasks: tuple[TaskInfo, ...]
    memory: SubspaceMemory

    def batch(self, index: int) -> Batch:
        """All images of a task."""
        generator = torch.Generator().manual_seed(index)
        images = torch.randn(4, 3, 16, 16, generator=generator) + index
        return Batch(
            labels=torch.tensor(self.tasks[index].classes).repeat(2),
            samples=torch.arange(4),
            images=lambda: images,
            query=lambda: self.backbone.features(images).detach(),
        )

    def begin(self, baseline, pool: Pool, index: int, *, reuse: int | None = None) -> TaskContext:
        """Give the next task its set, as the framework does."""
        baseline.begin_task(self.tasks[index])
        new = baseline.new_set(baseline.source_of(pool)) if reuse is None else None
        set_id = pool.reuse(reuse) if new is None else pool.grow(new)
        return TaskContext(
            task=self.tasks[index],
            history=self.tasks[: index + 1],
            pool=pool,
            set_id=set_id,
            grew=reuse is None,
            retrieval=None,
            backbone=self.backbone,
            device=CPU,
            seed=0,
            statistics=lambda size: [self.batch(index)],
        )

    def learn(self, baseline, context: TaskContext, *, sgd: float | None = None, steps: int = 3) -> None:
        """Run a task's phases under the orthogonal condition; ``sgd`` replaces Adam by SGD at that rate."""
        rules = ConstraintContext(task=context, memory=self.memory, pretrained_space=lambda site: None)
        for phase in baseline.phases(context):
            if not isinstance(phase, TrainingPhase):
                phase.run(lambda done, total: None)
                continue
            sites = baseline.sites(context.parameters)
            protection = Protection.for_task([Orthogonal()], sites, rules, phase.trained)
            optimizer = torch.optim.SGD(phase.trained, lr=sgd) if sgd else phase.build_optimizer()
            with only_trainable([baseline, *context.pool.sets], phase.trained):
                for _ in range(min(steps, phase.epochs)):
                    optimizer.zero_grad()
                    phase.step(self.batch(context.task.index)).loss.backward()
                    protection.after_backward()
                    protection.before_step()
                    optimizer.step()
                    protection.after_step()

    def inputs(self, baseline, context: TaskContext, block: int) -> Tensor:
        """Inputs of a block's qkv on the task's images, with its set in force: ``[tokens, dim]``."""
        site = next(site for site in baseline.sites(context.parameters) if site.tap.block == block)
        with torch.no_grad():
            routing = context.pool.force(context.set_id)
            batch = self.batch(context.task.index)
            seen = self.backbone.read([site.tap], lambda: baseline.features(batch, routing))
        return seen[site.tap].flatten(0, 1)

    def absorb(self, baseline, context: TaskContext) -> None:
        """Extend the spaces of the task's set by its activations."""
        for site in baseline.sites(context.parameters):
            moment = SecondMoment(self.backbone.dim)
            moment.update(self.inputs(baseline, context, site.tap.block))
            self.memory.absorb(context.set_id, site, moment)


@pytest.fixture
def bench() -> Bench:
    """A random ViT of six blocks and width 32, and the stream, with a fixed global seed."""
    torch.manual_seed(1)
    backbone = tiny_backbone()
    tasks = tuple(
        TaskInfo(
            index=index,
            classes=(2 * index, 2 * index + 1),
            class_names=("", ""),
            seen=2 * index + 2,
            num_images=4,
        )
        for index in range(3)
    )
    build = BuildContext(backbone=backbone, num_tasks=3, num_classes=6, device=CPU, seed=0)
    memory = SubspaceMemory(SpaceOptions(energy=0.9))
    return Bench(backbone=backbone, build=build, tasks=tasks, memory=memory)


@pytest.fixture
def vit_b() -> BuildContext:
    """ViT-B/16's sizes without a backbone, for counting parameters: ten tasks, 100 classes."""
    sizes = SimpleNamespace(dim=768, depth=12)
    return BuildContext(backbone=sizes, num_tasks=10, num_classes=100, device=CPU, seed=0)


@pytest.fixture
def moved() -> Callable[..., None]:
    """Give sets random values, so that they differ and their up factors are not zero."""

    def move(*sets: torch.nn.Module, scale: float = 0.2) -> None:
        for item in sets:
            for parameter in item.parameters():
                parameter.data = scale * torch.randn_like(parameter)

    return move


@pytest.fixture
def values() -> Callable[..., dict[str, Tensor]]:
    """Copy everything that some modules hold, to be compared later."""

    def copy(*modules: torch.nn.Module) -> dict[str, Tensor]:
        return {
            f"{place}.{name}": value.clone()
            for place, module in enumerate(modules)
            for name, value in module.state_dict().items()
        }

    return copy
