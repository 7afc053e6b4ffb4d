"""centroids: nearest k-means centre, by either metric."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from lw2g_retrieval.centroids import Centroids
from lw2g_retrieval.key_cosine import KeyCosine
from lw2g_retrieval.options import CentroidsConfig, KeyCosineConfig
from tasks import retrieved

TASK_OF_CLASS = torch.arange(8) // 2


@pytest.mark.parametrize(("metric", "norm"), [("euclidean", 2), ("manhattan", 1)])
def test_nearest_is_nearest(world, metric, norm):
    """The choice equals a search by hand over all stored centroids of seen tasks."""
    strategy = Centroids(CentroidsConfig(clusters=3, metric=metric), world.build)
    for index in range(3):
        strategy.fit(index, torch.randn(20, 8) + index)
    query = torch.randn(30, 8) + 1
    rows = functional.normalize(query, dim=1) if metric == "manhattan" else query
    by_hand = [
        min((0, 2), key=lambda task: min(float((row - c).norm(norm)) for c in strategy.centroid[task]))
        for row in rows
    ]
    assert retrieved(strategy, query, [0, 2], TASK_OF_CLASS).tolist() == by_hand


def test_one_cosine_centroid_is_a_key(world):
    """One centroid of normalised features chooses as a key that is their mean."""
    strategy = Centroids(CentroidsConfig(clusters=1, metric="cosine"), world.build)
    keys = KeyCosine(KeyCosineConfig(), world.build)
    for index in range(4):
        rows = torch.randn(15, 8) + torch.eye(8)[index]
        strategy.fit(index, rows)
        with torch.no_grad():
            keys.key[index].copy_(functional.normalize(rows, dim=1).mean(0))
    query = torch.randn(60, 8)
    chosen = retrieved(strategy, query, range(4), TASK_OF_CLASS)
    assert torch.equal(chosen, retrieved(keys, query, range(4), TASK_OF_CLASS))
    assert len(chosen.unique()) > 1


def test_centroids_are_reproducible_and_leave_the_generator_alone(world):
    """Clustering the same queries twice gives the same bits and draws no random number."""
    state = torch.get_rng_state()
    first, second = (Centroids(CentroidsConfig(), world.build) for _ in range(2))
    for strategy in (first, second):
        strategy.fit(0, world.queries(0)[0])
    assert torch.equal(first.centroid, second.centroid)
    assert torch.equal(state, torch.get_rng_state())


def test_old_centroids_stay(world):
    """Later tasks, in the same set or not, leave the centroids of earlier ones alone."""
    strategy = Centroids(CentroidsConfig(clusters=2), world.build)
    world.learn(strategy, world.begin(strategy))
    before = strategy.centroid[0].clone()
    world.learn(strategy, world.begin(strategy, reuse=0))
    assert torch.equal(strategy.centroid[0], before)
    assert strategy.count.sum(1).tolist() == [12, 12, 0, 0]
