"""Three toy tasks around a constraint: sites of every sort, activations of low rank, keys and features.

The first task grows a set, the second reuses it, the third grows another one; a shared site lives through
all. Nothing is trained: what a constraint does with gradients and updates shows on any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor, nn

from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import Constraint, ConstraintContext
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.site import Activation, Site
from lw2g.testing.tiny import tiny_backbone
from lw2g.vit.taps import Tap

__all__ = ["TASKS", "ConstraintStage", "WatchedMemory"]

TASKS = 3
_ROWS, _RANK, _LOW = 40, 5, 4
_CPU = torch.device("cpu")


class ToySet(nn.Module):
    """A parameter set with a site of each sort: prefix keys, one of a stack, tokens, a low-rank factor."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.randn(3, dim) / 8)
        self.stack = nn.Parameter(torch.randn(2, 3, dim) / 8)
        self.tokens = nn.Parameter(torch.randn(3, dim) / 8)
        self.down = nn.Parameter(torch.randn(_LOW, dim) / 8)
        self.up = nn.Parameter(torch.randn(dim, _LOW) / 8)

    def sites(self) -> tuple[Site, ...]:
        """Return all sites of the set."""
        return (
            Site(name="blocks.0.prefix_key", parameter=self.key, activation=Activation(tap=Tap(0, "query"))),
            Site(
                name="blocks.1.stack",
                parameter=self.stack,
                index=(1,),
                activation=Activation(tap=Tap(1, "attn_in")),
                soft=False,
            ),
            Site(
                name="blocks.1.tokens", parameter=self.tokens, activation=Activation(tap=Tap(1, "block_in"))
            ),
            Site(
                name="blocks.0.lora_down", parameter=self.down, activation=Activation(tap=Tap(0, "attn_in"))
            ),
            Site(
                name="blocks.0.lora_up",
                parameter=self.up,
                activation=Activation(tap=Tap(0, "attn_in"), map=lambda: self.down, cut="map"),
            ),
        )


class ToyKeys(RetrievalStrategy):
    """One learned key per task, for constraints that act on keys."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__(context)
        rows = torch.randn(context.num_tasks, context.backbone.dim)
        self.rows = nn.ParameterList(nn.Parameter(row) for row in rows)

    def keys(self, context: TaskContext) -> Tensor:
        """Return the key of the context's task, ``[1, dim]``."""
        key: Tensor = self.rows[context.task.index][None]
        return key

    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the product with each seen task's key."""
        return query @ torch.stack(list(self.rows))[list(seen)].T


class WatchedMemory(SubspaceMemory):
    """A memory that knows whether it was read."""

    was_read = False

    def space(self, set_id: int | None, site: Site) -> Subspace | None:
        """Return the space, and take note."""
        self.was_read = True
        return super().space(set_id, site)

    def ranks(self, owner: int | str) -> dict[str, int]:
        """Return the ranks, and take note."""
        self.was_read = True
        return super().ranks(owner)


