"""A rehearsal of a run: a few images, steps and tasks of each kind of work, measured and scaled up.

It goes through the same functions as a run, on a session of its own and with few images a task, so that what
it measures is what a run pays. Work that grows with a number of images is measured at that number where a
machine is quick enough, else at two smaller ones and continued on a line; work that grows with the tasks is
measured in the first, the second and a late one.
"""

from __future__ import annotations

import itertools
import statistics as stats
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.evidence import Moment
from lw2g.interfaces.phase import ComputePhase, Phase, TrainingPhase, constant
from lw2g.interfaces.stream import TaskStream
from lw2g.training.boundary import Frozen
from lw2g.training.costs.counting import Tally
from lw2g.training.costs.flops import count_flops
from lw2g.training.costs.gauge import Gauge
from lw2g.training.costs.samples import First, Probes, Pulled, image_sets, thin
from lw2g.training.costs.thinning import Measured, between, part_of, thinned
from lw2g.training.evaluation.evaluator import Evaluator
from lw2g.training.evaluation.routing import learn_routing
from lw2g.training.evidence.collecting import collect_evidence, store_statistics
from lw2g.training.evidence.probe import Probe
from lw2g.training.evidence.spaces import absorb_task
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.files.ledger import Ledger
from lw2g.training.files.state import Position, snapshot
from lw2g.training.images.image_set import ImageSet
from lw2g.training.phases import PhaseProgress, hosted, only_trainable, train_phase
from lw2g.training.progress import Reporter
from lw2g.training.protection import Protection
from lw2g.training.session import Session

__all__ = ["Findings", "Rehearsal"]

_STEPS, _COUNTED_STEPS = 3, 1
_WALKED, _COUNTED_WALKED = 6, 3
"""Tasks gone through at most; what later ones cost is continued on a line, exact where it is counted."""
_PER_CLASS = 2
"""Images of a class in tasks that are gone through only for what they leave behind."""


class _EnoughError(Exception):
    """Ends work whose pace is known."""


@attrs.frozen(kw_only=True)
class Findings:
    """What was measured under one plan.

    Attributes:
        plan: The set of each task.
        tasks: What the tasks that were gone through with care take.
        flops: Per training and test image.
        query_seconds: What the un-prompted query of a test image takes.
    """

    plan: tuple[int, ...]
    tasks: dict[int, Measured] = attrs.field(factory=dict)
    flops: dict[str, float | None] = attrs.field(factory=dict)
    query_seconds: float = 0.0

    def common(self, plan: Sequence[int]) -> Findings:
        """Return what holds under another plan: the tasks before the two part."""
        both = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self.plan, plan, strict=True))
        count = len(list(both))
        known = {index: found for index, found in self.tasks.items() if index < count}
        return attrs.evolve(self, plan=tuple(plan), tasks=known) if known else Findings(plan=tuple(plan))


