"""The run: for each task collect evidence, decide, grow or reuse, train under constraints, absorb, evaluate.

Read :meth:`Run._learn` top to bottom: it is the whole protocol. Everything before and after it is opening a
session, going on from a checkpoint, and writing down what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from lw2g.config.resolve import Resolved
from lw2g.config.toml import dump_resolved, to_mapping
from lw2g.errors import DataError
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.evidence import Moment
from lw2g.interfaces.growth import Evidence, Grow, Reuse
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.tracker import RunEnded, RunStarted, TaskDecided, TaskEvaluated, Tracker
from lw2g.training import ranks
from lw2g.training.boundary import Frozen
from lw2g.training.costs.flops import count_flops
from lw2g.training.evaluation.answers import require_decision
from lw2g.training.evaluation.routing import learn_routing
from lw2g.training.evidence.collecting import collect_evidence, store_statistics, unmeasured
from lw2g.training.evidence.probe import Probe
from lw2g.training.evidence.spaces import absorb_task
from lw2g.training.files.checkpoint import Checkpoint, CheckpointStore
from lw2g.training.files.ledger import Ledger, build_record
from lw2g.training.files.record import RunDirectory, samples_name
from lw2g.training.files.sealed import sha256_of
from lw2g.training.files.state import Position, beginning, position_of, require_same, restore, snapshot
from lw2g.training.goal import require_goal
from lw2g.training.images.image_set import ImageSet
from lw2g.training.phases import PhaseProgress, held, hosted, only_trainable, train_phase
from lw2g.training.progress import Interrupted, Reporter, StopRequest
from lw2g.training.protection import Protection
from lw2g.training.session import Session

__all__ = ["Run"]


class Run:
    """One experiment under way.

    Args:
        resolved: What is run.
        session: What it is run with.
        files: Where it is written down.
        store: Its checkpoints.
        stop: Whether it is asked to stop.
        others: The further ranks; None: there are none, or this is one.

    Attributes:
        resolved: The same.
    """

    def __init__(
        self,
        resolved: Resolved,
        session: Session,
        files: RunDirectory,
        store: CheckpointStore,
        stop: StopRequest | None = None,
        others: ranks.Ranks | None = None,
    ) -> None:
        # what is written down is what runs: the session has settled the precision
        self.resolved = attrs.evolve(resolved, config=session.config)
        self._session, self._files = session, files
        self._store, self._stop = store, stop or StopRequest()
        self._others = others or ranks.Ranks(1)
        self._sizes = [len(task.train) for task in session.stream.tasks]
        self._goal = len(self._sizes)
        self._ledger, self._reporter = Ledger(), Reporter([], self._sizes)
        self._protection = Protection()
        self._frozen = Frozen.of(session.backbone)
        self._resumed = self._standing = False
        self._checkpoint: Checkpoint | None = None
        self._complaints: list[str] = []

    def take_up(self, checkpoint: Checkpoint | None, complaints: Sequence[str], standing: bool) -> None:
        """Say that the run goes on from a checkpoint, from the beginning where there is none.

        Args:
            checkpoint: Where it stands.
            complaints: What its listeners are warned of.
            standing: Whether the session is in the state of the checkpoint already.

        Raises:
            DataError: Its data or weights are not those it began with.
        """
        if checkpoint is not None:
            require_same(self._session, checkpoint)
        self._resumed, self._checkpoint, self._complaints = True, checkpoint, list(complaints)
        self._standing = standing

    def aim(self, tasks: int | None) -> None:
        """Say after how many tasks the run stops; None: after those of the whole stream.

        Raises:
            ConfigError: There are fewer, more are finished already, or the policy cannot decide for them.
        """
        done = 0 if self._checkpoint is None else self._checkpoint.progress["position"]["task"]
        self._goal = require_goal(self._session, done, tasks)

    def follow(self, checkpoint: Checkpoint, join: Callable[[torch.device], None]) -> None:
        """Go on from a checkpoint as a further rank, which writes nothing.

        Args:
            checkpoint: Where rank 0 stands.
            join: Joins it.
        """
        position = self._restore(checkpoint)
        join(self._session.engine.device)
        self._learn_from(position)

    def write_down(self) -> None:
        """Write down what is run, and how far, before anything else: whoever is killed now can be resumed."""
        self._files.write_goal(None if self._goal == len(self._sizes) else self._goal)
        self._files.write_config(dump_resolved(self.resolved))

    def go_on(self, listeners: Sequence[Tracker]) -> dict[str, Any]:
        """Run from wherever it stands to where it stops, telling the listeners, and return the record."""
        trackers = [*self._files.listeners(), *listeners]
        self._reporter = Reporter(trackers, self._sizes[: self._goal])
        self._files.write_goal(None if self._goal == len(self._sizes) else self._goal)
        config = to_mapping(self._session.config)
        settled = self._session.precision
        notes = (str(settled),) if settled.asked == "auto" else ()
        name = self._files.path.name
        try:
            self._reporter.send(RunStarted(name=name, config=config, resumed=self._resumed, notes=notes))
            for line in (*self._complaints, *self._session.notes):
                self._reporter.warn(line)
            position = self._begin_anew() if self._checkpoint is None else Position()
            self._others.start(self._files.path)
            if self._checkpoint is not None:
                position = self._restore(self._checkpoint)
            self._others.meet(self._session.engine.device)
            self._learn_from(position)
            self._store.wait()
            record = self._record()
            self._reporter.send(RunEnded(metrics=record["metrics"], seconds=record["seconds"]["total"]))
        finally:
            self._reporter.close()
            self._store.wait()
        return record

    def _learn_from(self, position: Position) -> None:
        for index in range(position.task, self._goal):
            self._learn(index, position if index == position.task else Position(task=index))

    # -- the protocol ------------------------------------------------------------------------------------

    def _learn(self, index: int, position: Position) -> None:
        """Learn one task, from the given position within it."""
        session, task = self._session, self._session.stream.tasks[index]
        torch.set_grad_enabled(True)  # whatever a component has left behind
        still = session.image_set([task.train], train=False)
        moving = (
            still
            if session.transforms.train_is_deterministic
            else session.image_set(still.originals, train=True)
        )
        probe = session.probe(index, still)
        if not position.within:
            session.begin_task(index)
            evidence = self._evidence(index, probe)
            self._grow_or_reuse(index, evidence)
        context = session.task_context(index, still)
        if not position.within:
            self._remember(context, probe, "begin")
        self._begin_task(context, probe, position)
        self._train(context, moving, still, position)
        if session.mixer is not None:
            self._reporter.begin(index, "routing")
            with self._reporter.clock("training"):
                learn_routing(session, context, self._reporter)
        self._absorb(context, probe)
        self._remember(context, probe, "end")
        self._evaluate(index)
        self._frozen.require_same(session.backbone, f"during task {index + 1}")
        ranks.require_agreement(session.learned(context.set_id), f"after task {index + 1}")
        # The record first: a checkpoint of a finished task then always has its record beside it.
        self._write_record()
        self._save(Position(task=index + 1), task_done=index)

    def _evidence(self, index: int, probe: Probe) -> Evidence:
        """Measure the live sets as far as anybody asks for it."""
        session = self._session
        if not session.collects_evidence or not len(session.pool):
            return unmeasured(session, index)
        self._reporter.begin(index, "evidence")
        with self._reporter.clock("evidence"):
            return collect_evidence(session, probe, self._reporter.advance)

    def _grow_or_reuse(self, index: int, evidence: Evidence) -> None:
        """Let the policy decide, and change the pool accordingly."""
        session = self._session
        pool = session.pool
        decision: Grow | Reuse = (
            (Reuse(0) if len(pool) else Grow())
            if session.fixed
            else require_decision(
                session.config.policy.name,
                session.policy.decide(evidence, session.generator(index)),
                pool,
            )
        )
        match decision:
            case Grow():
                torch.manual_seed(session.seed_of(index, "new set"))
                set_id = pool.grow(session.new_set(session.baseline.source_of(pool)))
            case Reuse(set=chosen):
                set_id = pool.reuse(chosen)
                self._warn_if_full(chosen, evidence)
        self._ledger.task_to_set = pool.task_to_set
        entry = self._ledger.decide(index, evidence, decision, set_id, session.policy)
        self._reporter.send(TaskDecided(task=index, decision=entry))

    def _warn_if_full(self, set_id: int, evidence: Evidence) -> None:
        full = [one.excluded for one in evidence.candidates if one.set == set_id and one.excluded]
        if full:
            self._reporter.warn(f"set {set_id} goes on although excluded ({full[0]}): it can hardly learn")

    def _begin_task(self, context: TaskContext, probe: Probe, position: Position) -> None:
        """Tell retrieval and constraints that the task begins; after a resume, restore their state."""
        session = self._session
        if session.retrieval is not None and not position.within:
            torch.manual_seed(session.seed_of(context.task.index, "retrieval"))
            session.retrieval.begin_task(context)
        rules = ConstraintContext(
            task=context, memory=session.memory, pretrained_space=probe.pretrained_space
        )
        self._rules = rules
        with self._reporter.clock("subspace"):
            for constraint in session.constraints.values():
                constraint.begin_task(rules)

    def _train(self, context: TaskContext, moving: ImageSet, still: ImageSet, position: Position) -> None:
        """Run the phases of retrieval strategy and baseline, from the given position on."""
        session, index = self._session, context.task.index
        torch.set_grad_enabled(True)  # whatever the components that were asked before have left behind
        owner, strategy, rules = session.labels
        first, own = session.phases(context)
        phases = [
            hosted(phase, context, owner, strategy, rules) if isinstance(phase, TrainingPhase) else phase
            for phase in (*first, *own)
        ]
        hosts = [phase for phase in phases if isinstance(phase, TrainingPhase) and phase.host]
        self._protection = Protection()
        first_host = phases.index(hosts[0]) if hosts else len(phases)
        if hosts and not self._ledger.flops:
            self._ledger.flops = count_flops(session, context, hosts[0], still)
        self._reporter.plan(
            {phase.name: phase.epochs if isinstance(phase, TrainingPhase) else 0 for phase in phases}
        )
        for number, phase in enumerate(phases):
            if number < position.phase:
                continue
            if number == max(first_host, position.phase):
                # not earlier: a phase before it may design the set (InfLoRA)
                self._protect(context, hosts, position)
            begin = position.progress if number == position.phase else PhaseProgress()
            share = begin.epoch / phase.epochs if isinstance(phase, TrainingPhase) else 0.0
            self._reporter.begin(index, phase.name, share)
            with self._reporter.clock("training"):
                if isinstance(phase, TrainingPhase):
                    whose = strategy[0] if strategy is not None and number < len(first) else owner
                    self._train_phase(phase, number, whose, context, moving, begin)
                else:
                    torch.manual_seed(session.seed_of(index, phase.name))
                    phase.run(self._reporter.advance)
        if not held(context, rules):
            session.pool.touch(context.set_id)

    def _protect(self, context: TaskContext, hosts: Sequence[TrainingPhase], position: Position) -> None:
        """Gather the constraints' rules at the sites that the host phases train."""
        session = self._session
        with self._reporter.clock("subspace"):
            self._protection = Protection.for_task(
                list(session.constraints.values()),
                [*session.baseline.sites(context.parameters), *session.baseline.shared_sites()],
                self._rules,
                [parameter for phase in hosts for parameter in phase.trained],
            )
        if position.protection:
            self._protection.load_state_dict(position.protection)

    def _train_phase(
        self,
        phase: TrainingPhase,
        number: int,
        owner: str,
        context: TaskContext,
        images: ImageSet,
        progress: PhaseProgress,
    ) -> None:
        """Run one training phase with a checkpoint after every epoch and wherever it is asked to stop."""
        index = context.task.index

        def save(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
            at.require_sound()
            self._save(Position(task=index, within=True, phase=number, progress=at), optimizer=optimizer)

        def after_step(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
            if self._stop.wanted:
                save(optimizer, at)
                raise Interrupted(self._files.path)

        def after_epoch(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
            save(optimizer, at)
            if self._stop.wanted:
                raise Interrupted(self._files.path)

        with self._stop.after_batch(), only_trainable(self._session.learning(context.set_id), phase.trained):
            self._ledger.images += train_phase(
                phase,
                context,
                images,
                owner=owner,
                engine=self._session.engine,
                protection=self._protection,
                reporter=self._reporter,
                progress=progress,
                after_step=after_step,
                after_epoch=after_epoch,
            )

    def _absorb(self, context: TaskContext, probe: Probe) -> None:
        """Extend the spaces of old tasks by the finished one."""
        if not self._session.builds_spaces:
            return
        self._reporter.begin(context.task.index, "spaces")
        with self._reporter.clock("subspace"):
            absorb_task(self._session, context, probe, self._rules, self._reporter.advance)
        ranks = {**self._session.memory.ranks(context.set_id), **self._session.memory.ranks("shared")}
        self._ledger.decisions[-1]["ranks_after"] = ranks

    def _remember(self, context: TaskContext, probe: Probe, moment: Moment) -> None:
        """Let measures store what they compare later tasks with."""
        with self._reporter.clock("evidence"):
            store_statistics(self._session, context, probe, moment)

    def _evaluate(self, index: int) -> None:
        """Evaluate all seen classes and write the predictions down."""
        self._reporter.begin(index, "evaluation")
        with self._reporter.clock("evaluation"):
            predictions, drift = self._session.evaluate(index, self._reporter)
        self._store.wait()  # what is written of a task stands beside the checkpoint of the one before
        if not ranks.number():
            self._ledger.predictions.append(self._files.write_predictions(index, predictions))
        accuracies, retrievals = self._ledger.evaluate(predictions, drift, self._session.evaluator.moved)
        self._reporter.send(
            TaskEvaluated(
                task=index,
                accuracy=tuple(accuracies),
                retrieval=None if retrievals is None else tuple(retrievals),
                metrics=self._ledger.metrics(self._session),
            )
        )

    # -- writing down and going on -----------------------------------------------------------------------

    def _write_record(self) -> None:
        if ranks.number():
            return  # rank 0 writes, and no other
        self._count_seconds()
        self._files.write_record(build_record(self.resolved, self._session, self._ledger))

    def _count_seconds(self) -> None:
        self._reporter.seconds["total"] = self._reporter.elapsed
        self._ledger.seconds = dict(self._reporter.seconds)

    def _save(
        self,
        position: Position,
        *,
        task_done: int | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        if ranks.number():
            return
        self._count_seconds()
        protection = self._protection if position.within else None
        ledger, run = self._ledger.as_mapping(), self.resolved.config.run
        found = snapshot(self._session, position, ledger, protection, optimizer, self._store.base)
        # processes that decode images are forked as soon as training goes on: never beside a thread
        save = self._store.save if run.workers else self._store.save_behind
        save(attrs.evolve(found, task_done=task_done), run.keep_checkpoints)

    def _begin_anew(self) -> Position:
        """Write down what is run, and return the first position."""
        files, position = self._files, Position()
        self._ledger.precision = attrs.asdict(self._session.precision)
        self._ledger.files = {
            "config.toml": files.write_config(dump_resolved(self.resolved)),
            **files.write_samples(self._session.evaluator.ids),
        }
        self._store.save(beginning(self._session, position, self._ledger.as_mapping()))
        return position

    def _restore(self, checkpoint: Checkpoint) -> Position:
        """Put session, ledger and clocks into the state of a checkpoint; return where the run stands."""
        session = self._session
        self._ledger = Ledger(**checkpoint.ledger)
        for source, ids in enumerate(session.sample_lists):
            name = samples_name(source)
            if sha256_of(self._files.path / name) != self._ledger.files[name]:
                self._reporter.warn(f"{name} does not match its checksum; written anew")
                self._files.write_samples(ids, source)
        if self._ledger.seconds:
            self._reporter.resume(self._ledger.seconds)
        finished = checkpoint if checkpoint.task_done is not None else checkpoint.base
        position = Position()
        if finished is not None:
            position = position_of(finished) if self._standing else restore(session, finished)
            if position.task < self._goal:
                # the next evaluation measures drift against the features of this one
                self._reporter.begin(position.task - 1, "evaluation")
                with self._reporter.clock("evaluation"):
                    session.evaluate(position.task - 1, self._reporter)
        if checkpoint is not finished:
            position = restore(session, checkpoint, begun=position.task)
        self._ledger.task_to_set = session.pool.task_to_set
        return position

    def _record(self) -> dict[str, Any]:
        """Return the record of the finished run; one that is lost or damaged is written anew."""
        try:
            found = self._files.read_record()
            if found["files"] == self._ledger.checksums():
                return found
            what = "the record tells of other predictions than the newest whole checkpoint"
        except DataError as error:
            what = str(error).partition("; ")[0]
        self._reporter.warn(f"{what}; written anew from the newest checkpoint")
        self._write_record()
        return self._files.read_record()
