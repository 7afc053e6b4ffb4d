"""Nearest centroid: k-means centres of each task's un-prompted features (S-Prompts)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.plugin import (
    BuildContext,
    ComputePhase,
    Phase,
    RetrievalStrategy,
    TaskContext,
    cluster,
    collect_features,
)
from lw2g_retrieval.options import CentroidsConfig

__all__ = ["Centroids"]


class Centroids(RetrievalStrategy):
    """The nearest of all seen tasks' centroids names the task; nothing is trained.

    Centroids belong to tasks and are never averaged: those of the tasks that share a set form its larger
    codebook. They are computed once per task on un-augmented images, and no prompt moves them.
    """

    centroid: Tensor
    count: Tensor

    def __init__(self, config: CentroidsConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        shape = (context.num_tasks, config.clusters)
        self.register_buffer("centroid", torch.zeros(*shape, context.backbone.width))
        self.register_buffer("count", torch.zeros(shape, dtype=torch.long))
        self.to(context.device)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: cluster the task's queries."""

        def run(progress: Callable[[int, int], None]) -> None:
            queries, _ = collect_features(context, lambda batch: batch.query, progress)
            self.fit(context.task.index, queries)

        return (ComputePhase(name="retrieval-centroids", run=run),)

    def fit(self, task: int, queries: Tensor) -> None:
        """Replace the centroids of a task by those of its queries ``[n, dim]``."""
        rows = self._prepared(queries)
        owner = cluster(rows, self.config.clusters).to(rows.device)
        # a task of few images has fewer clusters: those with count 0 are nobody's nearest
        self.count[task] = torch.bincount(owner, minlength=self.config.clusters)
        self.centroid[task] = 0.0
        for position in range(int(owner.max()) + 1):
            self.centroid[task, position] = rows[owner == position].mean(0)

    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Return minus the distance to the nearest centroid of each seen task, ``[B, len(seen)]``."""
        tasks = torch.as_tensor(tuple(seen), dtype=torch.long, device=query.device)
        centroids = self.centroid[tasks].flatten(0, 1)
        match self.config.metric:
            case "cosine":
                # a mean of unit vectors is shorter than 1
                distance = -self._prepared(query) @ functional.normalize(centroids, dim=-1).T
            case "manhattan":
                distance = torch.cdist(self._prepared(query), centroids, p=1.0)
            case "euclidean":
                # not the expanded square, which cancels for features far from the origin
                distance = torch.cdist(query, centroids, compute_mode="donot_use_mm_for_euclid_dist")
        missing = (self.count[tasks] == 0).flatten()
        distance = distance.masked_fill(missing, float("inf"))
        return -distance.reshape(len(query), len(tasks), -1).amin(dim=2)

    def _prepared(self, features: Tensor) -> Tensor:
        if self.config.metric == "euclidean":
            return features
        return functional.normalize(features, dim=-1)
