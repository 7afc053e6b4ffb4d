"""One learned key per class, matched by cosine similarity (CPrompt's multi-key selection)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import Batch, BuildContext, ClassRetrieval, ParameterGroup, TaskContext
from lw2g_retrieval.options import ClassKeysConfig

__all__ = ["ClassKeys"]


class ClassKeys(ClassRetrieval):
    """The nearest class key names a class, and that class its task.

    Keys are trained in the host phase by cross-entropy on raw cosines, without temperature, over all seen
    classes; those of old classes take part but never turn. Weight decay shortens them all, those of classes
    to come as well: no cosine notices, but the step in angle of a key grows as its length falls, so that
    later tasks learn their keys faster. Queries are class tokens before the final norm.

    Attributes:
        key: ``[num_classes, dim]``; rows start orthonormal where the width allows it.
    """

    query_norm: ClassVar[bool] = False

    def __init__(self, config: ClassKeysConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.key = nn.Parameter(torch.empty(context.num_classes, context.backbone.dim))
        # for all classes at once, as only together they can be orthonormal
        nn.init.orthogonal_(self.key)
        self.to(context.device)

    def parameter_groups(self, context: TaskContext, lr: float) -> Sequence[ParameterGroup]:
        """Train the keys in proportion to the host; only rows of the task's classes get a gradient."""
        config = self.config
        group = ParameterGroup(
            parameters=(self.key,), lr=lr * config.lr_factor, weight_decay=config.weight_decay
        )
        return (group,)

    def loss(self, batch: Batch, context: TaskContext) -> Tensor | None:
        """Return cross-entropy of the cosines to the keys of all seen classes, old keys detached."""
        # of all seen classes, unlike the head's loss: a new key has to stay off old ones
        old = self.key[: context.task.classes[0]].detach()
        keys = torch.cat([old, self.keys(context)])
        return functional.cross_entropy(_cosines(batch.query.detach(), keys), batch.labels)

    def keys(self, context: TaskContext) -> Tensor:
        """Return the keys of the task's classes, ``[c, dim]`` with gradient."""
        return self.key[context.task.classes[0] : context.task.seen]

    def class_scores(self, query: Tensor, classes: int) -> Tensor:
        """Return the cosine to the key of each class, ``[B, classes]``."""
        return _cosines(query, self.key[:classes])


def _cosines(query: Tensor, keys: Tensor) -> Tensor:
    return functional.normalize(query, dim=-1) @ functional.normalize(keys, dim=-1).T
