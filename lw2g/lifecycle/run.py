"""The run: learn each task (:mod:`lw2g.learning.learner`), evaluate, write down what happened.

The rest of this module continues from a checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import torch

from lw2g.config.directory import CONFIG
from lw2g.config.resolve import Resolved
from lw2g.config.settings import is_evaluated
from lw2g.config.toml import dump_resolved, to_mapping
from lw2g.disk.checkpoint import Checkpoint, CheckpointStore
from lw2g.disk.record import RunDirectory, samples_name
from lw2g.disk.sealed import sha256_of
from lw2g.errors import DataError, Interrupted, as_word
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.growth import Decision, Evidence, counts_directions
from lw2g.interfaces.phase import Phase, TrainingPhase
from lw2g.interfaces.tracker import RunEnded, RunStarted, TaskDecided, TaskEvaluated, Tracker
from lw2g.learning.finite import Diverged
from lw2g.learning.flops import count_flops
from lw2g.learning.learner import Learner
from lw2g.learning.session import Session
from lw2g.learning.state import Position, beginning, position_of, require_same, restore, snapshot
from lw2g.learning.task_training import Observer
from lw2g.lifecycle.ledger import Ledger
from lw2g.lifecycle.recording import build_record
from lw2g.pixels.pixels import Disk
from lw2g.runtime import ranks
from lw2g.runtime.boundary import Frozen
from lw2g.runtime.progress import Reporter, StopRequest
from lw2g.runtime.threads import suited_threads

__all__ = ["Run"]


class Run(Observer):
    """One experiment under way.

    Args:
        resolved: The configuration.
        session: The components.
        files: The run's directory.
        store: Its checkpoints.
        stop: The request to stop.
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
        # the directory holds the configuration that runs: the session has settled the precision
        self.resolved = attrs.evolve(resolved, config=session.parts.config)
        self._session = session
        self._files = files
        on_disk = session.parts.config.run.image_disk * 2**20  # the option is in MiB
        if on_disk:
            session.data.evaluator.images.originals.disk = Disk(files.path, on_disk)
        self._store = store
        self._stop = stop or StopRequest()
        self._others = others or ranks.Ranks(1)
        self._sizes = [len(task.train) for task in session.data.stream.tasks]
        self._goal = len(self._sizes)
        super().__init__(Reporter([], self._sizes))
        self._ledger = Ledger()
        self._learner: Learner | None = None
        self._frozen = Frozen.of(session.parts.backbone)
        self._resumed = self._standing = False
        self._checkpoint: Checkpoint | None = None
        self._complaints: list[str] = []

    def resume_from(self, checkpoint: Checkpoint | None, complaints: Sequence[str], standing: bool) -> None:
        """Continue from a checkpoint; from the beginning where there is none.

        Args:
            checkpoint: The state.
            complaints: Warnings for the listeners.
            standing: Whether the session is in the state of the checkpoint already.

        Raises:
            DataError: Its data or weights are not those it began with.
        """
        if checkpoint is not None:
            require_same(self._session, checkpoint)
        self._resumed = True
        self._checkpoint = checkpoint
        self._complaints = list(complaints)
        self._standing = standing

    def aim(self, tasks: int | None) -> None:
        """Set the number of tasks after which the run stops; None: those of the whole stream.

        Raises:
            ConfigError: There are fewer, more are finished already, or the policy cannot decide for them.
        """
        self._goal = self._session.parts.require_goal(self._done, tasks)

    @property
    def _done(self) -> int:
        """How many tasks the checkpoint has learned that the run goes on from."""
        return 0 if self._checkpoint is None else self._checkpoint.progress["position"]["task"]

    def follow(self, checkpoint: Checkpoint, join: Callable[[torch.device], None]) -> None:
        """Go on from a checkpoint as a further rank, which writes nothing.

        Args:
            checkpoint: Where rank 0 stands.
            join: Joins it.
        """
        position = self._restore(checkpoint)
        join(self._session.parts.engine.device)
        self._learn_from(position)

    def write_down(self) -> None:
        """Write down what the run begins with: one that is killed from here on can be resumed.

        Raises:
            Lw2gError: Something is missing for a task up to the goal; nothing is written then.
        """
        self._session.parts.require_prepared(self._goal)
        self._write_goal()
        self._checkpoint = self._begin()

    def go_on(self, listeners: Sequence[Tracker]) -> dict[str, Any]:
        """Run from the current position to the goal, report to the listeners, and return the record."""
        parts = self._session.parts
        trackers = [*self._files.listeners(), *listeners]
        self.reporter = Reporter(trackers, self._sizes[: self._goal], parts.baseline.trained_tasks)
        self._write_goal()
        workers = self._session.data.workers
        try:
            if workers is not None:
                workers.start()  # before checkpoints are saved by a thread: no process is forked then
            self.reporter.send(self._started())
            if self._resumed and self._done < self._goal:
                self._complaints += self._files.note_code(self._session.components.origins)
            for line in (*self._complaints, *self._session.data.notes):
                self.reporter.warn(line)
            with suited_threads(parts.backbone, parts.engine.device):
                checkpoint = self._checkpoint
                if checkpoint is None:  # none of the run is whole
                    checkpoint = self._begin()
                # other processes begin from a checkpoint, and open their sessions while this one is restored
                self._others.start(self._files.path)
                position = self._restore(checkpoint)
                self._others.meet(parts.engine.device)
                self._learn_from(position)
                self._store.wait()
                record = self._record()
            self.reporter.send(RunEnded(metrics=record["metrics"], seconds=record["seconds"]["total"]))
        except Diverged as error:
            options = parts.config.baseline.config
            raise error.of_run(options, self._files.path / CONFIG) from error
        finally:
            self.reporter.close()
            self._store.wait()
            if workers is not None:
                workers.close()
        return record

    def _started(self) -> RunStarted:
        """Return the event of the beginning, with what a user should know of what is left."""
        parts = self._session.parts
        settled = self._session.precision
        notes, details = parts.layer_notes(sum(self._sizes[: self._goal]))
        notes += [*self._training_notes(), *self._growth_notes()]
        if settled.asked == "auto":
            # where another precision would be faster, it matters that it is not taken
            (notes if settled.refused else details).insert(0, str(settled))
        if self._done == self._goal:  # nothing is learned, and what is to be known is how it could
            way = f"lw2g continue {as_word(self._files.path)} --benchmark NAME"
            is_whole = self._goal == len(self._sizes)
            origin = self._checkpoint and self._checkpoint.ledger["origin"]
            idle = ", and no changed option has acted" if origin and origin["task"] + 1 == self._done else ""
            notes = [f"nothing is left to learn{idle}; new classes: {way}"] if is_whole else []
        return RunStarted(
            name=self._files.path.name,
            config=to_mapping(parts.config),
            resumed=self._resumed,
            notes=tuple(notes),
            details=tuple(details),
            grows=not parts.growth.fixed,
            done=self._done,
            goal=self._goal,
        )

    def _training_notes(self) -> list[str]:
        """Return how many tasks train, where the first ones do and later ones do not."""
        trained = self._session.parts.baseline.trained_tasks
        if not trained or trained >= self._goal:
            return []
        first = "only the first task trains" if trained == 1 else f"only the first {trained} tasks train"
        return [f"{first} the network; the head alone learns the others, from features that move no more"]

    def _growth_notes(self) -> list[str]:
        """Return how much memory comes with the classes; nobody would see it in the first tasks."""
        classes = self._session.parts.infos[self._goal - 1].seen
        size = self._session.parts.bytes_of(classes) / 2**20
        if size < 1:
            return []
        return [f"statistics of {classes} classes will take {size:,.0f} MiB of memory at the end"]

    def _learn_from(self, position: Position) -> None:
        for index in range(position.task, self._goal):
            self._learn(index, position)
            position = Position(task=index + 1)

    def _write_goal(self) -> None:
        """Write after how many tasks the run stops; nothing where these are all."""
        self._files.write_goal(None if self._goal == len(self._sizes) else self._goal)

    # -- learning ----------------------------------------------------------------------------------------

    def _learn(self, index: int, position: Position) -> None:
        """Learn one task from a position within it; evaluate; write record and checkpoint."""
        session = self._session
        self._learner = Learner(session, index, self)
        context = self._learner.learn(position)
        if not self._ledger.flops:  # nothing was trained yet: predictions cost something all the same
            self._ledger.flops = count_flops(session.parts, context, None, self._learner.images)
        if is_evaluated(index, self._goal - 1, self.resolved.config.run.evaluate):
            self._evaluate(index)
        else:
            session.pass_over(index)
            self._note_beside(index)
            self._require_unchanged(index, evaluated=False)
            self._ledger.pass_over(session)
        self._frozen.require_same(session.parts.backbone, f"during task {index + 1}")
        ranks.require_agreement(session.parts.learned(context.set_id), f"after task {index + 1}")
        # The record first: a finished task that has a checkpoint then always has its record.
        self._write_record()
        self._save(Position(task=index + 1), task_done=index)
        self._learner = None  # and its images

    def decided(self, index: int, evidence: Evidence, decision: Decision, set_id: int) -> None:
        """Note a decision and report it."""
        parts = self._session.parts
        self._ledger.task_to_set = parts.pool.task_to_set
        entry = self._ledger.decide(index, evidence, decision, set_id, parts.growth.policy)
        if not parts.growth.fixed:
            sets = parts.pool.task_to_set[:index]
            alike = tuple(task for task, name in enumerate(sets) if name == set_id)
            self.reporter.send(TaskDecided(task=index, decision=entry, shares_with=alike))
        # once a run: the ledger of a resumed run has the decisions before it stopped
        was_said = any(counts_directions(earlier) for earlier in self._ledger.decisions[:-1])
        if counts_directions(entry) and not was_said:
            self.reporter.warn(
                f"the decision for task {index + 1} counts directions and compares no tasks: random spaces "
                "of the same ranks would have decided alike (docs/growth.md)"
            )

    def planned(self, context: TaskContext, hosts: Sequence[TrainingPhase]) -> None:
        """Count the operations of a step, once a run."""
        if hosts and self._ledger.flops.get("training_per_image") is None and self._learner is not None:
            self._ledger.flops = count_flops(self._session.parts, context, hosts[0], self._learner.images)

    def during(self, phase: Phase) -> AbstractContextManager[object]:
        """Let a request to stop wait for the end of a batch."""
        if isinstance(phase, TrainingPhase):
            return self._stop.after_batch()
        # a phase without steps has no state within it: it is repeated as a whole
        return nullcontext()

    def after_step(self, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Stop if the user asked for it."""
        if self._stop.wanted:
            self.after_epoch(optimizer, position)

    def after_epoch(self, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Save a checkpoint, and stop if the user asked for it."""
        position.progress.require_sound()
        self._require_unchanged(position.task, evaluated=False)
        self._save(position, optimizer=optimizer)
        if self._stop.wanted:
            raise Interrupted(self._files.path)

    def trained(self, images: int) -> None:
        """Count training images."""
        self._ledger.images += images

    def merged(self, lost: float) -> None:
        """Note what a merge has lost."""
        self._ledger.decisions[-1]["lost"] = lost

    def absorbed(self, set_id: int) -> None:
        """Note the ranks of the spaces that a task has extended."""
        memory = self._session.parts.memory
        ranks = {**memory.ranks(set_id), **memory.ranks("shared")}
        # a restored memory has its spaces in another order; sorted, a resumed run has the same record
        self._ledger.decisions[-1]["ranks_after"] = dict(sorted(ranks.items()))

    def _evaluate(self, index: int) -> None:
        """Evaluate all seen classes and write the predictions."""
        self.reporter.begin(index, "evaluation")
        with self.reporter.clock("evaluation"):
            predictions, drift = self._session.evaluate(index, self.reporter)
        self._require_unchanged(index, evaluated=True)
        self._store.wait()  # the files of a task lie next to the checkpoint of the task before
        if not ranks.number():  # rank 0 writes, and no other
            self._ledger.predictions.append(self._files.write_predictions(index, predictions))
        self._note_beside(index)
        accuracies, retrievals = self._ledger.evaluate(self._session, predictions, drift, self.reporter.warn)
        self.reporter.send(
            TaskEvaluated(
                task=index,
                accuracy=tuple(accuracies),
                retrieval=None if retrievals is None else tuple(retrievals),
                metrics=self._ledger.metrics[-1],
            )
        )

    def _require_unchanged(self, index: int, *, evaluated: bool) -> None:
        """Refuse to go on with a task that has read other images than those that the run began with.

        Raises:
            DataError: A file of theirs has changed.
        """
        if (file := self._session.data.changed(index, evaluated=evaluated)) is not None:
            raise DataError(
                f"{file!r} has changed since the run read it first, so task {index + 1} is not kept",
                f"put the data back as they were, and go on: lw2g resume {as_word(self._files.path)}",
            )

    def _note_beside(self, index: int) -> None:
        """Note what is asked for after every task, with an evaluation or without."""
        if self.resolved.config.run.next_domain:
            self._ledger.ahead.append(self._session.evaluate_next(index, self.reporter))
        for line in self._session.parts.baseline.warnings(self._session.parts.infos[index]):
            self.reporter.warn(line)

    # -- writing down and going on -----------------------------------------------------------------------

    def _write_record(self) -> None:
        if ranks.number():
            return  # rank 0 writes, and no other
        self._count_seconds()
        self._files.write_record(build_record(self.resolved, self._session, self._ledger, self._store.base))

    def _count_seconds(self) -> None:
        self.reporter.seconds["total"] = self.reporter.elapsed
        self._ledger.seconds = dict(self.reporter.seconds)

    def _save(
        self,
        position: Position,
        *,
        task_done: int | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Write a checkpoint in the background.

        Args:
            position: Where the run goes on.
            task_done: The task that has just ended; None within a task.
            optimizer: The optimizer of the phase in progress.
        """
        if ranks.number():
            return  # rank 0 writes, and no other
        self._count_seconds()
        protection = None
        if self._learner is not None and position.within:
            protection = self._learner.protection
        ledger = self._ledger.as_mapping()
        checkpoint = snapshot(self._session, position, ledger, protection, optimizer, self._store.base)
        checkpoint = attrs.evolve(checkpoint, task_done=task_done)
        self._store.save_behind(checkpoint)

    def _begin(self) -> Checkpoint:
        """Write the first checkpoint, after it the configuration, and return the checkpoint.

        In the configuration, ``precision`` is what ``auto`` has settled on. What was asked for, and why, only
        checkpoints and record tell: a run that has its configuration has to have a checkpoint, too.
        """
        files = self._files
        text = dump_resolved(self.resolved)
        self._ledger.precision = attrs.asdict(self._session.precision)
        if self._resumed:
            # no checkpoint is whole, and the record may tell what was asked for
            self._ledger.precision |= files.recorded("precision")
        self._ledger.files = {
            CONFIG: hashlib.sha256(text.encode()).hexdigest(),
            **files.write_samples(self._session.data.evaluator.ids),
        }
        checkpoint = beginning(self._session, Position(), self._ledger.as_mapping())
        self._store.save(checkpoint)
        files.write_origins(self._session.components.origins)
        files.write_config(text)
        return checkpoint

    def _restore(self, checkpoint: Checkpoint) -> Position:
        """Restore session, ledger and clocks from a checkpoint; return the run's position."""
        session = self._session
        self._ledger = Ledger.restored(checkpoint.ledger)
        for source, ids in enumerate(session.data.sample_lists):
            name = samples_name(source)
            if sha256_of(self._files.path / name) != self._ledger.files[name]:
                self.reporter.warn(f"{name} does not match its checksum; written anew")
                self._files.write_samples(ids, source)
        if self._ledger.seconds:
            self.reporter.resume(self._ledger.seconds)
        # within a task, the end of the task before comes first
        finished = checkpoint.base if checkpoint.task_done is None else checkpoint
        position = Position()
        if finished is not None:
            # nothing can build on it yet where it is the newest state
            is_extra = checkpoint is finished and self._is_extra(finished)
            if is_extra:
                self._ledger.take_back(session)
            position = self._restore_end(finished)
            if is_extra:
                self._write_without(finished)
        if checkpoint is not finished:
            position = restore(session, checkpoint, begun=position.task)
        self._ledger.task_to_set = session.parts.pool.task_to_set
        return position

    def _restore_end(self, finished: Checkpoint) -> Position:
        """Restore the end of a task, with the features that the next evaluation measures drift against.

        They are those of the last evaluation, which may lie some tasks back (``run.evaluate``).
        """
        session = self._session
        position = position_of(finished)
        done = position.task - 1
        goes_on = position.task < self._goal
        measured = self._ledger.last_evaluated if goes_on else None
        begun = 0  # the tasks that the session has been restored to
        if measured is not None and measured < done:
            begun = restore(session, self._store.of_task(measured)).task
            self._evaluate_again(measured)
        if not self._standing:
            restore(session, finished, begun)
        if measured == done:
            self._evaluate_again(done)
        elif goes_on:
            session.pass_over(done)
        return position

    def _is_extra(self, finished: Checkpoint) -> bool:
        """Return whether a task was evaluated only because the run was to stop after it, and now goes on."""
        done = position_of(finished).task - 1
        if done + 1 >= self._goal or self._ledger.predictions[done] is None:
            return False
        origin = self._ledger.origin
        if done + 1 in self._session.data.ends or (origin is not None and origin["task"] == done):
            # what was a whole run once, and what a fork took over
            return False
        return not is_evaluated(done, self._goal - 1, self.resolved.config.run.evaluate)

    def _write_without(self, finished: Checkpoint) -> None:
        """Write record and checkpoint of a task without its evaluation, like those of a run that went on."""
        if ranks.number():
            return
        done = position_of(finished).task - 1
        evaluate = self.resolved.config.run.evaluate
        self.reporter.warn(
            f"task {done + 1} was evaluated because the run stopped after it; the record of a run that goes "
            f"on has no evaluation there (run.evaluate {evaluate!r})"
        )
        self._ledger.task_to_set = self._session.parts.pool.task_to_set
        self._write_record()
        # before the checkpoint: as long as that one tells of the predictions, a resume makes them again
        self._files.remove_predictions(done)
        self._store.replace(attrs.evolve(finished, ledger=self._ledger.as_mapping()))

    def _evaluate_again(self, index: int) -> None:
        """Evaluate a task in whose state the session is, for its features alone."""
        self.reporter.begin(index, "evaluation")
        with self.reporter.clock("evaluation"):
            self._session.evaluate(index, self.reporter)

    def _record(self) -> dict[str, Any]:
        """Return the record of the finished run; write it anew if it is lost or damaged."""
        try:
            record = self._files.read_record()
            if record["files"] == self._ledger.checksums():
                return record
            what = "the record tells of other predictions than the newest whole checkpoint"
        except DataError as error:
            what = error.what
        self.reporter.warn(f"{what}; written anew from the newest checkpoint")
        self._write_record()
        return self._files.read_record()
