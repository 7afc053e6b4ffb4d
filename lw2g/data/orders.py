"""Class orders in which neighbouring tasks are alike, or unlike, in the features of a frozen backbone.

Accuracy depends on the order of classes, and three random orders miss its extremes (EDGE, "The Lie of the
Average", ICLR 2026, which takes text features). The search is ours: swaps of two classes that improve the
mean similarity of neighbouring tasks, until none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations

import attrs
import numpy as np
import numpy.typing as npt
import torch

from lw2g.base.checks import stream_of, transforms_of
from lw2g.config.model import ExperimentConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.stream import ImageTransform, TaskStream
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.backbone import Backbone

__all__ = ["FoundOrder", "adjacent_similarity", "class_means", "find_order", "order_by_similarity"]

Array = npt.NDArray[np.float64]
_BATCH = 32
_MOST_ROUNDS = 50
"""A bound: each round that improves nothing ends the search before."""


@attrs.frozen(kw_only=True)
class FoundOrder:
    """An order of a benchmark's classes.

    Attributes:
        class_names: The classes in this order.
        similarity: Mean cosine of neighbouring tasks.
        similarity_before: The same in the order that the benchmark had.
    """

    class_names: Sequence[str]
    similarity: float
    similarity_before: float


def find_order(config: ExperimentConfig, catalogue: Catalogue, *, alike: bool, seed: int = 0) -> FoundOrder:
    """Return an order of a benchmark's classes in which neighbouring tasks are most alike, or least.

    Args:
        config: Names the benchmark and the backbone whose features are compared.
        catalogue: Where these come from.
        alike: Whether neighbours are to be alike.
        seed: Draws where the search begins.

    Raises:
        ConfigError: The tasks do not consist of different classes.
    """
    benchmark = catalogue.get("benchmark", config.benchmark.name).build(config.benchmark.config)
    stream = stream_of(benchmark, config.benchmark.name)
    if len(stream.tasks) < 2 or stream.targets is not None:
        raise ConfigError("only disjoint tasks of classes have such an order", "use benchmark.stream=classes")
    chosen = config.backbone
    model = catalogue.get("backbone", chosen.name).build(chosen.config, chosen.weights, chosen.image_size)
    known = model.fingerprint
    still = transforms_of(benchmark, config.benchmark.name, known).test
    means = class_means(stream, model, still)
    sizes = [len(task.classes) for task in stream.tasks]
    found = order_by_similarity(means, sizes, alike=alike, seed=seed)
    return FoundOrder(
        class_names=[stream.class_names[row] for row in found],
        similarity=adjacent_similarity(means[found], sizes),
        similarity_before=adjacent_similarity(means, sizes),
    )


@torch.no_grad()
def class_means(stream: TaskStream, backbone: Backbone, still: ImageTransform, images: int = 20) -> Array:
    """Return the mean class-token feature of each class's first training images, ``[classes, dim]``.

    Rows are in the stream's order of positions. Training images alone are read.
    """
    means = []
    for task in stream.tasks:
        for position in task.classes:
            rows = task.train.indices[task.train.labels == position][:images]
            found = []
            for start in range(0, len(rows), _BATCH):
                batch = rows[start : start + _BATCH].tolist()
                pixels = torch.stack([still(task.train.source.image(row)) for row in batch])
                found.append(backbone.features(pixels.to(backbone.device)))
            means.append(torch.cat(found).double().mean(dim=0).cpu().numpy())
    return np.stack(means)


def adjacent_similarity(means: Array, sizes: Sequence[int]) -> float:
    """Return the mean cosine of the features of neighbouring tasks, less the mean of all classes.

    Args:
        means: A feature of each class in order, ``[classes, dim]``.
        sizes: Number of classes of each task; at least two tasks.
    """
    return _similarity(means - means.mean(axis=0), _borders(sizes))


def order_by_similarity(means: Array, sizes: Sequence[int], *, alike: bool, seed: int = 0) -> list[int]:
    """Return the rows of ``means`` in an order in which neighbouring tasks are most alike, or least.

    It is a local optimum: no swap of two classes of different tasks improves it. The seed draws where the
    search begins.
    """
    borders = _borders(sizes)
    sign = 1.0 if alike else -1.0
    centred = means - means.mean(axis=0)
    order = np.random.default_rng(seed).permutation(len(means))
    task_of = np.repeat(np.arange(len(sizes)), sizes)
    best = sign * _similarity(centred[order], borders)
    for _ in range(_MOST_ROUNDS):
        before = best
        for one, other in combinations(range(len(order)), 2):
            if task_of[one] == task_of[other]:
                continue
            order[[one, other]] = order[[other, one]]
            value = sign * _similarity(centred[order], borders)
            if value > best + 1e-12:  # not by rounding alone, which could go on without an end
                best = value
            else:
                order[[one, other]] = order[[other, one]]
        if best == before:
            break
    rows: list[int] = order.tolist()
    return rows


def _borders(sizes: Sequence[int]) -> list[int]:
    """Return the place of each task's first class."""
    if len(sizes) < 2:
        raise ValueError(f"expected at least two tasks but got {len(sizes)}")
    return [0, *accumulate(sizes)][:-1]


def _similarity(centred: Array, borders: Sequence[int]) -> float:
    tasks = np.add.reduceat(centred, borders)  # a sum has the direction of the mean
    tasks /= np.maximum(np.linalg.norm(tasks, axis=1, keepdims=True), 1e-12)
    return float((tasks[1:] * tasks[:-1]).sum(axis=1).mean())