@attrs.frozen(kw_only=True, eq=False)
class ConstraintStage:
    """A toy run that a constraint is led through.

    Attributes:
        build: What the constraint is built with.
        pool: Grows as tasks begin.
        shared: A site of parameters that all tasks share.
        memory: Spaces of old tasks.
        retrieval: Keys.
    """

    build: BuildContext
    pool: Pool
    shared: Site
    memory: WatchedMemory
    retrieval: ToyKeys

    @classmethod
    def make(cls) -> ConstraintStage:
        """Return a run before its first task; always the same one."""
        backbone = tiny_backbone(depth=2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            build = BuildContext(
                backbone=backbone, num_tasks=TASKS, num_classes=2 * TASKS, device=_CPU, seed=0
            )
            common = nn.Parameter(torch.randn(3, backbone.dim) / 8)
            return cls(
                build=build,
                pool=Pool(),
                shared=Site(
                    name="blocks.1.prefix_key",
                    parameter=common,
                    activation=Activation(tap=Tap(1, "query")),
                    owner="shared",
                ),
                memory=WatchedMemory(SpaceOptions(energy=0.9)),
                retrieval=ToyKeys(build),
            )

    def begin(self, index: int) -> ConstraintContext:
        """Give a task its set and return what constraints are told."""
        if index == 1:
            self.pool.reuse(0)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(10 + index)
                self.pool.grow(ToySet(self.build.backbone.dim))
        return self.context(index)

    def context(self, index: int) -> ConstraintContext:
        """Return what constraints are told of the newest task."""
        infos = tuple(_info(task) for task in range(index + 1))
        set_id = self.pool.task_to_set[index]
        context = TaskContext(
            task=infos[-1],
            history=infos,
            pool=self.pool,
            set_id=set_id,
            grew=index != 1,
            retrieval=self.retrieval,
            backbone=self.build.backbone,
            device=_CPU,
            seed=0,
            statistics=lambda size: [self.batch(infos[-1])],
        )
        return ConstraintContext(
            task=context,
            memory=self.memory,
            pretrained_space=lambda site: self._pretrained(site, index),
        )

    def sites(self, context: ConstraintContext) -> tuple[Site, ...]:
        """Return the sites that the task trains."""
        parameters = context.task.parameters
        own = parameters.sites() if isinstance(parameters, ToySet) else ()
        return (*own, self.shared)

    def finish(self, constraint: Constraint, context: ConstraintContext) -> None:
        """Let the memory, and the constraint where it asks for it, absorb the task."""
        moments = self.moments(context)
        for site in sorted(self.sites(context), key=lambda site: site.activation.is_image):
            owner = None if site.owner == "shared" else context.task.set_id
            self.memory.absorb(owner, site, moments[site.activation.tap])
        for site in self.sites(context) if constraint.absorbs else ():
            constraint.absorb(site, moments[site.activation.tap], context)

    def moments(self, context: ConstraintContext) -> Mapping[Tap, SecondMoment]:
        """Return the second moments of the task's activations at all taps."""
        taps = {site.activation.tap for site in self.sites(context)}
        return {tap: self._moment(tap, context.task.task.index) for tap in taps}

    def batch(self, task: TaskInfo) -> Batch:
        """Return four images of a task; their query is random."""
        generator = torch.Generator().manual_seed(100 + task.index)
        size, dim = self.build.backbone.image_size, self.build.backbone.dim
        images = torch.randn(4, 3, size, size, generator=generator)
        query = torch.randn(4, dim, generator=generator)
        return Batch(
            labels=torch.tensor(task.classes).repeat(2),
            samples=torch.arange(4),
            images=lambda: images,
            query=lambda: query,
        )

    def step(self, context: ConstraintContext) -> tuple[Batch, StepOutput]:
        """Return a batch and what the host's step gives for it, features with a gradient to the set."""
        batch = self.batch(context.task.task)
        features = (
            batch.query + self.sites(context)[0].parameter.mean(dim=0) + self.shared.parameter.mean(dim=0)
        )
        return batch, StepOutput(loss=features.square().mean(), features=features)

    def _pretrained(self, site: Site, index: int) -> Subspace:
        moment = self._moment(site.activation.tap, index)
        return site.activation.space(moment, SpaceOptions(energy=0.9).build)

    def _moment(self, tap: Tap, index: int) -> SecondMoment:
        backbone = self.build.backbone
        generator = torch.Generator().manual_seed(1000 + 10 * index + 2 * tap.block + (tap.kind == "query"))
        directions = torch.randn(_RANK, backbone.dim, generator=generator)
        moment = SecondMoment(backbone.dim, backbone.heads if tap.kind == "query" else 1)
        moment.update(torch.randn(_ROWS, _RANK, generator=generator) @ directions)
        return moment


def _info(index: int) -> TaskInfo:
    classes = (2 * index, 2 * index + 1)
    names = tuple(f"toy {position}" for position in classes)
    return TaskInfo(index=index, classes=classes, class_names=names, seen=classes[-1] + 1, num_images=4)
