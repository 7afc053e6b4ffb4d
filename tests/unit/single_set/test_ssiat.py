"""ssiat: its loss, what alignment trains, and Gaussians that follow the adapter."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from lw2g.interfaces.pool import Pool
from lw2g_single_set.options import SsiatConfig
from lw2g_single_set.ssiat import Ssiat


@pytest.fixture
def begun(stream_of):
    """A baseline that has learned one task, its stream and the context of the second task."""
    stream = stream_of([(0, 1), (2, 3), (4, 5)])
    baseline, pool = Ssiat(SsiatConfig(bottleneck=8, lr=0.1, align_epochs=1), stream.build), Pool()
    stream.learn(baseline, stream.begin(baseline, pool, 0))
    return baseline, stream, stream.begin(baseline, pool, 1)


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_loss_is_cross_entropy_of_scaled_cosines_less_a_margin(stream_of, margin):
    """Over the task's classes alone; a margin of 0.3 takes 6 off the true class at a scale of 20."""
    stream = stream_of([(0, 1), (2, 3)])
    baseline, batch = Ssiat(SsiatConfig(margin=margin), stream.build), stream.batch((2, 3))
    features = torch.randn(len(batch), stream.backbone.dim)
    logits = 20 * functional.cosine_similarity(features[:, None], baseline.head.weight[None, 2:], dim=-1)
    logits = logits - 20 * margin * functional.one_hot(batch.labels - 2, 2)
    torch.testing.assert_close(
        baseline.class_loss(features, batch, stream.tasks[1]),
        functional.cross_entropy(logits, batch.labels - 2),
    )


def test_alignment_draws_old_classes_nearer_to_zero_and_trains_the_classifier_alone(begun):
    """Means of the first of two tasks count 0.95, of the newest 1; the aligned classifier stays."""
    baseline, _, context = begun
    phases = {phase.name: phase for phase in baseline.phases(context)}
    assert list(phases) == ["head-before", "adapters", "head-carry", "statistics", "alignment"]
    for name in ("head-before", "head-carry", "statistics"):
        phases[name].run(lambda done, total: None)
    baseline.statistics.spread.mul_(1e-4)
    drawn, cosines = [], baseline.cosines
    baseline.cosines = lambda rows: drawn.append(rows.detach()) or cosines(rows)
    adapter = [value.clone() for value in context.parameters.parameters()]
    before = baseline.head.weight.clone()
    next(phase for phase in baseline.phases(context) if phase.name == "alignment").run(
        lambda done, total: None
    )
    means = baseline.statistics.mean[:4, 0] * torch.tensor([0.95, 0.95, 1.0, 1.0])[:, None]
    assert torch.cdist(torch.cat(drawn), means).min(dim=1).values.max() < 0.01 * means.norm()
    assert not torch.equal(baseline.head.weight[:4], before[:4])
    assert all(map(torch.equal, adapter, context.parameters.parameters()))


def test_gaussians_of_old_classes_follow_the_adapter(begun):
    """After a task that moves all features alike, old means have moved with them; covariances stay."""
    baseline, _, context = begun
    phases = {phase.name: phase for phase in baseline.phases(context)}
    phases["head-before"].run(lambda done, total: None)
    mean, spread = baseline.statistics.mean.clone(), baseline.statistics.spread.clone()
    features = baseline.features
    baseline.features = lambda batch, routing: features(batch, routing) + 3.0
    phases["head-carry"].run(lambda done, total: None)
    torch.testing.assert_close(baseline.statistics.mean[:2], mean[:2] + 3.0)
    assert torch.equal(baseline.statistics.spread, spread)
    assert sum(baseline.findings()["carried_by"].values()) == 1
