"""Task-identity inference: a class predicted from un-prompted features names the task (HiDe-Prompt's TII).

Wang et al., "Hierarchical Decomposition of Prompt-Based Continual Learning: Rethinking Obscured
Sub-optimality", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import attrs
import torch
from attrs.validators import ge, gt, in_, optional
from torch import Tensor, nn
from torch.nn import functional

from lw2g.heads import linear_head, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import RetrievalComponent
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.options import option
from lw2g.interfaces.phase import ParameterGroup, Phase, StepOutput, TrainingPhase
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.replay import replay_phase
from lw2g.statistics import ClassStatistics, statistics_phase

__all__ = ["CLASSIFIER", "Classifier", "ClassifierConfig", "ResidualMLP"]


@attrs.frozen(kw_only=True)
class ClassifierConfig:
    """Options of ``classifier``."""

    epochs: int = option(20, "passes over a task's training images", validator=ge(0), published=20)
    batch_size: int = option(24, "images per step", validator=ge(1))
    lr: float = option(
        5e-4, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        1.0, "bound of the gradient norm", validator=optional(gt(0)), published=1.0
    )
    hidden_ratio: int = option(2, "width of the hidden layer over that of the features", validator=ge(1))
    statistics: Literal["multi-centroid", "variance", "covariance"] = option(
        "multi-centroid",
        "what is kept of a class's features",
        validator=in_(("multi-centroid", "variance", "covariance")),
        published="multi-centroid",
    )
    clusters: int = option(10, "clusters per class of multi-centroid", validator=ge(1), published=10)
    replay_epochs: int = option(30, "epochs of replay from the statistics", validator=ge(0), published=30)
    replay_lr: float = option(
        0.005, "learning rate of replay at 256 samples per step; scaled by batch_size / 256", validator=gt(0)
    )


class ResidualMLP(nn.Module):
    """``LN(x + W2 GELU(W1 x))``: a small adapter between frozen features and a head.

    Args:
        dim: Width of the features.
        hidden: Width of the hidden layer.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map features ``[B, dim]`` to ``[B, dim]``."""
        return cast(Tensor, self.norm(x + self.contract(functional.gelu(self.expand(x)))))


class Classifier(RetrievalStrategy):
    """A classifier of its own on un-prompted features; the task of the predicted class is retrieved.

    It is trained on the task's images, its class statistics are taken, and from the second task on it is
    retrained on samples of all seen classes. It never depends on any prompt: the same with and without
    growth.
    """

    def __init__(self, config: ClassifierConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        dim = context.backbone.dim
        self.network = nn.Sequential(
            ResidualMLP(dim, config.hidden_ratio * dim), linear_head(dim, context.num_classes)
        )
        self.statistics = ClassStatistics(context.num_classes, dim, config.statistics, config.clusters)
        self.to(context.device)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return training, statistics and replay."""
        config = self.config
        scale = config.batch_size / 256
        group = ParameterGroup(parameters=tuple(self.network.parameters()), lr=config.lr * scale)
        train = TrainingPhase(
            name="retrieval",
            groups=(group,),
            step=lambda batch: self._step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            clip_norm=config.clip_norm,
            images=False,
        )
        statistics = statistics_phase(
            "retrieval-statistics", context, self.statistics, lambda batch: batch.query
        )
        replay = replay_phase(
            "retrieval-replay",
            context,
            self.network,
            self.statistics,
            lr=config.replay_lr * scale,
            epochs=config.replay_epochs,
            per_centroid=config.batch_size,
        )
        return (train, statistics, replay)

    def retrieve(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return the task of the most probable class among those of the seen tasks, ``[B]``."""
        tasks = torch.as_tensor(tuple(seen), dtype=torch.long, device=query.device)
        logits = self.network(query)[:, : len(task_of_class)]
        hidden = ~torch.isin(task_of_class, tasks)
        return task_of_class[logits.masked_fill(hidden, float("-inf")).argmax(dim=-1)]

    def _step(self, batch: Batch, context: TaskContext) -> StepOutput:
        logits = mask_logits(self.network(batch.query), context.task.classes)
        return StepOutput(loss=functional.cross_entropy(logits, batch.labels))


CLASSIFIER = RetrievalComponent(
    name="classifier",
    config=ClassifierConfig,
    summary="a classifier on un-prompted features; the task of the predicted class is taken",
    citation="Wang et al., Hierarchical Decomposition of Prompt-Based Continual Learning, NeurIPS 2023",
    build=Classifier,
)
