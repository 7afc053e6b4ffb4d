"""Building block: Gaussians that represent the features of an old class, whose images are gone.

They serve to retrain classifiers (:mod:`lw2g.blocks.replay`) and as constants in losses. Retrieval by
centroids uses the clustering alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from lw2g.blocks.carrying import Motion
from lw2g.blocks.options import ReplayOptions, StatisticsMode
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase

__all__ = [
    "ClassStatistics",
    "cluster",
    "collect_features",
    "held_back",
    "statistics_phase",
]

_HELD_BACK = 5
"""Every fifth image of each class is held back to fit what is fitted, and taken in afterwards."""

Progress = Callable[[int, int], None]

_STARTS = 10
"""Random starts of k-means, which keeps the best: scikit-learn's default when the methods were released."""

_JITTER = 1e-4
"""Added to every variance, as in the released code."""
_BATCH = 64
"""Images of a forward whose features are collected."""


def cluster(features: Tensor, clusters: int, seed: int = 0) -> Tensor:
    """Return the k-means cluster of each row, ``[n]`` int64 on the CPU, numbered without gaps from 0.

    Args:
        features: ``[n, d]``, n >= 1.
        clusters: Number of clusters; at most one per distinct row.
        seed: Fixes the initial centres.
    """
    # scikit-learn takes a second to import; runs without clusters save it
    from sklearn.cluster import KMeans

    rows = features.detach().cpu().numpy()
    distinct = len(np.unique(rows, axis=0))
    model = KMeans(n_clusters=min(clusters, distinct), n_init=_STARTS, random_state=seed)
    # a cluster can still end up empty
    owner: Tensor = torch.unique(torch.from_numpy(model.fit_predict(rows)).long(), return_inverse=True)[1]
    return owner


