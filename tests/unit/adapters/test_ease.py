"""EASE: what is measured, what is synthesised, and how subspaces are weighed."""

from __future__ import annotations

import math

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g_adapters.ease import Ease, synthesise
from lw2g_adapters.options import EaseConfig

CONFIG = EaseConfig(bottleneck=4, lr=0.5)


def cos(one, other):
    return functional.cosine_similarity(one, other, dim=-1)


@pytest.fixture
def three(learn):
    """Three tasks with a set each."""
    return learn(Ease, CONFIG)


def test_measured_prototypes_are_class_means(three, bench, rows_under):
    """Under its own set and every one before it a class lies at the mean of its features."""
    baseline, pool, _ = three
    for index in range(3):
        rows, labels = rows_under(baseline, pool, index), bench.batch(index).labels
        for label in bench.tasks[index].classes:
            assert baseline.owner[label] == index
            for set_id, space in enumerate(baseline.subspaces):
                assert bool(space.measured[label]) == (set_id <= index)
                if set_id <= index:
                    mean = rows[labels == label, set_id].mean(0)
                    torch.testing.assert_close(space.prototype[label], mean)


def test_synthesised_prototypes_are_those_of_the_formula(three, bench):
    """Above the diagonal: means of the classes known there, by a softmax over cosines in the own subspace."""
    spaces = [(one.prototype, one.measured) for one in three[0].subspaces]
    for here in (1, 2):
        known = range(2 * here, 6)
        for label in range(2 * here):
            own = spaces[label // 2][0]
            weights = torch.tensor([math.exp(cos(own[label], own[one])) for one in known])
            assert float(weights.max() / weights.min()) <= math.e**2
            weights = weights / weights.sum()
            expected = sum(w * spaces[here][0][one] for w, one in zip(weights, known, strict=True))
            torch.testing.assert_close(spaces[here][0][label], expected, atol=1e-6, rtol=1e-5)


def test_one_known_class_stands_for_all():
    """With a single known class every old one is put where it lies."""
    here = torch.randn(1, 8)
    assert torch.allclose(synthesise(torch.randn(3, 8), torch.randn(1, 8), here), here.expand(3, 8))


@pytest.mark.parametrize("share", ["together", "each"])
@pytest.mark.parametrize("plain", [0.0, 0.7])
def test_scores_are_those_of_the_formula(learn, bench, rows_under, share, plain):
    """A class's own subspace counts once, the others with their weight, un-adapted features with theirs."""
    config = attrs.evolve(CONFIG, other_weight=0.3, other_share=share, plain_weight=plain)
    baseline, pool, _ = learn(Ease, config)
    rows = rows_under(baseline, pool, 2)
    assert rows.shape[1] == (4 if plain else 3)
    weight = 0.3 / (2 if share == "together" else 1)
    expected = torch.zeros(4, 6)
    for label in range(6):
        for set_id, space in enumerate(baseline.subspaces):
            factor = 1 if label // 2 == set_id else weight
            expected[:, label] += factor * cos(rows[:, set_id], space.prototype[label])
        if plain:
            assert torch.allclose(rows[:, 3], bench.batch(2).query, atol=1e-5)
            expected[:, label] += plain * cos(rows[:, 3], baseline.plain.prototype[label])
    torch.testing.assert_close(baseline.logits(rows), expected, atol=1e-5, rtol=1e-5)


def test_one_shared_set_leaves_nothing_to_synthesise(learn, rows_under):
    """All tasks in one set: one pass, plain cosines to class means, whatever others would weigh."""
    baseline, pool, _ = learn(Ease, attrs.evolve(CONFIG, other_weight=5.0), sets=(None, 0, 0))
    rows = rows_under(baseline, pool, 1)
    assert rows.shape[1] == 1
    assert baseline.subspaces[0].measured.all()
    expected = cos(rows, baseline.subspaces[0].prototype[None])
    torch.testing.assert_close(baseline.logits(rows), expected)
    assert baseline.set_scores(rows) is None


def test_sharing_makes_a_column_a_set(learn):
    """A class that reuses an old set has that one for its own, and is measured under the newer one too."""
    baseline, _, _ = learn(Ease, CONFIG, sets=(None, None, 0))
    assert baseline.owner.tolist() == [0, 0, 1, 1, 0, 0]
    assert baseline.subspaces[0].measured.all()
    assert baseline.subspaces[1].measured.tolist() == [False, False, True, True, True, True]
    assert not baseline.subspaces[2].measured.any()
