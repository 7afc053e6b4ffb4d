"""Strategies that learn from queries tell separated tasks apart."""

from __future__ import annotations

import pytest

from lw2g.registry.catalogue import load_catalogue
from tasks import retrieved

STRATEGIES = [
    *[("centroids", {"metric": metric, "clusters": 1}, 12) for metric in ("euclidean", "cosine")],
    ("centroids", {"metric": "cosine", "clusters": 3}, 12),
    ("centroids", {"clusters": 40}, 12),  # more than images
    ("key-cosine", {"keys": "per-task"}, 12),
    ("key-cosine", {"keys": "per-set"}, 12),
    ("class-keys", {}, 11),
    ("classifier", {"lr": 0.2, "clusters": 2, "replay_epochs": 20, "replay_lr": 0.2}, 11),
    ("lda", {}, 12),
    ("mahalanobis", {}, 12),
    ("ridge", {"features": 20}, 11),
]


@pytest.mark.parametrize(
    ("name", "options", "least"), STRATEGIES, ids=[f"{row[0]}-{row[1]}" for row in STRATEGIES]
)
def test_separated_tasks_are_found(world, name, options, least):
    """Nearly every one of twelve samples gets its own task, after tasks that were learned one by one."""
    component = load_catalogue().get("retrieval", name)
    strategy = component.build(component.config(**options), world.build)
    for _ in range(3):
        context = world.begin(strategy)
        world.learn(strategy, context)
    for index in range(3):
        found = retrieved(strategy, world.queries(index)[0], range(3), context.task_of_class())
        assert int((found == index).sum()) >= least
