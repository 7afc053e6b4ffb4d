"""A rehearsal: the code of a run learns its first tasks, with a few steps a phase.

Tasks have as few images as the machine has time for. Measured costs are scaled to their full size.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from lw2g.disk.checkpoint import CheckpointStore
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.growth import Decision, Evidence, Grow, Reuse
from lw2g.interfaces.options import batch_size_of
from lw2g.interfaces.phase import ComputePhase, Phase, TrainingPhase
from lw2g.interfaces.stream import Task, TaskData
from lw2g.learning.evidence.evidence_sample import GROUPS, EvidenceSample
from lw2g.learning.learner import Learner
from lw2g.learning.session import Session
from lw2g.learning.session_parts import RunParts
from lw2g.learning.state import Position, snapshot
from lw2g.learning.task_training import Observer
from lw2g.lifecycle.ledger import Ledger
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.boundary import Frozen
from lw2g.runtime.peak import PeakMemory
from lw2g.runtime.progress import Reporter

__all__ = ["Rehearsal", "TaskCost"]

_PATIENCE = 0.5
"""Seconds allowed for plain forwards of a task's images, and for a phase that reads no images."""
_STEPS = 4
"""Steps a phase."""
_BATCHES = 3
"""Batches a task."""
_BATCH = 128
"""The size of a batch if the baseline declares none."""
_PER_CLASS = 2
"""The least images a class."""
_COPIES = 2
"""Copies that are trained to the end where a measure does so: a new set, and the newest one."""
_PACED = 4
"""Images of the forward that sets the pace."""


class _Planned:
    """A policy that follows a plan: the set of each task."""

    margin = 0.0
    burden = None

    def __init__(self, plan: Sequence[int]) -> None:
        self._plan = plan

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        wanted = self._plan[evidence.task]
        for candidate in evidence.candidates:
            if candidate.set == wanted:
                return Reuse(wanted)
        return Grow()


@attrs.frozen(kw_only=True, eq=False)
class _SmallParts(RunParts):
    """Parts that train on smaller batches.

    Attributes:
        batch: Images per step at most.
        noted: ``pulled``: images that phases have read through their context; ``share``: the largest ratio
            of a batch in a run to one here.
    """

    batch: int
    noted: dict[str, float]

    def phases(self, context: TaskContext) -> list[tuple[str, Phase]]:
        """Return the phases, with smaller batches."""
        return [(owner, self._small(phase)) for owner, phase in RunParts.phases(self, context)]

    def _small(self, phase: Phase) -> Phase:
        if not isinstance(phase, TrainingPhase) or phase.batch_size <= self.batch:
            return phase
        self.noted["share"] = max(self.noted["share"], phase.batch_size / self.batch)
        return attrs.evolve(phase, batch_size=self.batch)


@attrs.frozen(kw_only=True, eq=False)
class _SmallSession(Session):
    """A session with fewer images and smaller batches, which counts the images that phases read."""

    parts: _SmallParts

    def task_context(
        self, index: int, images: ImageSet, evidence_sample: EvidenceSample | None = None
    ) -> TaskContext:
        """Return the context of a task, which counts the images it gives."""
        context = Session.task_context(self, index, images, evidence_sample)
        return attrs.evolve(
            context,
            statistics=self._counting(context.statistics),
            # None where images have no training transform
            augmented=context.augmented and self._counting(context.augmented),
            shuffled=context.shuffled and self._counting(context.shuffled),
        )

    def _counting(self, read: Callable[..., Iterable[Batch]]) -> Callable[..., Iterator[Batch]]:
        return lambda *arguments: self._counted(read(*arguments))

    def _counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.parts.noted["pulled"] += len(batch)
            yield batch


class _EnoughError(Exception):
    """Ends a phase whose pace is known; holds the seconds of the whole phase."""


