"""Learning a task: collect evidence, decide, grow or reuse, train under constraints, absorb.

Read :meth:`Learner.learn` top to bottom: it is the whole protocol. A run adds evaluation, the record and
checkpoints; a dry run adds clocks. A trial goes through the training alone
(:class:`~lw2g.tasks.task_training.TaskTraining`).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from lw2g.base.checks import require_decision, require_mergeable
from lw2g.blocks.merging import merge_set
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.growth import Decision, Evidence, Grow, Merge, Reuse
from lw2g.models.expert import expert_of
from lw2g.tasks.evidence.collecting import collect_evidence, store_statistics, unmeasured
from lw2g.tasks.evidence.spaces import absorb_task
from lw2g.tasks.phases import held
from lw2g.tasks.protection import Protection
from lw2g.tasks.routing import learn_routing, learn_temperature
from lw2g.tasks.session import Session
from lw2g.tasks.state import Position
from lw2g.tasks.task_training import Observer, TaskTraining

__all__ = ["Learner"]


class Learner:
    """Learns one task of a session.

    Args:
        session: The run, which has learned the tasks before.
        index: The task.
        observer: Called as the task is learned.
        steps: How many optimizer steps each training phase takes at most; None: all of them.

    Attributes:
        images: The task's training images under the test transform.
    """

    def __init__(self, session: Session, index: int, observer: Observer, steps: int | None = None) -> None:
        self._session, self._index, self._observer, self._steps = session, index, observer, steps
        self._reporter = observer.reporter
        self.images = session.image_set([session.stream.tasks[index].train], train=False)
        self._moving = (
            self.images
            if session.transforms.train_is_deterministic
            else session.image_set(self.images.originals, train=True)
        )
        self._d_sub = session.d_sub(index, self.images)
        self._training: TaskTraining | None = None

    @property
    def protection(self) -> Protection:
        """The constraints at the sites that the host phases train; empty before these."""
        return Protection() if self._training is None else self._training.protection

    def learn(self, position: Position | None = None) -> TaskContext:
        """Learn the task, from its beginning or from a position within it, and return its context."""
        session, start = self._session, Position() if position is None else position
        torch.set_grad_enabled(True)  # a component may have switched it off
        if not start.within:
            session.begin_task(self._index)
            self._grow_or_reuse(self._evidence())
        context = session.task_context(self._index, self.images, self._d_sub)
        if not start.within:
            self._remember(context, "begin")
        self._training = TaskTraining(
            session,
            context,
            self._moving,
            self._observer,
            self._steps,
            after_hosts=partial(self._merge, context),
        )
        self._training.begin(resumed=start.within)
        self._training.run(start)
        self._learn_routing(context)
        session.merging.clear()
        self._absorb(context)
        self._remember(context, "end")
        return context

    def _evidence(self) -> Evidence:
        """Measure the live sets if the policy reads measures."""
        session = self._session
        if not session.collects_evidence or not len(session.pool):
            return unmeasured(session, self._index)
        self._reporter.begin(self._index, "evidence")
        with self._reporter.clock("evidence"):
            return collect_evidence(session, self._d_sub, self._reporter.advance)

    def _grow_or_reuse(self, evidence: Evidence) -> None:
        """Let the policy decide, and change the pool accordingly."""
        session, pool = self._session, self._session.pool
        decision: Decision = (
            (Reuse(0) if len(pool) else Grow())
            if session.fixed
            else require_decision(
                session.config.policy.name,
                session.policy.decide(evidence, session.generator(self._index)),
                pool,
            )
        )
        decision = self._merging(decision)
        match decision:
            case Grow():
                torch.manual_seed(session.seed_of(self._index, "new set"))
                set_id = pool.grow(session.new_set(session.baseline.source_of(pool)))
            case Reuse(set=chosen):
                set_id = pool.reuse(chosen)
                self._warn_if_full(chosen, evidence)
            case Merge(set=chosen, weight=weight):
                require_mergeable(session.baseline, session.config.baseline.name)
                set_id = pool.reuse(chosen)
                start = {name: value.detach().clone() for name, value in pool[chosen].named_parameters()}
                session.merging.update(start, weight=torch.tensor(weight))
        self._observer.decided(self._index, evidence, decision, set_id)

    def _merging(self, decision: Decision) -> Decision:
        """Return the decision, a merge in place of a reuse if the run is configured so.

        A merge by 1 is a reuse, whatever the head.
        """
        share, pool = self._session.config.growth.merge, self._session.pool
        if isinstance(decision, Merge) and decision.weight == 1:
            return Reuse(decision.set, confidence=decision.confidence)
        if share == 1 or not isinstance(decision, Reuse):
            return decision
        weight = 1 / (1 + len(pool.tasks_of(decision.set))) if share == "average" else float(share)
        return Merge(decision.set, weight, confidence=decision.confidence)

    def _merge(self, context: TaskContext) -> None:
        """Move the set from what it was towards what the task has trained, if that was decided."""
        start, newest = dict(self._session.merging), self._session.pool.newest
        if start and newest is not None and not held(context, self._session.constraints):
            self._observer.merged(merge_set(newest, start, float(start.pop("weight"))))

    def _warn_if_full(self, set_id: int, evidence: Evidence) -> None:
        full = [
            candidate.excluded
            for candidate in evidence.candidates
            if candidate.set == set_id and candidate.excluded
        ]
        if full:
            self._reporter.warn(f"set {set_id} goes on although excluded ({full[0]}): it can hardly learn")

    def _learn_routing(self, context: TaskContext) -> None:
        """Fit the mix of several sets' answers, or the temperature beside a frozen expert, where it is."""
        session, expert = self._session, expert_of(self._session.baseline)
        mixes, fits = session.mixer is not None, expert is not None and expert.temperature is not None
        if not mixes and not fits:
            return
        self._reporter.begin(self._index, "routing" if mixes else "temperature")
        with self._reporter.clock("training"):
            if mixes:
                learn_routing(session, context, self._reporter)
            else:
                learn_temperature(session, context)

    def _absorb(self, context: TaskContext) -> None:
        """Extend the spaces of old tasks by the finished one."""
        if not self._session.builds_spaces:
            return
        self._reporter.begin(self._index, "spaces")
        with self._reporter.clock("subspace"):
            absorb_task(self._session, context, self._d_sub, self._reporter.advance)
        self._observer.absorbed(context.set_id)

    def _remember(self, context: TaskContext, moment: Literal["begin", "end"]) -> None:
        """Let measures store what they compare later tasks with."""
        with self._reporter.clock("evidence"):
            store_statistics(self._session, context, self._d_sub, moment)
