"""The run: for each task collect evidence, decide, grow or reuse, train under constraints, absorb, evaluate.

Read :meth:`Run._learn` top to bottom: it is the whole protocol. Everything before and after it is opening a
session, going on from a checkpoint, and writing down what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch

from lw2g.config.resolve import Resolved, load_resolved
from lw2g.config.toml import dump_resolved, to_mapping
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.growth import Evidence, Grow, Reuse
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.tracker import RunEnded, RunStarted, TaskDecided, TaskEvaluated, Tracker
from lw2g.registry.catalogue import Catalogue
from lw2g.training.checkpoint import CheckpointStore
from lw2g.training.evidence import collect_evidence, unmeasured
from lw2g.training.flops import count_flops
from lw2g.training.images import ImageSet
from lw2g.training.ledger import Ledger, build_record
from lw2g.training.phases import PhaseProgress, hosted, only_trainable, train_phase
from lw2g.training.probe import Probe
from lw2g.training.progress import Interrupted, Reporter, StopRequest, stop_on_interrupt
from lw2g.training.protection import Protection
from lw2g.training.record import EventLog, RunDirectory
from lw2g.training.session import Session, open_session
from lw2g.training.spaces import absorb_task
from lw2g.training.state import Position, restore, snapshot

__all__ = ["Run", "resume", "start"]


def start(
    resolved: Resolved, catalogue: Catalogue, directory: Path, listeners: Sequence[Tracker] = ()
) -> dict[str, Any]:
    """Run an experiment from its beginning and return its record.

    Args:
        resolved: What to run.
        catalogue: Where its components come from.
        directory: The run's directory; must not hold a run.
        listeners: Receive the run's events.

    Raises:
        ConfigError: The directory holds a run, or the experiment cannot be built as configured.
        Interrupted: The run was stopped on request and can be resumed.
    """
    files = RunDirectory(directory)
    if files.config.exists():
        raise ConfigError(
            f"{str(directory)!r} holds a run already; go on with it: lw2g resume {directory}, "
            "or choose another --out"
        )
    session = open_session(resolved.config, catalogue)
    trackers = build_trackers(resolved, catalogue, directory)
    files.write_config(dump_resolved(resolved))
    files.write_samples(session.evaluator.ids)
    return Run(resolved, session, files, [*trackers, *listeners]).go_on(resumed=False)


def resume(directory: Path, catalogue: Catalogue, listeners: Sequence[Tracker] = ()) -> dict[str, Any]:
    """Go on with an interrupted run from its newest whole checkpoint and return its record.

    Raises:
        DataError: There is no run, or its data or weights have changed.
        Interrupted: The run was stopped on request and can be resumed again.
    """
    files = RunDirectory(directory)
    if not files.config.exists():
        raise DataError(f"no run at {str(directory)!r}: it has no config.toml; start one with lw2g run")
    resolved = load_resolved(files.config, catalogue)
    session = open_session(resolved.config, catalogue)
    trackers = build_trackers(resolved, catalogue, directory)
    files.write_samples(session.evaluator.ids)
    return Run(resolved, session, files, [*trackers, *listeners]).go_on(resumed=True)


def build_trackers(resolved: Resolved, catalogue: Catalogue, directory: Path) -> list[Tracker]:
    """Return the trackers an experiment names."""
    return [
        catalogue.get("tracker", one.name).build(one.config, directory) for one in resolved.config.trackers
    ]


class Run:
    """One experiment under way.

    Args:
        resolved: What is run.
        session: What it is run with.
        files: Where it is written down.
        listeners: Receive its events.
    """

    def __init__(
        self,
        resolved: Resolved,
        session: Session,
        files: RunDirectory,
        listeners: Sequence[Tracker],
    ) -> None:
        self._resolved, self._session, self._files = resolved, session, files
        self._store = CheckpointStore(files.checkpoints, resolved.config.run.keep_checkpoints)
        self._ledger = Ledger()
        self._trackers: list[Tracker] = [EventLog(files.path / "events.jsonl"), *listeners]
        self._reporter = Reporter(self._trackers, [len(task.train) for task in session.stream.tasks])
        self._stop = StopRequest()
        self._protection = Protection()

    def go_on(self, *, resumed: bool) -> dict[str, Any]:
        """Run from wherever the newest checkpoint stands to the end and return the record."""
        tasks = len(self._session.stream.tasks)
        name = self._files.path.name
        self._reporter.send(RunStarted(name=name, config=to_mapping(self._session.config), resumed=resumed))
        try:
            with stop_on_interrupt() as self._stop:
                position = self._restore() if resumed else Position()
                for index in range(position.task, tasks):
                    self._learn(index, position if index == position.task else Position(task=index))
            # Written after the last task; a finished run that is resumed stays as it is.
            record = self._files.read_record()
            self._reporter.send(RunEnded(metrics=record["metrics"], seconds=record["seconds"]["total"]))
        finally:
            for tracker in self._trackers:
                tracker.close()
        return record

    # -- the protocol ------------------------------------------------------------------------------------

    def _learn(self, index: int, position: Position) -> None:
        """Learn one task, from the given position within it."""
        session, task = self._session, self._session.stream.tasks[index]
        still = session.image_set([task.train], train=False)
        moving = (
            still
            if session.transforms.train_is_deterministic
            else session.image_set([task.train], train=True)
        )
        probe = session.probe(index, still)
        if not position.within:
            session.begin_task(index)
            evidence = self._evidence(index, probe)
            self._grow_or_reuse(index, evidence)
        context = session.task_context(index, still)
        self._begin(context, probe, position)
        self._train(context, moving, still, position)
        self._absorb(context, probe)
        self._evaluate(index)
        # The record first: a checkpoint of a finished task then always has its record beside it.
        self._write_record()
        self._save(Position(task=index + 1), task_done=index)

    def _evidence(self, index: int, probe: Probe) -> Evidence:
        """Measure the live sets as far as the policy asks for it."""
        session = self._session
        if not session.policy_component.needs_evidence or session.fixed or not len(session.pool):
            return unmeasured(session.pool, session.memory, session.baseline, index)
        self._reporter.begin(index, "evidence")
        with self._reporter.clock("evidence"):
            return collect_evidence(
                session.baseline, session.pool, session.memory, probe, self._reporter.advance
            )

    def _grow_or_reuse(self, index: int, evidence: Evidence) -> None:
        """Let the policy decide, and change the pool accordingly."""
        session = self._session
        pool = session.pool
        decision: Grow | Reuse = (
            (Reuse(0) if len(pool) else Grow())
            if session.fixed
            else session.policy.decide(evidence, session.generator(index))
        )
        match decision:
            case Grow():
                torch.manual_seed(session.seed_of(index, "new set"))
                set_id = pool.grow(session.new_set(session.baseline.source_of(pool)))
            case Reuse(set=chosen):
                set_id = pool.reuse(chosen)
                self._warn_if_full(chosen, evidence)
        self._ledger.task_to_set = pool.task_to_set
        grew = isinstance(decision, Grow)
        margin = getattr(session.policy, "margin", 0.0)
        entry = self._ledger.decide(index, evidence, grew=grew, set_id=set_id, margin=margin)
        self._reporter.send(TaskDecided(task=index, decision=entry))

    def _warn_if_full(self, set_id: int, evidence: Evidence) -> None:
        full = [one.excluded for one in evidence.candidates if one.set == set_id and one.excluded]
        if full:
            self._reporter.warn(f"set {set_id} goes on although excluded ({full[0]}): it can hardly learn")

    def _begin(self, context: TaskContext, probe: Probe, position: Position) -> None:
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
        constraints = list(session.constraints.values())
        first = [] if session.retrieval is None else list(session.retrieval.phases(context))
        phases = [
            hosted(phase, context, session.retrieval, constraints)
            if isinstance(phase, TrainingPhase)
            else phase
            for phase in (*first, *session.baseline.phases(context))
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
            self._check_stop()
            begin = position.progress if number == position.phase else PhaseProgress()
            share = begin.epoch / phase.epochs if isinstance(phase, TrainingPhase) else 0.0
            self._reporter.begin(index, phase.name, share)
            with self._reporter.clock("training"):
                if isinstance(phase, TrainingPhase):
                    self._train_phase(phase, number, context, moving, begin)
                else:
                    torch.manual_seed(session.seed_of(index, phase.name))
                    phase.run(self._reporter.advance)
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
        context: TaskContext,
        images: ImageSet,
        progress: PhaseProgress,
    ) -> None:
        """Run one training phase with a checkpoint after every epoch and wherever it is asked to stop."""
        index = context.task.index

        def save(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
            self._save(Position(task=index, within=True, phase=number, progress=at), optimizer=optimizer)

        def after_step(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
            if self._stop.wanted:
                save(optimizer, at)
                self._check_stop()

        def after_epoch(optimizer: torch.optim.Optimizer, at: PhaseProgress) -> None:
            save(optimizer, at)
            self._check_stop()

        with only_trainable(self._session.modules, phase.trained):
            self._ledger.images += train_phase(
                phase,
                context,
                images,
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
        self._check_stop()
        self._reporter.begin(context.task.index, "spaces")
        with self._reporter.clock("subspace"):
            absorb_task(self._session, context, probe, self._rules, self._reporter.advance)
        ranks = {**self._session.memory.ranks(context.set_id), **self._session.memory.ranks("shared")}
        self._ledger.decisions[-1]["ranks_after"] = ranks

    def _evaluate(self, index: int) -> None:
        """Evaluate all seen classes and write the predictions down."""
        session = self._session
        self._check_stop()
        self._reporter.begin(index, "evaluation")
        with self._reporter.clock("evaluation"):
            history = [session.info(earlier) for earlier in range(index + 1)]
            predictions, drift = session.evaluator.evaluate(
                session.baseline, session.pool, session.retrieval, history, self._reporter
            )
        self._files.write_predictions(index, predictions)
        accuracies, retrievals = self._ledger.evaluate(predictions)
        self._ledger.drift.append(drift)
        metrics = build_record(self._resolved, session, self._ledger)["metrics"]
        self._reporter.send(
            TaskEvaluated(
                task=index,
                accuracy=tuple(accuracies),
                retrieval=None if retrievals is None else tuple(retrievals),
                metrics=metrics,
            )
        )

    # -- writing down and going on -----------------------------------------------------------------------

    def _check_stop(self) -> None:
        if self._stop.wanted:
            raise Interrupted(self._files.path)

    def _write_record(self) -> None:
        self._count_seconds()
        self._files.write_record(build_record(self._resolved, self._session, self._ledger))

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
        self._count_seconds()
        protection = self._protection if position.within else None
        checkpoint = snapshot(self._session, position, attrs.asdict(self._ledger), protection, optimizer)
        self._store.save(attrs.evolve(checkpoint, task_done=task_done))

    def _restore(self) -> Position:
        checkpoint, complaints = self._store.newest()
        for line in complaints:
            self._reporter.warn(line)
        if checkpoint is None:
            self._reporter.warn("no checkpoint yet: starting from the first task")
            return Position()
        position, ledger = restore(self._session, checkpoint)
        self._ledger = Ledger(**ledger)
        self._ledger.task_to_set = self._session.pool.task_to_set
        self._reporter.resume(self._ledger.seconds)
        return position
