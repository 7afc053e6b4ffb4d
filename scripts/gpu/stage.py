"""A run brought by lw2g's own path to the host phase of its last task, so that its steps can be timed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import torch
from torch import Tensor

from gpu.lab import Lab, Marks, Skipped
from lw2g.config.resolve import Resolved
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.disk.record import RunDirectory
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.tracker import Event, TaskEvaluated
from lw2g.learning.phases import PhaseProgress, only_trainable, train_phase
from lw2g.learning.protection import Protection
from lw2g.learning.session import Session, open_session
from lw2g.lifecycle.run import Run
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.progress import Reporter


class Resident:
    """Images that lie on the device already, with the interface of an ``ImageSet``.

    Un-prompted queries are computed at every step, as under a random transform.

    Args:
        session: The run.
        classes: Their classes, in turn.
        count: How many images an epoch has; batches share the pixels.
        distinct: How many images there are.
    """

    def __init__(self, session: Session, classes: Sequence[int], count: int, distinct: int) -> None:
        self._session, self._count = session, count
        size, device = session.parts.backbone.image_size, session.parts.engine.device
        self._images = torch.randn(distinct, 3, size, size, device=device)
        self._labels = torch.tensor(classes, device=device).repeat(distinct)[:distinct]
        self._norm = session.parts.retrieval is None or session.parts.retrieval.query_norm

    def __len__(self) -> int:
        return self._count

    def batches(self, order: Sequence[Sequence[int]], *, seed: int | None = None) -> Iterator[Batch]:
        """Yield batches of the asked sizes."""
        for positions in order:
            images = self._images[: len(positions)]
            yield Batch(
                labels=self._labels[: len(positions)],
                samples=torch.tensor(list(positions)),
                images=lambda images=images: images,  # type: ignore[misc]
                query=lambda images=images: self._query(images),  # type: ignore[misc]
            )

    @torch.no_grad()
    def _query(self, images: Tensor) -> Tensor:
        with self._session.parts.engine.autocast():
            return self._session.parts.backbone.features(images, norm=self._norm).float()


@attrs.frozen(kw_only=True, eq=False)
class Stage:
    """A session whose last task has begun, or its first.

    Attributes:
        session: The run.
        context: The task.
        phase: Its host phase, joined by retrieval and constraints.
        protection: Constraints on its sites, with the spaces of the task before.
    """

    session: Session
    context: TaskContext
    phase: TrainingPhase
    protection: Protection

    def train(self, images: ImageSet | Resident, batch: int, step: Callable[..., None]) -> None:
        """Run one epoch of the host phase through lw2g's own loop; ``step`` is called after every step."""
        session = self.session
        with only_trainable(session.parts.modules, self.phase.trained):
            train_phase(
                attrs.evolve(self.phase, batch_size=batch, epochs=1, drop_last=True),
                self.context,
                images,  # type: ignore[arg-type]
                owner="baseline",
                engine=session.parts.engine,
                protection=self.protection,
                reporter=Reporter([], [1] * len(session.data.stream.tasks)),
                progress=PhaseProgress(),
                after_step=step,
                after_epoch=step,
            )

    def seconds(self, images: ImageSet | Resident, batch: int, warm: int) -> Tensor:
        """Return the seconds of every step of an epoch but the first ones."""
        marks = Marks(self.session.parts.engine.device)
        self.train(images, batch, marks.mark)
        return marks.intervals(warm)


class _UntilError(Exception):
    """The task before the last one is learned."""


@attrs.frozen
class _Until:
    task: int

    def on_event(self, event: Event) -> None:
        if isinstance(event, TaskEvaluated) and event.task == self.task:
            raise _UntilError

    def close(self) -> None:
        """Nothing to close."""


def staged(lab: Lab, resolved: Resolved) -> Stage:
    """Run all tasks but the last, and begin that; the first one for a method that trains no later.

    Raises:
        Skipped: The method takes no training steps.
    """
    for first in (False, True):
        session = open_session(resolved.config, lab.catalogue)
        task = 0 if first else len(session.data.stream.tasks) - 1
        if task:
            with tempfile.TemporaryDirectory() as folder, suppress(_UntilError):
                files = RunDirectory(Path(folder))
                store = CheckpointStore(files.checkpoints)
                Run(resolved, session, files, store).go_on([_Until(task - 1)])
        stage = _begun(session, task)
        if stage is not None:
            return stage
    raise Skipped("takes no training steps")


def _begun(session: Session, task: int) -> Stage | None:
    """Begin a task, with the first set if there is one, up to its host phase; None without such a phase."""
    still = session.data.image_set([session.data.stream.tasks[task].train], train=False)
    session.parts.begin_task(task)
    if len(session.parts.pool):
        session.parts.pool.reuse(0)
    else:
        session.parts.pool.grow(session.parts.new_set(session.parts.baseline.source_of(session.parts.pool)))
    context = session.task_context(task, still)
    if session.parts.retrieval is not None:
        session.parts.retrieval.begin_task(context)
    for constraint in session.parts.constraints.values():
        constraint.begin_task(context)
    for _, phase in session.parts.phases(context):
        if isinstance(phase, TrainingPhase) and phase.host:
            sites = [
                *session.parts.baseline.sites(context.parameters),
                *session.parts.baseline.shared_sites(),
            ]
            protection = Protection.for_task(
                list(session.parts.constraints.values()), sites, context, phase.trained
            )
            return Stage(session=session, context=context, phase=phase, protection=protection)
        if not isinstance(phase, TrainingPhase):
            phase.run(lambda done, total: None)  # it may design the set
    return None
