"""A toy baseline with sites of every sort, on which constraints are checked with the tiny benchmark.

Nothing is trained: a constraint acts alike on any gradient and update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import attrs
import torch
from torch import Tensor, nn

from lw2g.config.resolve import resolve
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.phase import Phase, StepOutput
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.scope import SET_SHARED
from lw2g.interfaces.site import Activation, Site
from lw2g.testing.kit import Subject
from lw2g.testing.scene import begin
from lw2g.training.evidence.spaces import absorb_task
from lw2g.training.session import Session, open_session
from lw2g.vit.taps import Tap

__all__ = ["Stage", "WatchedMemory"]

_LENGTH, _LOW = 3, 4


class _ToySet(nn.Module):
    """A parameter set with a site of each sort: prefix keys, one of a stack, tokens, a low-rank factor."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.randn(_LENGTH, dim) / 8)
        self.stack = nn.Parameter(torch.randn(2, _LENGTH, dim) / 8)
        self.tokens = nn.Parameter(torch.randn(_LENGTH, dim) / 8)
        self.down = nn.Parameter(torch.randn(_LOW, dim) / 8)
        self.up = nn.Parameter(torch.randn(dim, _LOW) / 8)


@attrs.frozen(kw_only=True)
class _NoOptions:
    """Nothing to choose."""


class _Toy(Baseline):
    """Features are moved by the set's keys and by shared ones; the other parameters only have sites."""

    scope = SET_SHARED

    def __init__(self, config: _NoOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.key = nn.Parameter(torch.randn(_LENGTH, context.backbone.dim) / 8)
        self.head = nn.Linear(context.backbone.dim, context.num_classes)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        return _ToySet(self.context.backbone.dim)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        own = routing.select(lambda parameters: cast(_ToySet, parameters).key)
        return self.context.backbone.features(batch.images) + own.mean(dim=-2) + self.key.mean(dim=0)

    def logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        return ()

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        own = cast(_ToySet, parameters)
        into = Activation(tap=Tap(0, "attn_in"))
        behind = Activation(tap=Tap(0, "attn_in"), map=lambda: own.down, cut="map")
        stack = Activation(tap=Tap(1, "attn_in"))
        return (
            Site(name="blocks.0.prefix_key", parameter=own.key, activation=Activation(tap=Tap(0, "query"))),
            Site(name="blocks.1.stack", parameter=own.stack, index=(1,), activation=stack, soft=False),
            Site(name="blocks.1.tokens", parameter=own.tokens, activation=Activation(tap=Tap(1, "block_in"))),
            Site(name="blocks.0.lora_down", parameter=own.down, activation=into),
            Site(name="blocks.0.lora_up", parameter=own.up, activation=behind),
        )

    def shared_sites(self) -> Sequence[Site]:
        tap = Activation(tap=Tap(1, "query"))
        return (Site(name="blocks.1.prefix_key", parameter=self.key, activation=tap, owner="shared"),)


class WatchedMemory(SubspaceMemory):
    """A memory that notes whether it was read."""

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
class Stage:
    """A session that a constraint is led through: the first task grows a set, the second reuses it.

    Attributes:
        session: The session.
        memory: Spaces of old tasks.
    """

    session: Session
    memory: WatchedMemory

    @classmethod
    def open(cls, subject: Subject) -> Stage:
        """Return a session before its first task; always the same one."""
        component = BaselineComponent(
            name="toy", config=_NoOptions, build=_Toy, retrieval="key-cosine", summary="for tests"
        )
        entries = subject.catalogue.entries
        toy = attrs.evolve(entries["benchmark", "tiny"], component=component)
        catalogue = attrs.evolve(subject.catalogue, entries={**entries, ("baseline", "toy"): toy})
        resolved = resolve(
            catalogue,
            overrides={"growth.images": 16, "backbone.depth": 2, "backbone.spread": 0.1},
            baseline="toy",
            policy="always",
            constraints=[],
            benchmark="tiny",
            backbone="tiny",
        )
        session = open_session(resolved.config, catalogue)
        memory = WatchedMemory(session.memory.options)
        return cls(session=attrs.evolve(session, memory=memory), memory=memory)

    def tasks(self, constraint: Constraint, *, bare: bool) -> Iterator[TaskContext]:
        """Yield what constraints are told of each task, which is absorbed afterwards.

        Args:
            constraint: Absorbs it, too, where it asks for it.
            bare: Whether the baseline has no retrieval strategy.
        """
        session = attrs.evolve(self.session, constraints={"checked": constraint})
        for index, task in enumerate(session.stream.tasks):
            context = begin(session, index)
            d_sub = session.d_sub(index, session.image_set([task.train], train=False))
            if bare:
                context = attrs.evolve(context, retrieval=None)
            yield context
            absorb_task(session, context, d_sub)

    def sites(self, context: TaskContext) -> tuple[Site, ...]:
        """Return the sites that the task trains."""
        baseline = self.session.baseline
        return (*baseline.sites(context.parameters), *baseline.shared_sites())

    def step(self, context: TaskContext) -> tuple[Batch, StepOutput]:
        """Return a batch and what the host's step gives for it, features with a gradient to the set."""
        batch = next(iter(context.statistics(4)))
        for site in self.sites(context):
            site.parameter.requires_grad_(True)
        with torch.enable_grad():
            features = self.session.baseline.features(batch, self.session.pool.force(context.set_id))
        return batch, StepOutput(loss=features.square().mean(), features=features)
