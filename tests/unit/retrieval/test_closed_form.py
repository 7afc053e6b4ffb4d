"""Closed-form retrieval: what it takes in, and which of a task's images choose its constants."""

from __future__ import annotations

import torch

from lw2g.blocks.ridge import PENALTIES, Ridge
from lw2g.blocks.statistics import held_back
from lw2g_retrieval.closed_form_retrieval import ridge
from lw2g_retrieval.options import RidgeConfig


def test_the_penalty_of_ridge_has_the_least_error_over_all_tasks(world):
    """Each task adds its held-out errors, as a ridge head's does; every image is in the sums at the end."""
    strategy = ridge(RidgeConfig(features=20), world.build)
    alone = Ridge(8, world.build.num_classes, 20, 0)
    alone.load_state_dict(strategy.classifier.state_dict())
    alone.lift.get_buffer("matrix").copy_(strategy.classifier.lift.get_buffer("matrix"))
    for index in range(3):
        context = world.begin(strategy)
        queries, labels = world.queries(index)
        strategy.fit(queries, labels, context)
        own = ~held_back(labels)
        alone.learn(queries[own], labels[own], context.generator("retrieval-statistics"))
        alone.update(queries[~own], labels[~own])
    assert torch.equal(strategy.classifier.errors, alone.errors)
    assert strategy.classifier.penalty in PENALTIES
    for name, value in alone.state_dict().items():
        assert torch.equal(strategy.classifier.state_dict()[name], value)
    assert strategy.classifier.count.tolist() == [6] * 6 + [0, 0]