class ClassStatistics(nn.Module):
    """Gaussians of class features; allocated at full size, so that the state dict keeps its shapes.

    The modes are HiDe-Prompt's:

    - ``multi-centroid``: k-means; a mean and a biased per-dimension variance per cluster.
    - ``variance``: one mean and unbiased per-dimension variance per class.
    - ``covariance``: one mean and full covariance per class, kept as a Cholesky factor (``dim^2`` numbers).

    Args:
        num_classes: Number of classes of the stream.
        dim: Width of the features.
        mode: One of the modes.
        clusters: Clusters per class for ``multi-centroid``.

    Attributes:
        mean: ``[num_classes, K, dim]``, with K = 1 except for ``multi-centroid``.
        spread: Variances ``[num_classes, K, dim]``, or factors ``[num_classes, 1, dim, dim]``.
        count: Samples per cluster, ``[num_classes, K]`` int64; 0 for a cluster that does not exist.
    """

    mean: Tensor
    spread: Tensor
    count: Tensor

    def __init__(
        self, num_classes: int, dim: int, mode: StatisticsMode = "multi-centroid", clusters: int = 10
    ) -> None:
        super().__init__()
        self.mode = mode
        per_class = 1
        spread: tuple[int, ...] = (dim,)  # variances
        if mode == "multi-centroid":
            per_class = clusters
        if mode == "covariance":
            spread = (dim, dim)
        self.register_buffer("mean", torch.zeros(num_classes, per_class, dim))
        self.register_buffer("spread", torch.zeros(num_classes, per_class, *spread))
        self.register_buffer("count", torch.zeros(num_classes, per_class, dtype=torch.long))
        # what :meth:`_existing` last answered: what it was asked, classes, and positions of clusters
        self._known: tuple[tuple[object, ...], Tensor, Tensor] | None = None

    @classmethod
    def of(cls, options: ReplayOptions, context: BuildContext, dim: int | None = None) -> Self:
        """Return empty statistics for all classes; features have the backbone's width unless ``dim`` says."""
        width = dim or context.backbone.dim
        return cls(context.num_classes, width, options.statistics, options.clusters).to(context.device)

    def fit(self, label: int, features: Tensor) -> None:
        """Fit the statistics of one class.

        Args:
            label: Position of the class.
            features: All its features ``[n, dim]``, n >= 1: only one task has images of the class.

        Raises:
            ValueError: There are no features, or the class already has statistics.
        """
        if not len(features):
            raise ValueError(f"expected features of class {label} but got none")
        if self.count[label].any():
            raise ValueError(f"expected a class without statistics but got {label}; they would be lost")
        features = features.detach().to(self.mean)
        owner = torch.zeros(len(features), dtype=torch.long)
        if self.mode == "multi-centroid":
            owner = cluster(features, self.mean.shape[1])
        for position in range(int(owner.max()) + 1):
            members = features[(owner == position).to(features.device)]
            self.mean[label, position] = members.mean(0)
            self.spread[label, position] = self._spread_of(members)
            self.count[label, position] = len(members)

    def phase(self, name: str, context: TaskContext, features: Callable[[Batch], Tensor]) -> ComputePhase:
        """Return the phase that fits the Gaussians of the task's classes.

        Args:
            name: Shown in the progress.
            context: The task.
            features: Returns the features of a batch.
        """

        def run(progress: Progress) -> None:
            rows, labels = collect_features(context, features, progress)
            for label in context.task.classes:
                self.fit(label, rows[labels == label])

        return ComputePhase(name=name, run=run)

    @torch.no_grad()
    def carry(self, motion: Motion, classes: Sequence[int]) -> None:
        """Move the Gaussians of classes with their features; of a covariance what the mode keeps.

        Each cluster is a row of the motion: a gate lets it move by its own distance to the new classes.
        """
        if motion.still:
            return
        label, position = self._existing(tuple(classes))  # of each cluster, ``[n]``
        means = self.mean[label, position].double()
        self.mean[label, position] = motion(means).to(self.mean)
        if motion.linear is None and motion.left is None:
            return
        for row, column in zip(label.tolist(), position.tolist(), strict=True):
            spread = self.spread[row, column].double()
            if self.mode == "covariance":
                moved = _carried_factor(spread, motion)
            else:
                moved = motion.scatter(torch.diag(spread), 1).diagonal()
            self.spread[row, column] = moved.to(self.spread)

    def centres(self, classes: Tensor) -> Tensor:
        """Return the mean features of classes that have some, ``[n, dim]`` float64."""
        count = self.count[classes].double()
        return (self.mean[classes].double() * count[..., None]).sum(1) / count.sum(1, keepdim=True)

    def centroids(self, classes: Sequence[int]) -> Tensor:
        """Return the means of all clusters of the given classes, ``[m, dim]``, class after class."""
        label, position = self._existing(tuple(classes))
        return self.mean[label, position]

    def _existing(self, classes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return class and number of each existing cluster of the classes, on the device.

        Losses call it at every step, and reading the counts waits for the device; so the result is cached
        until a count changes.
        """
        # a state that is loaded counts as a change in place, a move to a device gives another address
        asked = (classes, self.count._version, self.count.data_ptr())
        if self._known is not None:
            answered, label, position = self._known
            if answered == asked:
                return label, position
        exists = self.count[list(classes)] > 0
        row, position = exists.cpu().nonzero().unbind(1)
        label = torch.tensor(classes, dtype=torch.long)[row]
        device = self.mean.device
        label = label.to(device)
        position = position.to(device)
        self._known = (asked, label, position)
        return label, position

    def sample(
        self,
        classes: Sequence[int],
        per_centroid: int,
        generator: torch.Generator,
        limit: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw features from every cluster of the given classes, in random order.

        Clusters without variance (of a single image) are left out unless the class has no other. Without a
        limit every class is drawn.

        Args:
            classes: Positions of fitted classes.
            per_centroid: Samples per cluster.
            generator: On the CPU, so that draws do not depend on the device.
            limit: Largest number of samples; it cuts the shuffled order, and the rest is never computed.

        Returns:
            Features ``[n, dim]`` and labels ``[n]``, on the device of the statistics.

        Raises:
            ValueError: A class has not been fitted.
        """
        pairs = self._sampled_clusters(tuple(classes))
        order = torch.randperm(len(pairs) * per_centroid, generator=generator)[:limit]
        chosen = pairs[order // per_centroid]
        label, position = chosen.to(self.mean.device).unbind(1)
        # the row of a cluster among those of all classes: one index is read faster than a pair
        cluster = label * self.mean.shape[1] + position
        noise = torch.randn(len(order), self.mean.shape[-1], generator=generator).to(self.mean)
        if self.mode == "covariance":
            # a class has one cluster, and its spread is the factor L of L L'
            for drawn in torch.unique(chosen[:, 0]):
                rows = (chosen[:, 0] == drawn).nonzero()[:, 0]
                noise[rows] = noise[rows] @ self.spread[drawn, 0].T
        else:
            # roots of all clusters: there are fewer clusters than samples
            deviation = (self.spread + _JITTER).sqrt().flatten(0, 1)
            noise = noise * deviation.index_select(0, cluster)
        return self.mean.flatten(0, 1).index_select(0, cluster) + noise, label

    def _sampled_clusters(self, classes: tuple[int, ...]) -> Tensor:
        """Return ``(class, cluster)`` rows of the clusters to sample, ``[n, 2]``, class by class, on the CPU.

        A cluster whose images are all equal is sampled only where its class has no other: its samples would
        be one point.
        """
        labels = list(classes)
        exists, varied = torch.stack(
            [self.count[labels] > 0, (self.spread[labels].flatten(2) != 0).any(dim=2)]
        ).cpu()
        if not exists.any(1).all():
            label = labels[int(exists.any(1).int().argmin())]
            raise ValueError(f"expected statistics of class {label} but got none; fit the class first")
        varied &= exists
        sampled = torch.where(varied.any(1, keepdim=True), varied, exists).nonzero()
        return torch.stack([torch.tensor(labels)[sampled[:, 0]], sampled[:, 1]], dim=1)

    def _spread_of(self, members: Tensor) -> Tensor:
        """Return the spread of the images of a cluster, as the mode asks for it.

        Args:
            members: Their features, ``[n, dim]``.

        Returns:
            Variances ``[dim]``; for the mode ``covariance`` the covariance's Cholesky factor, ``[dim, dim]``.
        """
        correction = 1
        if self.mode == "multi-centroid" or len(members) == 1:
            # biased, as released; and an unbiased variance of one image is not defined
            correction = 0
        if self.mode != "covariance":
            return members.var(0, correction=correction)
        # with fewer images than dimensions only the jitter makes it positive definite: factor in float64
        covariance = torch.cov(members.double().T, correction=correction).reshape(members.shape[1], -1)
        jitter = _JITTER * torch.eye(members.shape[1], dtype=torch.float64, device=members.device)
        factor: Tensor = torch.linalg.cholesky(covariance + jitter)
        return factor.to(members.dtype)


def statistics_phase(
    name: str, context: TaskContext, statistics: ClassStatistics, features: Callable[[Batch], Tensor]
) -> ComputePhase:
    """Return ``statistics.phase(name, context, features)``; methods made with 0.2.0 import it."""
    return statistics.phase(name, context, features)


@torch.no_grad()
def collect_features(
    context: TaskContext,
    features: Callable[[Batch], Tensor],
    progress: Progress | None = None,
    *,
    augmented: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return features ``[n, F]`` and labels ``[n]`` of the task's training images, in a fixed order.

    Args:
        context: The task.
        features: Returns the features of a batch.
        progress: Called with the number of images done and their total.
        augmented: The purpose of draws of the training transform; None for the test transform.
    """
    rows = []
    labels = []
    done = 0
    # one size for all: features have other last bits in batches of another size
    if augmented is None:
        batches = context.statistics(_BATCH)
    else:
        batches = context.training_images(_BATCH, augmented)
    for batch in batches:
        rows.append(features(batch))
        labels.append(batch.labels)
        done += len(batch)
        if progress is not None:
            progress(done, context.task.num_images)
    return torch.cat(rows), torch.cat(labels)


def _carried_factor(factor: Tensor, motion: Motion) -> Tensor:
    """Return the Cholesky factor ``[dim, dim]`` of a covariance after a motion.

    What keeps it positive definite is taken off before and put on once after, or it would add up over tasks.
    """
    jitter = _JITTER * torch.eye(len(factor)).to(factor)
    moved = motion.scatter(factor @ factor.T - jitter, 1)
    moved = (moved + moved.T) / 2 + jitter
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex(moved)
    if failed:  # factors are float32: of large variances, rounding takes more than was put on
        rounding = torch.finfo(torch.float32).eps * moved.diagonal().sum()
        lower = torch.linalg.cholesky(moved + (_JITTER + rounding) * torch.eye(len(moved)).to(moved))
    return lower


def held_back(labels: Tensor) -> Tensor:
    """Return which images are held back, ``[n]`` bool: every fifth of each class, by its place.

    >>> held_back(torch.tensor([0, 0, 0, 0, 0, 1])).tolist()
    [False, False, False, False, True, False]
    """
    order = labels.argsort(stable=True)
    sizes = torch.bincount(labels)
    place_in_class = (
        torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[labels[order]]
    )
    held = torch.empty_like(labels, dtype=torch.bool)
    held[order] = place_in_class % _HELD_BACK == _HELD_BACK - 1
    return held
