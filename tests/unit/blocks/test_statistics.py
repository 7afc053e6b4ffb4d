"""Class statistics: what is stored, what is drawn, and classes with few or equal images."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from lw2g.blocks.carrying import Motion
from lw2g.blocks.contrastive import self_identification_loss
from lw2g.blocks.statistics import ClassStatistics, cluster


def generator(seed: int = 0) -> torch.Generator:
    """Return a seeded generator."""
    return torch.Generator().manual_seed(seed)


def blobs(count: int, per_blob: int, dim: int = 6) -> torch.Tensor:
    """Return well separated clouds of points."""
    centres = 100 * torch.randn(count, dim, generator=generator(7))
    return (centres[:, None] + torch.randn(count, per_blob, dim, generator=generator(8))).flatten(0, 1)


def test_centroids_and_variances_of_separated_clouds():
    """K-means finds separated clouds; each keeps its mean and biased variance."""
    features = blobs(3, 20)
    statistics = ClassStatistics(2, 6, clusters=3)
    statistics.fit(1, features)
    for cloud in features.reshape(3, 20, 6):
        nearest = (statistics.mean[1] - cloud.mean(0)).norm(dim=1).argmin()
        torch.testing.assert_close(statistics.mean[1, nearest], cloud.mean(0))
        biased = (cloud - cloud.mean(0)).square().mean(0)
        torch.testing.assert_close(statistics.spread[1, nearest], biased)
    assert statistics.count[1].tolist() == [20, 20, 20]
    assert statistics.centroids([1]).shape == (3, 6)
    assert statistics.centroids([0]).shape == (0, 6)


def test_clusters_are_the_best_of_ten_starts():
    """The sum of squared distances is that of ten k-means starts, which one start does not reach."""
    features = torch.randn(80, 2, generator=generator(5))

    def spread(starts):
        return KMeans(n_clusters=8, n_init=starts, random_state=0).fit(features.numpy()).inertia_

    owner = cluster(features, 8)
    clouds = [features[owner == position] for position in range(8)]
    found = sum(float((cloud - cloud.mean(0)).square().sum()) for cloud in clouds)
    assert found == pytest.approx(spread(10), rel=1e-5)
    assert found < 0.999 * spread(1)


@pytest.mark.parametrize("mode", ["multi-centroid", "variance", "covariance"])
def test_samples_have_the_moments_of_the_class(mode):
    """Mean and covariance of many samples match those of the features, as far as the mode keeps them."""
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [0.0, 0.3, 2.0]])
    features = torch.randn(4000, 3, generator=generator()) @ mixing.T + torch.tensor([5.0, 0.0, -5.0])
    statistics = ClassStatistics(1, 3, mode, clusters=1)
    statistics.fit(0, features)
    drawn, labels = statistics.sample([0], 40_000, generator(1))
    assert labels.unique().tolist() == [0]
    torch.testing.assert_close(drawn.mean(0), features.mean(0), atol=0.05, rtol=0)
    kept = torch.cov(features.T) if mode == "covariance" else torch.diag(torch.cov(features.T).diagonal())
    torch.testing.assert_close(torch.cov(drawn.T), kept, atol=0.12, rtol=0)


@given(counts=st.lists(st.integers(1, 14), min_size=1, max_size=4), clusters=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_any_number_of_images_works(counts, clusters):
    """Whatever the class sizes, every class is drawn and no cluster is more than a class has images."""
    statistics = ClassStatistics(len(counts), 3, clusters=clusters)
    for label, count in enumerate(counts):
        statistics.fit(label, torch.randn(count, 3, generator=generator(label)))
        assert int(statistics.count[label].sum()) == count
        assert len(statistics.centroids([label])) <= min(count, clusters)
    features, labels = statistics.sample(range(len(counts)), 2, generator())
    assert labels.unique().tolist() == list(range(len(counts)))
    assert torch.isfinite(features).all()


def test_clusters_of_one_image_are_skipped():
    """A cluster without variance is not drawn while the class has another."""
    features = torch.cat([torch.randn(20, 4, generator=generator()), torch.full((1, 4), 500.0)])
    statistics = ClassStatistics(1, 4, clusters=2)
    statistics.fit(0, features)
    assert sorted(statistics.count[0].tolist()) == [1, 20]
    drawn, _ = statistics.sample([0], 50, generator())
    assert len(drawn) == 50
    assert float(drawn.max()) < 50


def test_a_class_of_equal_images_is_still_drawn():
    """A class whose every cluster is a point is drawn around its points instead of being forgotten."""
    statistics = ClassStatistics(1, 4, clusters=3)
    statistics.fit(0, torch.ones(5, 4))
    drawn, _ = statistics.sample([0], 2000, generator())
    torch.testing.assert_close(drawn.mean(0), torch.ones(4), atol=2e-3, rtol=0)
    assert float(drawn.std()) == pytest.approx(0.01, rel=0.1)


def test_draws_are_shuffled_and_reproducible():
    """Per cluster equally many, in an order that the generator decides; a limit cuts the tail off."""
    statistics = ClassStatistics(3, 6, clusters=2)
    for label in range(3):
        statistics.fit(label, blobs(2, 10) + label)
    features, labels = statistics.sample([0, 2], 5, generator(3))
    assert torch.bincount(labels).tolist() == [10, 0, 10]
    assert labels.tolist() != sorted(labels.tolist())
    again = statistics.sample([0, 2], 5, generator(3))
    assert torch.equal(features, again[0])
    assert torch.equal(labels, again[1])
    some = statistics.sample([0, 2], 5, generator(3), limit=7)
    assert some[0].shape == (7, 6)
    assert torch.equal(some[1], labels[:7])


def test_the_global_generator_is_left_alone():
    """Fitting and drawing take nothing from torch's global generator."""
    state = torch.get_rng_state()
    statistics = ClassStatistics(1, 6, clusters=2)
    statistics.fit(0, blobs(2, 5))
    statistics.sample([0], 3, generator())
    assert torch.equal(state, torch.get_rng_state())


