"""What is fitted to a task's held-back images: the mix of several sets' answers, or a head's temperature."""

from __future__ import annotations

from typing import cast

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.learning.session_parts import RunParts
from lw2g.model.frozen_expert import expert_of
from lw2g.model.mixing import Mixer, owned_classes
from lw2g.model.predictor import Predictor, joined
from lw2g.pixels.decoding import chunks
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.progress import Reporter

__all__ = ["learn_routing", "learn_temperature"]


@torch.no_grad()
def learn_routing(parts: RunParts, context: TaskContext, images: ImageSet | None, reporter: Reporter) -> None:
    """Calibrate retrieval and fit the mix after a task's phases, on images that were held back.

    Args:
        parts: The run's parts, with a mixer.
        context: The task.
        images: What the task has held back; None if nothing.
        reporter: Told about the progress.
    """
    retrieval = cast(RetrievalStrategy, parts.retrieval)
    mixer = cast(Mixer, parts.mixer)
    with parts.engine.autocast():
        retrieval.calibrate(context)
    if images is None:
        return
    predictor = Predictor.of(parts, context.task.index)
    batches = images.batches(chunks(range(len(images)), parts.config.run.evaluation_batch))
    choice = joined([predictor.choose(batch)[0] for batch in batches])
    count, answering = choice.sets.shape
    rows = predictor.pair_features(
        images,
        np.repeat(np.arange(count), answering),
        choice.sets.flatten().cpu().numpy(),
        parts.config.run.evaluation_batch,
        reporter.advance,
    )
    # every image under each of its sets, a row each
    logits = parts.baseline.logits(torch.cat([features for _, features in rows]))
    mixer.fit(
        logits[:, : context.task.seen].reshape(count, answering, -1),
        cast(Tensor, choice.log_sets),
        owned_classes(choice.sets, predictor.owner, predictor.task_of_class),
        cast(Tensor, choice.prior),
        images.labels,
    )


@torch.no_grad()
def learn_temperature(parts: RunParts, context: TaskContext, images: ImageSet) -> None:
    """Fit the temperature of the head combined with a frozen expert, on images that the task has held back.

    Losses add up over tasks: an old task's images speak for the head as it was when they were there.

    Args:
        parts: The run's parts, with an expert that has a temperature.
        context: The task.
        images: What the task has held back.
    """
    expert = expert_of(parts.baseline)
    if expert is None:
        return
    predictor = Predictor.of(parts, context.task.index)
    alone = attrs.evolve(predictor, expert=None)  # the head's answer, without the expert's in it
    places = chunks(range(len(images)), parts.config.run.evaluation_batch)
    for part, batch in zip(places, images.batches(places), strict=True):
        names = [images.ids[number] for number in part]
        if alone.retrieval is not None and alone.retrieval.control:
            choice = alone.of_tasks(torch.full((len(batch),), context.task.index, device=predictor.device))
            answers = alone.answer(alone.rows(batch, choice), choice, names)
        else:
            answers = alone(batch, names, tasks=False)
        expert.observe(answers.logits, predictor.targets[batch.labels])
