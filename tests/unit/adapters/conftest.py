"""A tiny frozen ViT for adapter baselines, and ways to learn tasks and to look at what is left."""

from __future__ import annotations

import pytest
import torch

from lw2g.interfaces.pool import Pool, Routing
from lw2g_testing.tiny import tiny_backbone


@pytest.fixture(autouse=True)
def _seeded():
    """Draws of a test depend on that test alone."""
    torch.manual_seed(2)


@pytest.fixture(scope="session")
def tiny():
    """A random ViT of six blocks and width 32 whose features differ between images."""
    return tiny_backbone(spread=0.1)


@pytest.fixture
def bench(bench_of, tiny):
    """The stream of three tasks of two classes and four images each."""
    return bench_of(tiny)


@pytest.fixture
def learn(bench):
    """Learn some tasks, each in a set of its own or in the one that is named."""

    def run(kind, config, sets=(None, None, None), **options):
        baseline, pool = kind(config, bench.build), Pool()
        for index, reuse in enumerate(sets):
            context = bench.begin(baseline, pool, index, reuse=reuse)
            bench.learn(baseline, context, **options)
            baseline.eval()
        return baseline, pool, context

    return run


@pytest.fixture
def rows_under(bench):
    """Features of a task's images under every set and what answers beside them, ``[4, K, F]``."""

    @torch.no_grad()
    def read(baseline, pool, index):
        members = (*pool.sets, *baseline.beside())
        routings = [Routing(sets=members, chosen=place) for place in range(len(members))]
        return torch.stack([baseline.features(bench.batch(index), one) for one in routings], dim=1)

    return read
