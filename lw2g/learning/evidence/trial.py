"""Trials: train copies on a task, with a new set or with an old one, for a few steps or to the end.

Copies go through the phases of a run up to the last one that trains the set, under the same constraints and
with the same batches. The losses are those of held-out training images.
"""

from __future__ import annotations

import copy

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.context import TaskContext
from lw2g.learning.evidence.evidence_sample import EvidenceSample, balanced
from lw2g.learning.evidence.outcomes import PER_CLASS, left_out_errors
from lw2g.learning.session import Session
from lw2g.learning.task_training import Observer, TaskTraining
from lw2g.pixels.decoding import chunks
from lw2g.pixels.streams import part_of
from lw2g.runtime.progress import Reporter

__all__ = ["Trials"]

_HELD = 256
_SHARE = 4


class Trials:
    """Trains copies of everything that learns.

    Args:
        session: The run, before the task has its set.
        evidence_sample: The task's. Held-out images lie outside it where there are enough.
        most: Steps of a phase at most where it is trained to its end; None: all of them.
    """

    def __init__(self, session: Session, evidence_sample: EvidenceSample, most: int | None = None) -> None:
        self._session = session
        self._most = most
        self._evidence_sample = evidence_sample
        self._index = evidence_sample.task.index
        data = session.data.stream.tasks[self._index].train
        labels = torch.tensor(np.asarray(data.labels))
        free = torch.ones(len(data), dtype=torch.bool)
        free[evidence_sample.positions] = False
        # the other measures have seen the evidence sample: its images are not free, unless too few are left
        least = min(PER_CLASS * len(evidence_sample.task.classes), len(data) // 2)
        count = max(least, min(_HELD, len(data) // _SHARE))
        if int(free.sum()) < count:
            free[:] = True
        places = free.nonzero()[:, 0]
        chosen = places[balanced(labels[places], count, evidence_sample.generator("trial"))]
        kept = torch.ones(len(data), dtype=torch.bool)
        kept[chosen] = False
        self._held = part_of(data, np.asarray(chosen))
        self._training = part_of(data, kept.numpy())
        self._still = self._moving = session.data.image_set([self._training], train=False)
        if not session.data.transforms.train_is_deterministic:
            self._moving = session.data.image_set(self._still.originals, train=True)

    def __call__(self, set_id: int | None, steps: int, draw: int) -> Tensor:
        """Return the loss of each held-out image after some steps, ``[n]`` float32.

        Args:
            set_id: The set that is reused; None for a new one.
            steps: Of the optimizer, in each phase up to the last host phase; 0 tells the losses of the
                beginning.
            draw: Number of the draw of the new classes' head; the same for all sets.
        """
        return self._losses(*self._learned(set_id, steps, draw))

    def outcome(self, set_id: int | None, train: bool) -> Tensor:
        """Return the error of each held-out image after training to the end, ``[n]`` float64.

        The features of the held-out images are read once, and a regression on the others asks each of them
        (:func:`left_out_errors`).

        Args:
            set_id: The set; None for a new one.
            train: Whether it is trained on the other images, or is as it is.
        """
        session = self._session
        if train:
            session, _ = self._learned(set_id, self._most, 0)
            set_id = session.parts.pool.task_to_set[self._index]
        elif set_id is None:
            raise ValueError("expected the id of a set: a new one is nothing before it is trained")
        return left_out_errors(self._features(session, set_id), torch.tensor(np.asarray(self._held.labels)))

    def _learned(self, set_id: int | None, steps: int | None, draw: int) -> tuple[Session, TaskContext]:
        """Return a copy of the session that has trained a set, with the task's context."""
        session = self._copy()
        parts = session.parts
        index = self._index
        # the set is drawn as the run would draw it, and the head alike for all sets, so that they are paired
        torch.manual_seed(parts.seed_of(index, "new set"))
        if set_id is None:
            parts.pool.grow(parts.new_set(parts.baseline.source_of(parts.pool)))
        else:
            parts.pool.reuse(set_id)
        torch.manual_seed(parts.seed_of(index, f"trial {draw}"))
        with torch.no_grad():
            parts.baseline.draw_head(self._evidence_sample.task)
        context = session.task_context(index, self._still, self._evidence_sample)
        if steps != 0:
            observer = Observer(Reporter([], [info.num_images for info in parts.infos]))
            training = TaskTraining(parts, context, self._moving, observer, steps)
            with torch.enable_grad():
                training.begin()
                training.run(to_hosts=True)
        return session, context

    def _copy(self) -> Session:
        """Return the session with copies of all that learns, and the same backbone."""
        parts = self._session.parts
        learns = (parts.baseline, parts.retrieval, parts.pool, parts.memory, parts.constraints)
        # copied all at once, for they hold references to each other
        copies = copy.deepcopy(learns, {id(parts.backbone): parts.backbone})
        baseline, retrieval, pool, memory, constraints = copies
        made = attrs.evolve(
            parts, baseline=baseline, retrieval=retrieval, pool=pool, memory=memory, constraints=constraints
        )
        return attrs.evolve(self._session, parts=made)

    @torch.no_grad()
    def _losses(self, session: Session, context: TaskContext) -> Tensor:
        """Return the probe loss of each held-out image."""
        baseline = session.parts.baseline
        routing = baseline.scope.force(session.parts.pool, context.set_id)
        images = session.data.image_set([self._held], train=False)
        losses = []
        for batch in images.batches(chunks(range(len(images)), session.parts.config.run.evaluation_batch)):
            with session.parts.engine.autocast():
                features = baseline.features(batch, routing)
                for number in range(len(batch)):
                    one = slice(number, number + 1)
                    losses.append(baseline.probe_loss(features[one], batch.part(one), context.task))
        return torch.stack(losses).float().cpu()

    @torch.no_grad()
    def _features(self, session: Session, set_id: int) -> Tensor:
        """Return what the head is fed of each held-out image under a set, ``[n, F]``."""
        baseline = session.parts.baseline
        routing = baseline.scope.force(session.parts.pool, set_id)
        images = session.data.image_set([self._held], train=False)
        features = []
        for batch in images.batches(chunks(range(len(images)), session.parts.config.run.evaluation_batch)):
            with session.parts.engine.autocast():
                features.append(baseline.features(batch, routing).float().cpu())
        return torch.cat(features)
