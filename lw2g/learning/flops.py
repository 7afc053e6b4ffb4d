"""Floating point operations per image, counted by torch on one real step and one real prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import TrainingPhase
from lw2g.learning.evidence.evidence_sample import undisturbed
from lw2g.learning.phases import only_trainable
from lw2g.learning.session_parts import RunParts
from lw2g.model.frozen_expert import expert_of
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.returned import require_graph

__all__ = ["count_flops"]


def _product(rows: Sequence[int], weight: Sequence[int], *others: Any, **out: Any) -> int:
    """Count a product of rows ``[..., in]`` and a weight ``[out, in]``."""
    return 2 * math.prod(rows) * weight[0]


_COUNTED: dict[Any, Any] = (
    {torch.ops.mkldnn._linear_pointwise: _product}
    if torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    else {}
)
"""What torch does not count by itself: the products of :mod:`lw2g.vit.products`."""


def count_flops(
    parts: RunParts, context: TaskContext, phase: TrainingPhase | None, images: ImageSet
) -> dict[str, float | None]:
    """Return ``training_per_image`` (the host phase's step, backward included) and ``inference_per_image``.

    The first is None where nothing is trained.

    ``expert_per_image`` is the part of the second that a frozen expert alone asks for: 0 where
    the query is computed anyway.

    The un-prompted pass that gives the query counts in both where it is used, whether or not the run caches
    it. Nothing of the training state changes.

    Args:
        parts: The run.
        context: The task.
        phase: The host phase, joined by retrieval and constraints; None where the task trained nothing.
        images: The task's training images under the test transform.
    """
    # two images, or the only one: counts are divided by their number
    positions = list(range(min(2, len(images))))
    source = next(iter(images.batches([positions])))
    modules = parts.modules
    # the counter knows no fused attention
    with undisturbed(modules), sdpa_kernel(SDPBackend.MATH):
        training = None
        if phase is not None:
            with only_trainable(modules, phase.trained):
                training = _count(parts, source, partial(_train, phase, owner=parts.names[0]))
        with torch.no_grad():
            inference = _count(parts, source, lambda batch: _ask(parts, batch))
            # uncounted first: a weight that updates are merged into is made then, and not for each image
            with parts.engine.autocast():
                _predict(parts, context, _with_own_query(parts, source))
            per_forward = _count(parts, source, lambda batch: _predict(parts, context, batch))
            inference += parts.passes(len(parts.infos)) * per_forward  # as many as there can be sets
            counts: dict[str, float | None] = {"training_per_image": training}
            if expert_of(parts.baseline) is not None:
                answer = partial(_answer, parts, context)
                # 0 where the answer has asked for the query already: a batch computes it once
                with_expert = _count(parts, source, partial(answer, heard=True))
                expert_flops = with_expert - _count(parts, source, answer)
                counts["expert_per_image"] = expert_flops
                inference += expert_flops
    return counts | {"inference_per_image": inference}


def _with_own_query(parts: RunParts, source: Batch) -> Batch:
    """Return the batch without what it has computed.

    The source would keep its query for the run, and here attention has other last bits.
    """
    images = source.images

    def query() -> Tensor:
        with torch.no_grad(), parts.backbone.joining():
            return parts.backbone.features(images)

    return Batch(labels=source.labels, samples=source.samples, images=lambda: images, query=query)


def _count(parts: RunParts, source: Batch, work: Callable[[Batch], object]) -> float:
    batch = _with_own_query(parts, source)
    with FlopCounterMode(display=False, custom_mapping=_COUNTED) as counter, parts.engine.autocast():
        work(batch)
    return float(counter.get_total_flops()) / len(source)


def _train(phase: TrainingPhase, batch: Batch, *, owner: str) -> None:
    loss = phase.step(batch).loss
    require_graph(loss, phase.name, owner)
    torch.autograd.grad(loss, phase.trained, allow_unused=True)


def _ask(parts: RunParts, batch: Batch) -> None:
    if parts.retrieval is not None and not parts.retrieval.control:
        parts.retrieval.query(batch)  # the pass counts; comparing with keys or centroids does not


def _answer(parts: RunParts, context: TaskContext, batch: Batch, *, heard: bool = False) -> None:
    """Predict as without an expert, and let it have its query if it is heard; a batch computes it once."""
    _ask(parts, batch)
    _predict(parts, context, batch)
    if heard:
        _ = batch.query


def _predict(parts: RunParts, context: TaskContext, batch: Batch) -> None:
    features = parts.baseline.head_features(batch, context.pool.force(context.set_id))
    parts.baseline.logits(parts.baseline.scope.repeated(features, parts.passes(len(context.pool))))