class _Clock(Observer):
    """Prices the phases of a task by a few steps of each.

    Args:
        session: What is learned with.
        index: The task.
        images: How many training images it has in a run.

    Attributes:
        seconds: Of all phases of a run.
        steps: Those of training by steps.
        spent: Seconds of what the rehearsal did of them.
        epochs: Of all phases; a checkpoint is saved after each.
    """

    def __init__(self, session: _SmallSession, index: int, images: int) -> None:
        super().__init__(Reporter([], [len(task.train) for task in session.data.stream.tasks]))
        self._session = session
        self._images = images
        self._small = len(session.data.stream.tasks[index].train)
        self.seconds = 0.0
        self.steps = 0.0
        self.spent = 0.0
        self.epochs = 0
        self._ticks: list[float] = []

    def after_step(self, optimizer: torch.optim.Optimizer, position: Position) -> None:
        """Look at the clock."""
        self._ticks.append(self._now())

    after_epoch = after_step

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Add what a phase would take of all images to ``seconds``, within the context.

        Steps of training are priced by their number; another phase as it took, or in proportion where it has
        been cut short, or has read the images of the small task.
        """
        noted = self._session.parts.noted
        noted["pulled"] = 0
        began = self._now()
        self._ticks = [began]
        may_be_cut = isinstance(phase, ComputePhase)

        def advance(done: int, total: int, **of_an_epoch: Any) -> None:
            # later phases need the results of one that reads images; others can be cut short
            taken = time.perf_counter() - began
            if may_be_cut and not noted["pulled"] and done < total and taken >= _PATIENCE:
                raise _EnoughError(taken * total / done)

        # shadows the method while the phase lasts: phases report to it, and so can be stopped there
        self.reporter.advance = advance  # type: ignore[method-assign]
        try:
            yield
            if isinstance(phase, TrainingPhase):
                self._price_steps(phase)
            else:
                taken = self._now() - began
                if noted["pulled"]:  # it read the images of the small task, and reads all of them in a run
                    taken *= self._images / self._small
                self.seconds += taken
        except _EnoughError as enough:
            self.seconds += float(enough.args[0])
        finally:
            del self.reporter.advance
            self.spent += self._now() - began

    def _price_steps(self, phase: TrainingPhase) -> None:
        """Add the seconds of a phase; its first epoch reads the images, and later ones find part of them."""
        steps = np.diff(self._ticks).tolist()
        if not steps:
            return
        self.epochs += phase.epochs
        batch = min(phase.batch_size, self._small)
        in_epoch = math.ceil(self._small / batch)
        # medians: a step that compiles or waits for other programs takes many times as long
        cold = statistics.median(steps[:in_epoch])
        warm = min(cold, statistics.median(steps[in_epoch:] or [cold]))
        # a run has ``images / batch`` steps an epoch
        seconds = (cold + warm * (phase.epochs - 1)) * self._images / batch
        self.steps += seconds
        self.seconds += seconds

    def _now(self) -> float:
        self._session.parts.engine.synchronize()
        return time.perf_counter()


@attrs.frozen(kw_only=True)
class TaskCost:
    """The cost of one task at its full size: seconds and bytes.

    ``copies`` are the seconds of training copies to the end before the decision, however many sets there are;
    ``steps`` those of ``training`` that a task without training is spared.
    """

    evidence: float
    copies: float = 0.0
    training: float
    steps: float = 0.0
    spaces: float
    evaluation: float
    checkpoints: float
    disk: float
    memory: float
    device_memory: float | None


class Rehearsal:
    """Learns the first two tasks of a session on a small scale.

    Args:
        session: Opened for this; its state is of no use afterwards.
        folder: For checkpoints, which are measured and deleted.
        plan: The set of each task that is to be learned.
    """

    def __init__(self, session: Session, folder: Path, plan: Sequence[int]) -> None:
        self._whole = session
        self._plan = plan
        self._tasks = session.data.stream.tasks[: len(plan)]
        self._store = CheckpointStore(folder / "checkpoints")
        self._sums = _timed(lambda: Frozen.of(session.parts.backbone))
        self._small = self._smaller(session)

    def measure(self, index: int) -> TaskCost:
        """Learn a few steps of a task, evaluate and save, and return what the whole task would cost.

        Args:
            index: Of the task.
        """
        session = self._small
        whole = self._whole.data.stream.tasks[index]
        small = session.data.stream.tasks[index]
        # an evaluation reads the test images of all tasks so far, of which one that repeats classes adds none
        tested = sum(len(task.test) for task in self._whole.data.stream.tasks[: index + 1])
        tested_here = sum(len(task.test) for task in session.data.stream.tasks[: index + 1])
        clock = _Clock(session, index, len(whole.train))
        # noted before anything is allocated, so that what a task adds can be told apart
        peak = PeakMemory(session.parts.engine.device)
        machine_before = peak.machine
        device_before = peak.device or 0
        Learner(session, index, clock, _STEPS).learn()
        evaluation = _timed(lambda: session.evaluate(index, clock.reporter))
        state = snapshot(session, Position(task=index + 1), Ledger().as_mapping())
        began = time.perf_counter()
        saved = self._store.save(attrs.evolve(state, task_done=index))
        saving = time.perf_counter() - began
        # evidence and spaces take `most` images of a task, or all that it has
        most = session.parts.config.growth.images
        larger = min(len(whole.train), most) / min(len(small.train), most)
        # what the phases did not take: the fits of routing and temperature after them
        routing = max(0.0, clock.reporter.seconds["training"] - clock.spent)
        held_back = self._whole.data.held_back[index]
        if held_back:
            # of a small task without any, nothing is known to scale by: the factor is 1
            routing *= len(held_back) / len(session.data.held_back[index] or held_back)
        # activations grow with the batch, which a run has so many times larger
        batch_factor = session.parts.noted["share"]
        device_memory = None
        if peak.device is not None:
            device_memory = device_before + batch_factor * (peak.device - device_before)
        return TaskCost(
            evidence=clock.reporter.seconds["evidence"] * larger,
            # the first task has no set to compare a new one with
            copies=_COPIES * clock.seconds if index and session.parts.growth.trains_copies else 0.0,
            training=clock.seconds + routing,
            steps=clock.steps,
            spaces=clock.reporter.seconds["subspace"] * larger,
            evaluation=evaluation * tested / tested_here,
            # one after each epoch and one after the task, whose end checks the backbone's weights, too
            checkpoints=saving * (1 + clock.epochs) + self._sums,
            disk=float(saved.stat().st_size),
            memory=machine_before + batch_factor * (peak.machine - machine_before),
            device_memory=device_memory,
        )

    def _smaller(self, session: Session) -> _SmallSession:
        """Return the session with as many images as there is time for."""
        train, test = self._sizes(session)
        run = session.parts.config.run
        # A batch is filled up to its size. Were it larger than what is read in it (test images, and at most
        # ``train`` of those held back for routing), the filling would count as cost of these images.
        run = attrs.evolve(run, evaluation_batch=min(run.evaluation_batch, train, test))
        tasks = tuple(_smaller_task(task, train, test) for task in session.data.stream.tasks)
        # None where a task holds nothing back
        held_back = tuple(images and _part_of(images, train) for images in session.data.held_back)
        data = attrs.evolve(
            session.data,
            stream=attrs.evolve(session.data.stream, tasks=tasks),
            held_back=held_back,
            options=run,
        )
        # parts of another class: attrs cannot evolve into it
        fields = {}
        for field in attrs.fields(RunParts):
            if field.init:
                fields[field.name] = getattr(session.parts, field.name)
        fields["config"] = attrs.evolve(session.parts.config, run=run)
        fields["infos"] = data.stream.infos
        fields["growth"] = attrs.evolve(session.parts.growth, policy=_Planned(self._plan))
        batch = max(1, train // _BATCHES)  # where a run has larger ones, ``noted`` is told how much larger
        parts = _SmallParts(**fields, batch=batch, noted={"pulled": 0, "share": 1.0})
        return _SmallSession(
            parts=parts, data=data, components=session.components, precision=session.precision
        )

    def _sizes(self, session: Session) -> tuple[int, int]:
        """Return how many training and how many test images of a task there is time for."""
        parts = session.parts
        affordable = int(_PATIENCE / _seconds_per_image(session))
        # each class of a task needs some, and evidence two in each of its groups
        least = _PER_CLASS * max(len(task.classes) for task in self._tasks)
        if parts.growth.collects_evidence:
            least = max(least, 2 * GROUPS)
        wanted = _BATCHES * (batch_size_of(parts.config.baseline.config) or _BATCH)
        train = max(least, min(wanted, affordable))
        # two full batches are enough to tell the seconds of the others
        test = max(least, min(affordable, 2 * parts.config.run.evaluation_batch))
        return train, test


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@torch.no_grad()
def _seconds_per_image(session: Session) -> float:
    """Return the seconds per image of a plain forward, after one to warm up."""
    blank = session.parts.backbone.blank().float().to(session.parts.engine.device)
    images = blank.expand(_PACED, *blank.shape)

    def forward() -> None:
        with session.parts.engine.autocast(), session.parts.backbone.joining():
            session.parts.backbone.features(images)
        session.parts.engine.synchronize()

    # the fastest of three: other programs can only slow it down
    seconds = min(_timed(forward) for _ in range(3))
    return max(seconds / len(images), 1e-6)  # never 0: it divides


def _smaller_task(task: Task, train: int, test: int) -> Task:
    return attrs.evolve(task, train=_part_of(task.train, train), test=_part_of(task.test, test))


def _part_of(data: TaskData, count: int) -> TaskData:
    """Return at most ``count`` samples, balanced over the classes."""
    # the first sample of every class comes first, then the second of every class
    turns = np.zeros(len(data), dtype=np.int64)
    for label in np.unique(data.labels):
        where = np.flatnonzero(data.labels == label)
        turns[where] = np.arange(len(where))
    chosen = np.sort(np.argsort(turns, kind="stable")[:count])
    return TaskData(source=data.source, indices=data.indices[chosen], labels=data.labels[chosen])
