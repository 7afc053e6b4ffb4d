"""Heads of the frontier: each equals the textbook form of what it is said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.random_maps import RandomMap
from lw2g.blocks.ridge import Ridge
from lw2g.blocks.spectrum import Spectrum
from lw2g.interfaces.context import TaskInfo, derive_seed
from lw2g.maths.normal_equations import best_penalty, weights_of
from lw2g_heads.anacp import AnaCP, spread_means

DIM, CLASSES = 6, 4
EYE = torch.eye(CLASSES, dtype=torch.float64)


def drawn(seed: int, per_class: int = 10) -> tuple[Tensor, Tensor]:
    """Return float64 features about four means, shuffled, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    means = 2 * torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    return means[labels] + torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64), labels


def taught(head: Ridge | AnaCP, features: Tensor, labels: Tensor, tasks: int) -> Ridge | AnaCP:
    """Return the head after a stream of so many tasks."""
    for task, classes in enumerate(torch.arange(CLASSES).chunk(tasks)):
        own = torch.isin(labels, classes)
        head.learn(features[own], labels[own], torch.Generator().manual_seed(task))
    return head


# -- random maps ---------------------------------------------------------------------------------------------


def test_top_k_keeps_the_largest_entries_of_each_row():
    """Exactly round(kappa M) entries stay, with their signs; each random feature reads p features."""
    features = drawn(0)[0]
    lift = RandomMap(DIM, 50, 1, "top-k", row_nonzeros=2, kept=0.3)
    matrix = lift.get_buffer("matrix")
    assert (matrix != 0).sum(0).tolist() == [2] * 50
    rows, found = features @ matrix, lift(features)
    assert (found != 0).sum(1).tolist() == [15] * len(features)
    for row, kept in zip(rows, found, strict=True):
        assert torch.equal(kept[kept != 0].sort().values, row.sort().values[-15:])


def test_keeping_everything_is_the_linear_map():
    """With kappa 1 and p = d top-k is z R, whose rank is at most d; the same R as relu's."""
    features = drawn(1)[0]
    maps = [RandomMap(DIM, 9, 5, kind, row_nonzeros=DIM, kept=1.0) for kind in ("top-k", "none", "relu")]
    assert torch.equal(maps[0](features), maps[1](features))
    assert torch.equal(maps[1](features).relu(), maps[2](features))


@pytest.mark.parametrize("kind", ["relu", "top-k", "none"])
def test_maps_are_positively_homogeneous(kind):
    """Features three times as long, with nine times the penalty, have the same scores."""
    features, labels = drawn(2)
    scores = []
    for scale in (1.0, 3.0):
        head = Ridge(DIM, CLASSES, 30, 1, 0.7 * scale**2, choice="fixed", lift=kind, row_nonzeros=3)
        head.update(scale * features, labels)
        scores.append(head.scores(scale * features, CLASSES))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-9, atol=1e-9)


# -- penalties and spectra -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [7, 60])
def test_cross_validation_from_sums_is_that_from_rows(width):
    """The penalty has the least (R / n) / (1 - df / n)^2 by the hat matrix of the rows, for few rows, too."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(30, width, generator=generator, dtype=torch.float64)
    wanted = EYE[torch.arange(30) % CLASSES]
    rows = rows + 2 * wanted @ torch.randn(CLASSES, width, generator=generator, dtype=torch.float64)
    gram = rows.T @ rows
    level = float(gram.diagonal().mean())
    errors = {}
    for penalty in [level * 10.0 ** (half / 2) for half in range(-18, 5)]:
        hat = rows @ torch.linalg.solve(gram + penalty * torch.eye(width, dtype=torch.float64), rows.T)
        freedom = float(hat.trace()) / 30
        # what explains everything is no candidate
        if freedom < 0.99:
            errors[penalty] = float((wanted - hat @ wanted).square().sum()) / 30 / (1 - freedom) ** 2
    assert best_penalty(gram, rows.T @ wanted, 30, 30.0) == pytest.approx(min(errors, key=errors.get))


def test_a_penalty_chosen_on_sums_knows_no_tasks():
    """One task and four end with the same scores; the last task's errors choose otherwise."""
    features, labels = drawn(4, 25)
    for choice, same in (("gcv", True), ("fixed", True), ("task", False)):
        heads = [
            taught(Ridge(DIM, CLASSES, 80, 1, choice=choice), features, labels, tasks) for tasks in (1, 4)
        ]
        scores = [head.scores(features, CLASSES) for head in heads]
        assert torch.allclose(scores[0], scores[1], rtol=1e-8, atol=1e-8) is same


def test_cross_validation_fits_features_of_any_scale():
    """Its candidates are relative to the sums: scaled features give the same scores."""
    features, labels = drawn(5)
    scores = []
    for scale in (1.0, 1e-3, 1e4):
        head = Ridge(DIM, CLASSES, 20, 1, choice="gcv")
        head.update(scale * features, labels)
        scores.append(head.scores(scale * features, CLASSES))
    torch.testing.assert_close(scores[1], scores[0])
    torch.testing.assert_close(scores[2], scores[0])
    # two images leave no residual: the largest candidate, and no error
    head = Ridge(DIM, CLASSES, 20, 1, choice="gcv")
    head.update(features[:1], torch.tensor([0]))
    assert torch.isfinite(head.scores(features, 1)).all()


