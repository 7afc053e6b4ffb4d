"""Trials: what a task would learn in a few steps with a set of its own or with an old one, tried on copies.

Copies train by the baseline's own phase, under the same constraints, batches and draws of the head as a run
would; what they are asked are training images that they have not seen.
"""

from __future__ import annotations

import copy
from contextlib import suppress

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.constraint import ConstraintContext
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.stream import TaskData
from lw2g.training.evidence.probe import Probe, balanced
from lw2g.training.images.decoding import chunks
from lw2g.training.images.image_set import ImageSet
from lw2g.training.phases import PhaseProgress, hosted, only_trainable, train_phase
from lw2g.training.progress import Reporter
from lw2g.training.protection import Protection
from lw2g.training.session import Session

__all__ = ["Trials"]

_HELD = 256
_SHARE = 4


class _EnoughError(Exception):
    """The steps are done."""


class Trials:
    """Tries what a task would learn, on copies of everything that learns.

    Args:
        session: The run, before the task has its set.
        probe: The task's D_sub. Images outside it are held out, where there are enough; else others.
    """

    def __init__(self, session: Session, probe: Probe) -> None:
        self._session, self._probe, self._index = session, probe, probe.task.index
        data = session.stream.tasks[self._index].train
        labels = torch.tensor(np.asarray(data.labels))
        free = torch.ones(len(data), dtype=torch.bool)
        free[probe.sample] = False
        count = min(_HELD, len(data) // _SHARE)
        if int(free.sum()) < count:
            free[:] = True
        places = free.nonzero()[:, 0]
        chosen = places[balanced(labels[places], count, probe.generator("trial"))]
        kept = torch.ones(len(data), dtype=torch.bool)
        kept[chosen] = False
        self._held, self._training = _part(data, chosen), _part(data, kept.nonzero()[:, 0])

    def __call__(self, set_id: int | None, steps: int, draw: int) -> Tensor:
        """Return the loss of each held-out image after so many steps, ``[n]`` float32.

        Args:
            set_id: The set that is reused; None for a new one.
            steps: Of the optimizer; 0 tells the losses of the beginning.
            draw: Number of the draw of the new classes' head; the same for all sets.
        """
        session, index = self._copy(), self._index
        torch.manual_seed(session.seed_of(index, "new set"))
        if set_id is None:
            session.pool.grow(session.new_set(session.baseline.source_of(session.pool)))
        else:
            session.pool.reuse(set_id)
        torch.manual_seed(session.seed_of(index, f"trial {draw}"))
        with torch.no_grad():
            session.baseline.draw_head(self._probe.task)
        still = session.image_set([self._training], train=False)
        context = session.task_context(index, still)
        if session.retrieval is not None:
            torch.manual_seed(session.seed_of(index, "retrieval"))
            session.retrieval.begin_task(context)
        if steps:
            with torch.enable_grad():
                self._train(session, context, still, steps)
        return self._losses(session, context)

    def _copy(self) -> Session:
        """Return the session with copies of all that learns; the backbone is the same."""
        session = self._session
        backbone = session.backbone
        parts = (session.baseline, session.retrieval, session.pool, session.memory, session.constraints)
        baseline, retrieval, pool, memory, constraints = copy.deepcopy(parts, {id(backbone): backbone})
        return attrs.evolve(
            session, baseline=baseline, retrieval=retrieval, pool=pool, memory=memory, constraints=constraints
        )

    def _train(self, session: Session, context: TaskContext, still: ImageSet, steps: int) -> None:
        """Take so many steps of the host phases, after what comes before them that is no training."""
        rules = ConstraintContext(
            task=context, memory=session.memory, pretrained_space=self._probe.pretrained_space
        )
        for constraint in session.constraints.values():
            constraint.begin_task(rules)
        moving = session.image_set([self._training], train=True)
        owner, strategy, constraints = session.labels
        left = steps
        protection: Protection | None = None
        sizes = [len(task.train) for task in session.stream.tasks]
        _, phases = session.phases(context)
        hosts = [
            hosted(one, context, owner, strategy, constraints)
            for one in phases
            if isinstance(one, TrainingPhase) and one.host
        ]

        def count(optimizer: object, at: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise _EnoughError

        for phase in phases[: next((i for i, one in enumerate(phases) if _trains(one)), 0)]:
            if not isinstance(phase, TrainingPhase):
                torch.manual_seed(session.seed_of(self._index, phase.name))
                phase.run(lambda done, total: None)
        for phase in hosts:
            protection = protection or Protection.for_task(
                list(session.constraints.values()),
                [*session.baseline.sites(context.parameters), *session.baseline.shared_sites()],
                rules,
                [parameter for host in hosts for parameter in host.trained],
            )
            learning = session.learning(context.set_id)
            with suppress(_EnoughError), only_trainable(learning, phase.trained):
                train_phase(
                    phase,
                    context,
                    still if session.transforms.train_is_deterministic else moving,
                    owner=owner,
                    engine=session.engine,
                    protection=protection,
                    reporter=Reporter([], sizes),
                    progress=PhaseProgress(),
                    after_step=count,
                    after_epoch=count,
                )
            if not left:
                return

    @torch.no_grad()
    def _losses(self, session: Session, context: TaskContext) -> Tensor:
        """Return the probe loss of each held-out image."""
        baseline, pool = session.baseline, session.pool
        alone = baseline.feature_scope != "pool"
        routing = pool.force(context.set_id) if alone else pool.route(None)
        images = session.image_set([self._held], train=False)
        found = []
        for batch in images.batches(chunks(range(len(images)), session.config.run.evaluation_batch)):
            with session.engine.autocast():
                features = baseline.features(batch, routing)
                found += [
                    baseline.probe_loss(features[i : i + 1], batch.part(slice(i, i + 1)), context.task)
                    for i in range(len(batch))
                ]
        return torch.stack(found).float().cpu()


def _trains(phase: object) -> bool:
    return isinstance(phase, TrainingPhase) and phase.host


def _part(data: TaskData, places: Tensor) -> TaskData:
    at = places.numpy()
    return attrs.evolve(data, indices=np.asarray(data.indices)[at], labels=np.asarray(data.labels)[at])