def test_a_class_is_not_fitted_twice():
    """What was known of its other images would be lost in silence."""
    statistics = ClassStatistics(2, 6, clusters=4)
    statistics.fit(1, blobs(4, 5))
    before = statistics.mean.clone()
    with pytest.raises(ValueError, match="expected a class without statistics but got 1; they would be lost"):
        statistics.fit(1, blobs(1, 1))
    assert torch.equal(statistics.mean, before)


def test_unknown_classes_are_refused():
    """Neither a fit without features nor a draw without a fit passes in silence."""
    statistics = ClassStatistics(2, 4)
    with pytest.raises(ValueError, match="expected features of class 1 but got none"):
        statistics.fit(1, torch.empty(0, 4))
    with pytest.raises(ValueError, match="expected statistics of class 0 but got none"):
        statistics.sample([0], 1, generator())


def test_clusters_are_numbered_without_gaps():
    """Fewer distinct rows than clusters give as many clusters as distinct rows."""
    rows = torch.tensor([[0.0], [9.0], [0.0], [9.0], [9.0]])
    owner = cluster(rows, 4)
    assert owner.unique().tolist() == [0, 1]
    assert len({(row, int(which)) for row, which in zip(rows[:, 0].tolist(), owner, strict=True)}) == 2


def test_contrast_equals_the_written_out_sum():
    """The loss is the mean over rows of logsumexp minus the row's own similarity."""
    features = torch.randn(3, 4, generator=generator(), requires_grad=True)
    centroids = torch.randn(2, 4, generator=generator(1), requires_grad=True)
    rows = torch.cat([centroids, features]).detach().double()
    by_hand = 0.0
    for row in rows:
        similarities = torch.stack([row @ other / 0.8 for other in rows])
        by_hand += (similarities.exp().sum().log() - row @ row / 0.8) / len(rows)
    loss = self_identification_loss(features, centroids)
    assert loss.item() == pytest.approx(float(by_hand), rel=1e-5)
    loss.backward()
    assert centroids.grad is None
    assert float(features.grad.norm()) > 0


def test_contrast_survives_large_features():
    """Squared norms far beyond float32's resolution still give the right loss."""
    big = torch.full((1, 4), 3e3)
    near = big + torch.tensor([[1e-2, 0.0, 0.0, 0.0]])
    expected = self_identification_loss(torch.cat([big, near]).double(), torch.empty(0, 4))
    loss = self_identification_loss(torch.cat([big, near]), torch.empty(0, 4))
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    assert float(loss) > 1


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_what_keeps_a_covariance_definite_is_added_once(scale):
    """A hundred carries that turn the features leave the covariance of the first, also of large features."""
    features = scale * torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    statistics = ClassStatistics(1, 6, "covariance")
    statistics.fit(0, features)
    before = statistics.spread[0, 0] @ statistics.spread[0, 0].T
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)).double())[0]
    for matrix in [turn, turn.T] * 50:
        statistics.carry(Motion(rows=lambda rows, matrix=matrix: rows @ matrix, linear=matrix), [0])
    after = statistics.spread[0, 0] @ statistics.spread[0, 0].T
    assert float((after - before).diagonal().abs().max()) < 1e-4 * scale**2 / 2
    flat = ClassStatistics(1, 6, "covariance")
    flat.fit(0, features[:1])
    for _ in range(100):
        flat.carry(Motion(rows=lambda rows: rows, linear=torch.eye(6).double()), [0])
    torch.testing.assert_close(flat.spread[0, 0], torch.eye(6) * 1e-2, rtol=1e-3, atol=1e-6)
