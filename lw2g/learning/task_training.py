"""Training on one task that has its set: the phases of retrieval strategy and baseline, under constraints.

A run, a trial, a dry run and the contract kit train by this module. They differ in the number of steps a
phase, and in their :class:`Observer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import nn

from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.growth import Decision, Evidence
from lw2g.interfaces.phase import Phase, TrainingPhase
from lw2g.learning.finite import refusing_nan
from lw2g.learning.phases import PhaseProgress, is_frozen, only_trainable, train_phase
from lw2g.learning.protection import Protection
from lw2g.learning.session_parts import RunParts
from lw2g.learning.state import Position
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.progress import Reporter

__all__ = ["Observer", "TaskTraining"]


class Observer:
    """Observes how a task is learned. The base class keeps the clocks; a run also writes files.

    Attributes:
        reporter: Keeps the clocks and passes events to listeners.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def decided(self, index: int, evidence: Evidence, decision: Decision, set_id: int) -> None:
        """Called when a task has its set, with the evidence."""

    def planned(self, context: TaskContext, hosts: Sequence[TrainingPhase]) -> None:
        """Called before a task's first phase with its host phases, joined by retrieval and constraints."""

    def during(self, phase: Phase) -> AbstractContextManager[object]:
        """Return the context manager that a phase runs within."""
        return nullcontext()

    def after_step(self, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Called after a step, except an epoch's last; may raise to stop there."""

    def after_epoch(self, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Called after an epoch; may raise to stop there."""

    def trained(self, images: int) -> None:
        """Called after a phase with the number of images that it trained on."""

    def merged(self, lost: float) -> None:
        """Called when a task's set is merged, with the share of its low-rank energy that the rank loses."""

    def absorbed(self, set_id: int) -> None:
        """Called when a task with this set has extended the spaces of old tasks."""


class TaskTraining:
    """Trains on one task, from the beginning or from a position.

    Args:
        parts: The run.
        context: The task, which has its set.
        images: Its training images under the training transform.
        observer: Called at every step.
        steps: How many optimizer steps each training phase takes at most; None: all of them.
        after_hosts: Called when the last host phase ends.

    Attributes:
        protection: The constraints at the sites that the host phases train; empty before these.
    """

    def __init__(
        self,
        parts: RunParts,
        context: TaskContext,
        images: ImageSet,
        observer: Observer,
        steps: int | None = None,
        after_hosts: Callable[[], None] = lambda: None,
    ) -> None:
        self._parts = parts
        self._context = context
        self._images = images
        self._observer = observer
        self._steps = steps
        self._after_hosts = after_hosts
        self.protection = Protection()

    def begin(self, *, resumed: bool = False) -> None:
        """Tell retrieval and constraints that the task begins; after a resume, the constraints alone."""
        parts = self._parts
        if parts.retrieval is not None and not resumed:
            torch.manual_seed(parts.seed_of(self._context.task.index, "retrieval"))
            parts.retrieval.begin_task(self._context)
        with self._observer.reporter.clock("subspace"):
            for constraint in parts.constraints.values():
                constraint.begin_task(self._context)

    def run(self, position: Position | None = None, *, to_hosts: bool = False) -> None:
        """Run the phases in order.

        Args:
            position: Where to go on; None: at the first phase.
            to_hosts: Whether to stop after the last host phase; without a host phase, nothing runs then.
        """
        parts = self._parts
        context = self._context
        reporter = self._observer.reporter
        start = Position() if position is None else position
        torch.set_grad_enabled(True)  # an earlier component may have switched it off
        phases = parts.phases(context)
        hosts: dict[int, TrainingPhase] = {}
        first_trained = None  # of the run: the number of its first training phase
        for number, (_, phase) in enumerate(phases):
            if not isinstance(phase, TrainingPhase):
                continue
            if first_trained is None and context.task.index == 0:
                first_trained = number
            if phase.host:
                hosts[number] = phase
        if hosts:
            parts.require_several_classes(context.task.index)
        if to_hosts:
            phases = phases[: max(hosts, default=-1) + 1]
        # sites are protected at the first host phase, or where a resume begins behind it; never without one
        protect_at = max(min(hosts, default=len(phases)), start.phase)
        self._observer.planned(context, list(hosts.values()))
        reporter.plan({phase.name: phase.epochs for _, phase in phases})
        for number, (owner, phase) in enumerate(phases):
            if number < start.phase:
                continue
            if number == protect_at:
                # protected here and not earlier: a phase before this one may design the set (InfLoRA)
                self._protect(list(hosts.values()), start)
            begin = start.progress if number == start.phase else PhaseProgress()
            done = begin.epoch / phase.epochs if phase.epochs else 0.0
            reporter.begin(context.task.index, phase.name, done)
            with reporter.clock("training"), self._observer.during(phase):
                if isinstance(phase, TrainingPhase):
                    self._train(phase, number, owner, begin, untrained=number == first_trained)
                else:
                    # a resume repeats all of it, and has to draw the same
                    torch.manual_seed(parts.seed_of(context.task.index, phase.name))
                    with refusing_nan(parts.learning(context.set_id), owner, phase, context.task.index):
                        phase.run(partial(reporter.advance, unit=phase.counts))
            if number == max(hosts, default=-1):
                self._after_hosts()
        if not is_frozen(context, parts.constraints):
            # its features are others now; what was cached of them is stale
            parts.pool.touch(context.set_id)

    def _protect(self, hosts: Sequence[TrainingPhase], position: Position) -> None:
        """Gather the constraints' rules at the sites that the host phases train."""
        baseline = self._parts.baseline
        trained: list[nn.Parameter] = []
        for phase in hosts:
            trained += phase.trained
        with self._observer.reporter.clock("subspace"):
            self.protection = Protection.for_task(
                list(self._parts.constraints.values()),
                [*baseline.sites(self._context.parameters), *baseline.shared_sites()],
                self._context,
                trained,
            )
        if position.protection:
            # the spaces and the start of the task as they were: computed again they may differ in a bit
            self.protection.load_state_dict(position.protection)

    def _train(
        self, phase: TrainingPhase, number: int, owner: str, begin: PhaseProgress, *, untrained: bool
    ) -> None:
        """Run one training phase."""
        index = self._context.task.index
        observer = self._observer

        def at_position(see: Callable[[torch.optim.Optimizer, Position], None]) -> Callable[..., None]:
            """Return what calls an observer with the place in the whole run in place of that in the phase."""
            return lambda optimizer, at: see(
                optimizer, Position(task=index, within=True, phase=number, progress=at)
            )

        with only_trainable(self._parts.learning(self._context.set_id), phase.trained):
            images = train_phase(
                phase,
                self._context,
                self._images,
                owner=owner,
                engine=self._parts.engine,
                protection=self.protection,
                reporter=observer.reporter,
                progress=begin,
                after_step=at_position(observer.after_step),
                after_epoch=at_position(observer.after_epoch),
                steps=self._steps,
                untrained=untrained,
            )
        observer.trained(images)
