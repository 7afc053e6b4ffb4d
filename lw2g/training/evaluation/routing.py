"""What soft routing learns from a task: a calibrated posterior, and the mix of the sets' answers."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.training.evaluation.mixing import Mixer, owned_classes
from lw2g.training.images.decoding import chunks
from lw2g.training.models.predictor import Predictor, joined
from lw2g.training.progress import Reporter
from lw2g.training.session import Session

__all__ = ["learn_routing"]


@torch.no_grad()
def learn_routing(session: Session, context: TaskContext, reporter: Reporter) -> None:
    """Calibrate retrieval and fit the mix after a task's phases, on images that were held back.

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
    predictor = Predictor.of(session, context.task.index)
    batches = images.batches(chunks(range(len(images)), session.config.run.evaluation_batch))
    choice = joined([predictor.choose(batch)[0] for batch in batches])
    count, answering = choice.sets.shape
    rows = predictor.pair_features(
        images,
        np.repeat(np.arange(count), answering),
        choice.sets.flatten().cpu().numpy(),
        session.config.run.evaluation_batch,
        reporter.advance,
    )
    logits = session.baseline.logits(torch.cat([features for _, features in rows]))
    mixer.fit(
        logits[:, : context.task.seen].reshape(count, answering, -1),
        cast(Tensor, choice.log_sets),
        owned_classes(choice.sets, predictor.owner, predictor.task_of_class),
        cast(Tensor, choice.prior),
        images.labels,
    )
