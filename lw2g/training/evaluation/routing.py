"""What soft routing learns of a task: a calibrated posterior, and how sets' answers are mixed."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext, task_of_class
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.training.evaluation.mixing import Mixer, log_prior, owned_classes
from lw2g.training.evaluation.pairs import pair_features
from lw2g.training.images.decoding import chunks
from lw2g.training.progress import Reporter
from lw2g.training.session import Session

__all__ = ["learn_routing"]


@torch.no_grad()
def learn_routing(session: Session, context: TaskContext, reporter: Reporter) -> None:
    """Calibrate retrieval and fit the mix after a task's phases, to images that were held back.

    Args:
        session: The run's parts, with a mixer.
        context: The task.
        reporter: Told about the progress.
    """
    retrieval, mixer = cast(RetrievalStrategy, session.retrieval), cast(Mixer, session.mixer)
    with session.engine.autocast():
        retrieval.calibrate(context)
    held = session.held_back[context.task.index]
    if held is None:
        return
    images = session.image_set([held], train=False)
    pool, device = session.pool, session.engine.device
    table = task_of_class(context.history, device)
    owner = torch.tensor(pool.task_to_set, device=device)

    def ask(batch: Batch) -> list[Tensor]:
        with session.engine.autocast():
            query = retrieval.query(batch).float()
        log_tasks = retrieval.log_posterior(query, range(len(context.history)), table)
        prior = log_prior(retrieval, query, table, log_tasks)
        return [*mixer.choose(log_tasks, owner, len(pool)), prior]

    found = map(ask, images.batches(chunks(range(len(images)), session.config.run.evaluation_batch)))
    sets, log_sets, prior = (torch.cat(column) for column in zip(*found, strict=True))
    count, answering = sets.shape
    rows = pair_features(
        images,
        np.repeat(np.arange(count), answering),
        sets.flatten().cpu().numpy(),
        (session.baseline, pool, session.engine),
        session.config.run.evaluation_batch,
        reporter.advance,
    )
    logits = session.baseline.logits(torch.cat([features for _, features in rows]))
    mixer.fit(
        logits[:, : context.task.seen].reshape(count, answering, -1),
        log_sets,
        owned_classes(sets, owner, table),
        prior,
        images.labels,
    )