def test_recursive_least_squares_is_ridge():
    """ACIL's recursion from R = I / penalty has the weights of the sums, in batches of any size."""
    features, labels = drawn(6)
    head = Ridge(DIM, CLASSES, 0, 0, 0.4, choice="fixed")
    head.update(features, labels)
    inverse = torch.eye(DIM, dtype=torch.float64) / 0.4
    weight = torch.zeros(DIM, CLASSES, dtype=torch.float64)
    for rows, classes in zip(features.split(7), labels.split(7), strict=True):
        gain = torch.linalg.inv(torch.eye(len(rows), dtype=torch.float64) + rows @ inverse @ rows.T)
        inverse = inverse - inverse @ rows.T @ gain @ rows @ inverse
        weight = weight + inverse @ rows.T @ (EYE[classes] - rows @ weight)
    torch.testing.assert_close(head.scores(features, CLASSES), features @ weight, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("width", [30, 80])
def test_a_cut_spectrum_is_the_truncated_svd_of_all_rows(width):
    """TSVD of one block: U_k diag(1 / (S_k^2 + rho)) U_k^T Q, with k = round((1 - cut) min(n, M))."""
    features, labels = drawn(7, 15)
    for penalty in (0.0, 2.0):
        head = Ridge(DIM, CLASSES, width, 1, penalty, choice="fixed", cut=0.6)
        rows = head.lifted(features)
        for part in torch.arange(len(rows)).split(11):
            head.update(features[part], labels[part])
        basis, sizes, _ = torch.linalg.svd(rows.T, full_matrices=False)
        kept = min(round(0.4 * min(len(rows), width)), len(sizes))
        basis, sizes = basis[:, :kept], sizes[:kept]
        weight = basis @ torch.diag(1 / (sizes.square() + penalty)) @ basis.T @ rows.T @ EYE[labels]
        torch.testing.assert_close(head.scores(features, CLASSES), rows @ weight, rtol=1e-6, atol=1e-8)


def test_nothing_cut_off_is_least_squares_of_minimal_norm():
    """All eigenvalues above rounding give the pseudo-inverse; with a penalty ridge regression."""
    features, labels = drawn(8)
    rows = RandomMap(DIM, 70, 1)(features)
    spectrum = Spectrum(rows.T @ rows, rows.T @ EYE[labels])
    expected = torch.linalg.pinv(rows, rcond=1e-7) @ EYE[labels]
    torch.testing.assert_close(rows @ spectrum.cut(70), rows @ expected, rtol=1e-5, atol=1e-6)
    found = weights_of(rows.T @ rows, rows.T @ EYE[labels], 0.5)
    torch.testing.assert_close(spectrum.cut(70, 0.5), found, rtol=1e-6, atol=1e-8)


# -- covariances ---------------------------------------------------------------------------------------------


def test_fecams_shrinkage_of_both_kinds_is_the_released_formula():
    """S + a1 v1 I + a2 v2 (11^T - I), made a correlation matrix, by a pseudo-inverse; two shrinks are one."""
    features, labels = drawn(9, 20)
    head = Mahalanobis(DIM, CLASSES, 10.0, 10.0)
    head.update(features, labels)
    found = head.scores(features, CLASSES)
    unit = functional.normalize(features, dim=1)
    for label in range(CLASSES):
        own = unit[labels == label]
        shrunk = _shrunk(torch.cov(own.T), 10.0, 10.0)
        scale = shrunk.diagonal().sqrt()
        inverse = torch.linalg.pinv(shrunk / torch.outer(scale, scale))
        away = unit - own.mean(0)
        torch.testing.assert_close(found[:, label], -((away @ inverse) * away).sum(1))
    covariance = torch.cov(unit.T)
    twice = _shrunk(_shrunk(covariance, 1.0, 1.0), 1.0, 1.0)
    torch.testing.assert_close(twice, _shrunk(covariance, 3.0, 3.0))


def _shrunk(covariance: Tensor, diagonal: float, off_diagonal: float) -> Tensor:
    eye = torch.eye(len(covariance), dtype=torch.float64)
    others = 1 - eye
    level = covariance.diagonal().mean()
    between = (covariance * others).sum() / others.sum()
    return covariance + diagonal * level * eye + off_diagonal * between * others


# -- AnaCP ---------------------------------------------------------------------------------------------------


def test_the_projection_is_ridge_times_targets():
    """theta = W_ridge T for each member; with T = I it is ridge regression of one-hot labels."""
    features, labels = drawn(10)
    head = AnaCP(DIM, CLASSES, 25, 3, members=2, penalty=0.8)
    head.update(features, labels)
    means, covariance = head.moments.within(CLASSES)
    targets = spread_means(means, covariance, "root")
    for cross, wanted in ((targets, targets), (EYE, EYE)):
        thetas = head._projections(head.cross, cross)
        for theta, lift in zip(thetas, head.maps, strict=True):
            rows = lift(functional.normalize(features, dim=1))
            gram = rows.T @ rows + 0.8 * torch.eye(25, dtype=torch.float64)
            ridge = torch.linalg.solve(gram, rows.T @ EYE[labels])
            torch.testing.assert_close(theta, ridge @ wanted, rtol=1e-9, atol=1e-10)


def test_anacps_classifier_is_ridge_of_gaussian_features():
    """Ten lines of numpy: draws about each mean, projected by members that differ, lifted, and regressed."""
    features, labels = drawn(13)
    head = AnaCP(DIM, CLASSES, 25, 3, members=2, penalty=0.8, draws=7)
    head.update(features, labels)
    means, covariance = head.moments.within(CLASSES)
    targets = spread_means(means, covariance, "inverse-root")
    thetas = head._projections(head.cross, targets).numpy()
    first, second = (lift.get_buffer("matrix").numpy() for lift in head.maps)
    last = head.last_map.get_buffer("matrix").numpy()
    # the maps are drawn apart, or the members would be one
    assert np.abs(np.corrcoef([first.ravel(), second.ravel(), last.ravel()]) - np.eye(3)).max() < 0.35

    def unit(rows: Any) -> Any:
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def gelu(rows: Any) -> Any:
        return rows * norm.cdf(rows)

    def lifted(rows: Any) -> Any:
        answers = [unit(gelu(rows @ r) @ theta) for r, theta in zip((first, second), thetas, strict=True)]
        return gelu(np.mean(answers, axis=0) @ last)

    root = np.linalg.cholesky(covariance.numpy())
    wanted = np.repeat(np.eye(CLASSES), 7, axis=0)
    draws = []
    for target, mean in enumerate(means.numpy()):
        seed = derive_seed(3, "draws", str(target))
        noise = torch.randn(7, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        draws.append(mean + noise.numpy() @ root.T)
    rows = lifted(np.concatenate(draws))
    weights = np.linalg.solve(rows.T @ rows + 0.8 * np.eye(25), rows.T @ wanted)
    expected = lifted(unit(features.numpy())) @ weights
    np.testing.assert_allclose(head.scores(features, CLASSES).numpy(), expected, rtol=1e-7, atol=1e-9)


def test_spread_means_add_one_to_every_direction_but_that_of_rounding():
    """C - 1 whitened singular values grow by 1, the last stays 0; the two ways back differ."""
    features, labels = drawn(11)
    moments = Discriminant(DIM, CLASSES)
    moments.update(features, labels)
    means, covariance = moments.within(CLASSES)
    values, vectors = torch.linalg.eigh(covariance)
    whitening = vectors @ torch.diag(values.rsqrt()) @ vectors.T
    before = (means - means.mean(0)) @ whitening
    left, sizes, right = torch.linalg.svd(before, full_matrices=False)
    raised = torch.cat([sizes[:-1] + 1, torch.zeros(1, dtype=torch.float64)])
    spread = left @ torch.diag(raised) @ right
    for way, back in (("root", torch.linalg.inv(whitening)), ("inverse-root", whitening)):
        expected = functional.normalize(spread @ back + means.mean(0), dim=1)
        torch.testing.assert_close(spread_means(means, covariance, way), expected, rtol=1e-7, atol=1e-9)
    # more classes than features: all directions are real; one class has none
    assert spread_means(torch.cat([means, -2 * means]), covariance, "root").shape == (8, DIM)
    torch.testing.assert_close(
        spread_means(means[:1], covariance, "root"), functional.normalize(means[:1], dim=1)
    )


def test_anacp_knows_neither_tasks_nor_the_order_of_classes():
    """One, two and four tasks, and classes that come in another order, give equal scores."""
    features, labels = drawn(12)

    def made(order: list[int], sizes: list[int]) -> Tensor:
        head, position = AnaCP(DIM, CLASSES, 20, 3, penalty=1.0), 0
        place = torch.tensor([order.index(label) for label in labels.tolist()])
        for index, size in enumerate(sizes):
            classes = tuple(range(position, position + size))
            names = tuple(f"class {order[one]}" for one in classes)
            position += size
            task = TaskInfo(index=index, classes=classes, class_names=names, seen=position, num_images=9)
            head.begin_task(task)
            own = torch.isin(place, torch.tensor(classes))
            head.learn(features[own], place[own], torch.Generator())
        return head.scores(features, CLASSES)[:, [order.index(label) for label in range(CLASSES)]]

    whole = made([0, 1, 2, 3], [4])
    for order, sizes in (([0, 1, 2, 3], [1, 1, 1, 1]), ([2, 0, 3, 1], [2, 2]), ([3, 2, 1, 0], [1, 3])):
        torch.testing.assert_close(made(order, sizes), whole, rtol=1e-8, atol=1e-8)
    # random, but of a seed: another one has other scores
    other = AnaCP(DIM, CLASSES, 20, 4, penalty=1.0)
    other.update(features, labels)
    assert not torch.allclose(other.scores(features, CLASSES), whole)
    assert (whole.argmax(1) == labels).double().mean() > 0.7
