"""Learning a task: collect evidence, decide, grow or reuse, train under constraints, absorb.

Read :meth:`Learner.learn` top to bottom: it is the whole protocol. A run adds evaluation, the record and
checkpoints; a dry run adds clocks. A trial goes through the training alone
(:class:`~lw2g.learning.task_training.TaskTraining`).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from lw2g.blocks.merging import merge_set
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.growth import Decision, Evidence, Grow, Merge, Reuse
from lw2g.learning.evidence.collecting import collect_evidence, has_sites, store_statistics, unmeasured
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.evidence.trial import Trials
from lw2g.learning.phases import is_frozen
from lw2g.learning.protection import Protection
from lw2g.learning.routing import learn_routing, learn_temperature
from lw2g.learning.session import Session
from lw2g.learning.state import Position
from lw2g.learning.task_training import Observer, TaskTraining
from lw2g.model.frozen_expert import expert_of
from lw2g.runtime import ranks
from lw2g.runtime.console import listed
from lw2g.runtime.returned import require_decision, require_mergeable

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
        self._session = session
        self._parts = session.parts
        self._index = index
        self._observer = observer
        self._steps = steps
        self._reporter = observer.reporter
        data = session.data
        self.images = data.image_set([data.stream.tasks[index].train], train=False)
        self._moving = self.images
        if not data.transforms.train_is_deterministic:
            self._moving = data.image_set(self.images.originals, train=True)
        self._evidence_sample = self._parts.evidence_sample(index, self.images)
        self._trials = partial(Trials, session, self._evidence_sample, steps)
        self._training: TaskTraining | None = None

    @property
    def protection(self) -> Protection:
        """The constraints at the sites that the host phases train; empty before these."""
        return Protection() if self._training is None else self._training.protection

    def learn(self, position: Position | None = None) -> TaskContext:
        """Learn the task, from its beginning or from a position within it, and return its context."""
        start = Position() if position is None else position
        torch.set_grad_enabled(True)  # a component may have switched it off
        if not start.within:
            self._parts.begin_task(self._index)
            self._grow_or_reuse(self._evidence())
        # within the task, its set is in the pool already
        context = self._session.task_context(self._index, self.images, self._evidence_sample)
        if not start.within:
            self._remember(context, "begin")
        self._training = TaskTraining(
            self._parts,
            context,
            self._moving,
            self._observer,
            self._steps,
            after_hosts=partial(self._merge, context),
        )
        self._training.begin(resumed=start.within)
        self._training.run(start)
        self._learn_routing(context)
        self._parts.merging.clear()
        # after everything that moves the set: spaces and statistics describe it as it will answer
        self._absorb(context)
        self._remember(context, "end")
        return context

    def _evidence(self) -> Evidence:
        """Measure the live sets if the policy reads measures."""
        parts = self._parts
        if not parts.growth.collects_evidence or not len(parts.pool):
            return unmeasured(parts, self._index)
        self._reporter.begin(self._index, "evidence")
        with self._reporter.clock("evidence"):
            return collect_evidence(parts, self._evidence_sample, self._reporter.advance, self._trials)

    def _tell_if_no_sites(self, evidence: Evidence, decision: Decision) -> None:
        """Tell once a run that a set was grown without evidence, where there is no site to measure."""
        parts = self._parts
        measured = any(candidate.measures for candidate in evidence.candidates)
        asked = parts.growth.collects_evidence and evidence.candidates
        if measured or not asked or not isinstance(decision, Grow) or has_sites(parts):
            return
        text = (
            f"{parts.config.baseline.name} declares no sites: nothing was measured, so "
            f"`{parts.config.policy.name}` grows at every task"
        )
        idle = [name for name, constraint in parts.constraints.items() if _needs_sites(constraint)]
        if idle:
            text += f", and {listed(idle)} protect{'s' if len(idle) == 1 else ''} nothing"
        if not ranks.number():  # further ranks would say the same
            self._reporter.note_once(text)

    def _grow_or_reuse(self, evidence: Evidence) -> None:
        """Let the policy decide, and change the pool accordingly."""
        parts = self._parts
        pool = parts.pool
        decision = self._with_merge(self._decision(evidence))
        self._tell_if_no_sites(evidence, decision)
        match decision:
            case Grow():
                # seeded by the task alone, so that the set is the same whatever was measured before
                torch.manual_seed(parts.seed_of(self._index, "new set"))
                set_id = pool.grow(parts.new_set(parts.baseline.source_of(pool)))
            case Reuse(set=chosen, held=held):
                set_id = pool.reuse(chosen)
                if held:  # ``holds_set`` tells phases: the set answers for the task, and is not trained
                    parts.merging["held"] = torch.tensor(True)
                else:
                    self._warn_if_full(chosen, evidence)
            case Merge(set=chosen, weight=weight):
                require_mergeable(parts.baseline, parts.config.baseline.name)
                set_id = pool.reuse(chosen)
                start = {name: value.detach().clone() for name, value in pool[chosen].named_parameters()}
                parts.merging.update(start, weight=torch.tensor(weight))
        self._observer.decided(self._index, evidence, decision, set_id)

    def _decision(self, evidence: Evidence) -> Decision:
        """Return what the policy decides; of a fixed baseline, that there is one set."""
        parts = self._parts
        if parts.growth.fixed:
            return Reuse(0) if len(parts.pool) else Grow()
        decision = parts.growth.policy.decide(evidence, parts.generator(self._index))
        return require_decision(parts.config.policy.name, decision, parts.pool)

    def _with_merge(self, decision: Decision) -> Decision:
        """Return the decision; a merge in place of a reuse where ``growth.merge`` asks for one.

        A merge by 1, which takes up all that the task trains, is a reuse, and needs no head that can merge.
        """
        asked = self._parts.config.growth.merge  # a weight from 0 to 1, or "average"
        if isinstance(decision, Merge) and decision.weight == 1:
            return Reuse(decision.set, confidence=decision.confidence)
        if asked == 1 or not isinstance(decision, Reuse) or decision.held:
            return decision
        if asked == "average":
            # one part in as many as there are states of the set: one per task so far, and this task's
            weight = 1 / (1 + len(self._parts.pool.tasks_of(decision.set)))
        else:
            weight = float(asked)
        return Merge(decision.set, weight, confidence=decision.confidence)

    def _merge(self, context: TaskContext) -> None:
        """Move the set from what it was towards what the task has trained, if that was decided."""
        start = dict(self._parts.merging)
        newest = self._parts.pool.newest
        if start and newest is not None and not is_frozen(context, self._parts.constraints):
            self._observer.merged(merge_set(newest, start, float(start.pop("weight"))))

    def _warn_if_full(self, set_id: int, evidence: Evidence) -> None:
        for candidate in evidence.candidates:
            if candidate.set == set_id and candidate.excluded:
                self._reporter.warn(
                    f"set {set_id} goes on although excluded ({candidate.excluded}): it can hardly learn"
                )
                return

    def _learn_routing(self, context: TaskContext) -> None:
        """Fit the mix of several sets' answers, or the temperature of a head with a frozen expert, if any."""
        expert = expert_of(self._parts.baseline)
        mixes = self._parts.mixer is not None
        fits = expert is not None and expert.temperature is not None
        if not mixes and not fits:
            return
        self._reporter.begin(self._index, "routing" if mixes else "temperature")
        with self._reporter.clock("training"):
            images = self._session.data.held_back_images(self._index)
            if mixes:
                learn_routing(self._parts, context, images, self._reporter)
            elif images is not None:
                learn_temperature(self._parts, context, images)

    def _absorb(self, context: TaskContext) -> None:
        """Extend the spaces of old tasks by the finished one."""
        if not self._parts.builds_spaces:
            return
        self._reporter.begin(self._index, "spaces")
        with self._reporter.clock("subspace"):
            absorb_task(self._parts, context, self._evidence_sample, self._reporter.advance)
        self._observer.absorbed(context.set_id)

    def _remember(self, context: TaskContext, moment: Literal["begin", "end"]) -> None:
        """Let measures store what they compare later tasks with."""
        with self._reporter.clock("evidence"):
            store_statistics(self._parts, context, self._evidence_sample, moment, self._trials)


def _needs_sites(constraint: Constraint) -> bool:
    """Whether all that a constraint does is to restrict sites: it adds no loss and freezes no set."""
    made = type(constraint)
    return made.extra_loss is Constraint.extra_loss and made.holds is Constraint.holds