class Rehearsal:
    """Goes through a run that is decided already.

    Args:
        session: Opened for this; its state is of no use afterwards.
        plan: The set of each task that is to be learned.
        folder: For checkpoints, which are looked at and thrown away.
        tally: What the session's backbone leaves out, where it is a hollow one.
        shared: What was measured once for all rehearsals so far; added to.
        other: What was measured of the same run under another plan: tasks before the two part are not
            measured again.
    """

    def __init__(
        self,
        session: Session,
        plan: Sequence[int],
        folder: Path,
        tally: Tally | None = None,
        *,
        shared: dict[Hashable, float] | None = None,
        other: Findings | None = None,
    ) -> None:
        self._session, self._plan = session, list(plan)
        self._gauge = Gauge(session, tally, shared)
        self._steps = _STEPS if tally is None else _COUNTED_STEPS
        self._walked = _WALKED if tally is None else _COUNTED_WALKED
        self._store = CheckpointStore(folder / "checkpoints")
        self._ledger = Ledger()
        self._reporter = Reporter([], [len(task.train) for task in session.stream.tasks])
        known = Findings(plan=tuple(plan)) if other is None else other.common(plan)
        self._measured, self.flops = dict(known.tasks), dict(known.flops)
        self._query_seconds = known.query_seconds
        batch = self._gauge.affordable(session.config.run.evaluation_batch)
        stream = thinned(session.stream, batch, batch)
        self._evaluator = self._evaluator_of(stream, batch)

    def run(self) -> list[Measured]:
        """Return what each task of the stream takes."""
        tasks = len(self._plan)
        last = min(tasks, self._walked) - 1
        for index in range(last + 1):
            careful = index in (0, 1, last) and index not in self._measured
            with self._gauge.holding():
                found = self._learn(index, careful=careful)
            if careful:
                self._measured[index] = found
        return [between(self._measured, index) for index in range(tasks)]

    @property
    def findings(self) -> Findings:
        """What another plan's rehearsal can take over."""
        return Findings(
            plan=tuple(self._plan),
            tasks=self._measured,
            flops=self.flops,
            query_seconds=self._query_seconds,
        )

    @property
    def machine_bytes(self) -> float:
        """The most that the process has held, with batches of full size."""
        return self._gauge.machine_bytes

    @property
    def device_bytes(self) -> float | None:
        """The most that tensors have held on an accelerator, likewise; None without one."""
        return self._gauge.device_bytes

    # -- one task ----------------------------------------------------------------------------------------

    def _learn(self, index: int, *, careful: bool) -> Measured:
        session, found = self._session, Measured()
        task, classes = session.stream.tasks[index], len(session.stream.tasks[index].classes)
        images = len(task.train)
        least = min(images, _PER_CLASS * classes)
        size = max(self._gauge.affordable(images), least) if careful else least
        small = thin(session, size)
        probes = Probes(session, self._gauge, index, careful=careful)
        session.begin_task(index)
        if careful and session.collects_evidence and len(session.pool):
            found.seconds["evidence"] = self._ask(probes)
        self._assign(index)
        still, moving = image_sets(small, index)
        context = small.task_context(index, still)
        probe = probes.of(probes.size)
        self._remember(found, context, probe, "begin")
        rules = ConstraintContext(
            task=context, memory=session.memory, pretrained_space=probe.pretrained_space
        )
        if session.retrieval is not None:
            torch.manual_seed(session.seed_of(index, "retrieval"))
            session.retrieval.begin_task(context)
        began = self._gauge.now()
        for constraint in session.constraints.values():
            constraint.begin_task(rules)
        found.seconds["spaces"] += self._gauge.now() - began
        self._train(found, context, rules, still, moving, size if careful else None)
        if careful and session.mixer is not None:
            found.seconds["training"] += self._mix(context)
        if session.builds_spaces and careful:
            if session.transforms.train_is_deterministic:
                probes.know_queries()  # training has left them
            found.seconds["spaces"] += probes.cost(self._absorbing(context, rules))
        elif session.builds_spaces:
            absorb_task(session, context, probe, rules)
        self._remember(found, context, probe, "end")
        session.pool.touch(context.set_id)
        if careful:
            found.seconds["evaluation"] = self._evaluate(index)
            found.seconds["checkpoints"] += self._gauge.once("sums", self._sums)
        self._save(found, index)
        found.stored = sum(one.numel() for module in session.modules for one in module.parameters())
        return found

    def _remember(self, found: Measured, context: TaskContext, probe: Probe, moment: Moment) -> None:
        if self._session.collects_evidence:
            found.seconds["evidence"] += self._gauge.timed(
                lambda: store_statistics(self._session, context, probe, moment)
            )

    def _ask(self, probes: Probes) -> float:
        """Return the seconds of evidence, measured once for all sets of the same number and shape."""
        session, pool, config = self._session, self._session.pool, self._session.config
        asked = False

        def ask(probe: Probe) -> None:
            nonlocal asked
            asked = True
            collect_evidence(session, probe)

        what = (
            "evidence",
            repr(config.evidence),
            config.baseline.name,
            # energies decide how many directions are kept, not what is gone through
            attrs.evolve(config.growth, energy=1.0, energy_pre=None),
            tuple((name, one.shape) for name, one in pool.sets[-1].named_parameters()),
            (len(pool), probes.full),
        )
        seconds = self._gauge.once(what, lambda: probes.cost(ask))
        if not asked:
            taps = [site.activation.tap for site in session.baseline.sites(pool.sets[-1])]
            probes.cost(lambda probe: probe.moments(taps[:1]))  # what evidence leaves for others
        return seconds

    def _sums(self) -> float:
        return self._gauge.timed(lambda: Frozen.of(self._session.backbone))

    def _absorbing(self, context: TaskContext, rules: ConstraintContext) -> Callable[[Probe], None]:
        return lambda probe: absorb_task(self._session, context, probe, rules)

    def _assign(self, index: int) -> None:
        """Grow the pool or reuse a set, as planned."""
        session, pool, wanted = self._session, self._session.pool, self._plan[index]
        if wanted in pool.ids:
            pool.reuse(wanted)
        else:
            torch.manual_seed(session.seed_of(index, "new set"))
            pool.grow(session.new_set(session.baseline.source_of(pool)))

    # -- phases ------------------------------------------------------------------------------------------

    def _phases(self, context: TaskContext) -> list[Phase]:
        session = self._session
        owner, strategy, constraints = session.labels
        first, own = session.phases(context)
        return [
            hosted(one, context, owner, strategy, constraints) if isinstance(one, TrainingPhase) else one
            for one in (*first, *own)
        ]

    def _train(
        self,
        found: Measured,
        context: TaskContext,
        rules: ConstraintContext,
        still: ImageSet,
        moving: ImageSet,
        size: int | None,
    ) -> None:
        """Measure the phases, from so many images; without a size only leave behind what later tasks need."""
        session, index = self._session, context.task.index
        pulled = Pulled()
        phases = self._phases(pulled.watching(context))
        hosts = [one for one in phases if isinstance(one, TrainingPhase) and one.host]
        training = [one for one in phases if isinstance(one, TrainingPhase)]
        found.trained = sum(one.numel() for one in {one for phase in training for one in phase.trained})
        if hosts and not self.flops:
            found.seconds["training"] += self._gauge.timed(
                lambda: self.flops.update(
                    count_flops(session, context, hosts[0], still, lambda: self._gauge.tally.flops)
                )
            )
        protection: Protection | None = None
        for phase in phases:
            if isinstance(phase, ComputePhase):
                found.seconds["training"] += self._compute(phase, index, size, pulled)
                continue
            if not phase.wanted():
                continue
            if phase.host and protection is None:
                began = self._gauge.now()
                protection = Protection.for_task(
                    list(session.constraints.values()),
                    [*session.baseline.sites(context.parameters), *session.baseline.shared_sites()],
                    rules,
                    [one for host in hosts for one in host.trained],
                )
                found.seconds["spaces"] += self._gauge.now() - began
            rule = protection or Protection()
            self._train_phase(found, phase, context, moving, rule, careful=size is not None)

    def _compute(self, phase: ComputePhase, index: int, size: int | None, pulled: Pulled) -> float:
        """Return the seconds of a phase that does anything but train."""
        session = self._session
        full = len(session.stream.tasks[index].train)
        began, pulled.count = self._gauge.now(), 0
        patience = self._gauge.patience if size is not None else 0.0

        def progress(done: int, total: int) -> None:
            # what reads images leaves behind what others need; what does not can be cut short
            if not pulled.count and done < total and (taken := self._gauge.now() - began) >= patience:
                raise _EnoughError(taken * total / done)

        torch.manual_seed(session.seed_of(index, phase.name))
        try:
            phase.run(progress)
        except _EnoughError as enough:
            return float(enough.args[0])
        taken = self._gauge.now() - began
        # in proportion: its images are as warm as the phases before it have left them
        return taken * full / size if size and pulled.count else taken

    def _train_phase(
        self,
        found: Measured,
        phase: TrainingPhase,
        context: TaskContext,
        images: ImageSet,
        protection: Protection,
        *,
        careful: bool,
    ) -> None:
        """Take a few steps twice: the first time images are read, afterwards some of that is kept."""
        session, full = self._session, len(self._session.stream.tasks[context.task.index].train)
        batch = min(self._gauge.affordable(phase.batch_size, 4), len(images))
        count = min(len(images), batch * (self._steps if careful else 1))
        ticks: list[tuple[float, float]] = []
        kept: list[Any] = []

        def tick(optimizer: torch.optim.Optimizer, at: object) -> None:
            kept[:] = [optimizer]
            ticks.append((self._gauge.now(), self._gauge.tally.seconds))
            if not careful:
                raise _EnoughError

        short = attrs.evolve(phase, batch_size=batch, epochs=2, schedule=constant, drop_last=False)
        ticks.append((self._gauge.now(), self._gauge.tally.seconds))
        share = phase.batch_size / batch
        with (
            self._gauge.holding(share),
            only_trainable(session.modules, phase.trained),
            suppress(_EnoughError),
        ):
            train_phase(
                short,
                context,
                First(images, count),  # type: ignore[arg-type]
                owner="",
                engine=session.engine,
                protection=protection,
                reporter=self._reporter,
                progress=PhaseProgress(),
                after_step=tick,
                after_epoch=tick,
            )
        if not careful or not phase.epochs:
            return
        taken, counted = np.diff(ticks, axis=0).T
        # of a hollow backbone only what is counted grows with the batch: the rest is optimizer and overhead
        steps = taken + counted * (share - 1) if counted.any() else taken * share
        half = len(steps) // 2
        first, later = (stats.median(part) for part in (steps[:half], steps[half:]))
        per_epoch = full / phase.batch_size
        found.seconds["training"] += per_epoch * (first + later * (phase.epochs - 1))
        self._save_within(found, context.task.index, phase.epochs, protection, kept[0])

    def _mix(self, context: TaskContext) -> float:
        """Return the seconds of fitting the routing mix to the images that were held back."""
        session, index = self._session, context.task.index
        held = session.held_back[index]
        full = 0 if held is None else len(held)
        sets = len(session.pool)
        passes = 1 + (session.mixer.passes(sets) if session.mixer is not None else 0)

        def of(count: int) -> Session:
            parts = [part_of(held, count) if held is not None else None] * (index + 1)
            return attrs.evolve(session, held_back=tuple(parts))

        size = min(full, max(self._gauge.affordable(full, passes), 2))
        return self._gauge.cost(size, full, of, lambda thin: learn_routing(thin, context, self._reporter))

    # -- evaluation and checkpoints ----------------------------------------------------------------------

    def _evaluator_of(self, stream: TaskStream, batch: int) -> Evaluator:
        session = self._session
        thin = attrs.evolve(
            session,
            config=attrs.evolve(session.config, run=attrs.evolve(session.config.run, evaluation_batch=batch)),
        )
        images = thin.image_set([task.test for task in stream.tasks], train=False)
        sizes = [len(task.test) for task in stream.tasks]
        return Evaluator(images, sizes, session.engine, batch, session.names, session.mixer)

    def _evaluate(self, index: int) -> float:
        """Return the seconds of an evaluation: queries of new images, features of stale ones, answers."""
        session, history = self._session, [self._session.info(task) for task in range(index + 1)]

        def evaluate() -> None:
            self._evaluator.evaluate(
                session.baseline, session.pool, session.retrieval, history, self._reporter
            )

        new = self._gauge.timed(evaluate)
        answers = self._gauge.timed(evaluate)
        self._evaluator.forget()
        features = self._gauge.timed(evaluate) - answers
        sizes = self._evaluator.sizes(index + 1)
        if index == 0:
            self._query_seconds = max(0.0, new - answers - features) / sizes[0]
        whole = session.evaluator.sizes(index + 1)
        per_image = max(0.0, features) / sum(sizes)
        return (
            whole[-1] * self._query_seconds
            + self._stale(index, whole) * per_image
            + sum(whole) * answers / sum(sizes)
        )

    def _stale(self, index: int, sizes: Sequence[int]) -> int:
        """Return how many test images are looked at anew after a task, if every one gets its set."""
        match self._session.baseline.feature_scope:
            case "backbone":
                return sizes[-1]
            case "each":
                beside = len(self._session.baseline.beside())
                share = (1 + beside) / self._session.passes(len(self._session.pool))
                return round(sizes[-1] + share * sum(sizes[:-1]))
            case "set" if self._session.retrieval is not None:
                return sum(size for task, size in enumerate(sizes) if self._plan[task] == self._plan[index])
            case _:
                return sum(sizes)

    def _save_within(
        self, found: Measured, index: int, epochs: int, protection: Protection, optimizer: Any
    ) -> None:
        position = Position(task=index, within=True)
        taken, size = self._saved(
            lambda: snapshot(self._session, position, self._ledger.as_mapping(), protection, optimizer)
        )
        found.seconds["checkpoints"] += taken * epochs
        found.step_checkpoint = max(found.step_checkpoint, size)

    def _save(self, found: Measured, index: int) -> None:
        position = Position(task=index + 1)
        taken, found.checkpoint = self._saved(
            lambda: attrs.evolve(
                snapshot(self._session, position, self._ledger.as_mapping()), task_done=index
            )
        )
        found.seconds["checkpoints"] += taken

    def _saved(self, make: Callable[[], Any]) -> tuple[float, int]:
        began = self._gauge.now()
        path = self._store.save(make())
        return self._gauge.now() - began, path.stat().st_size
