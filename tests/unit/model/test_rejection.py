"""Gaussians in the sums of a head: how often one class is taken for another, and what is unknown."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from lw2g.blocks.closed_form import Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.ridge import Ridge
from lw2g.errors import ConfigError
from lw2g.model.rejection import (
    Gaussians,
    left_out,
    moments_of,
    scores_of,
    temperature_of,
    threshold_of,
)

CENTRES = torch.tensor([[0.0, 0, 0, 0], [3, 0, 0, 0], [0, 4, 0, 0]]).double()
"""Of three classes whose covariance is the identity: 3, 4 and 5 apart."""
APART = torch.cdist(CENTRES, CENTRES)


def known(counts: list[int]) -> Gaussians:
    """Three classes whose sums are their true ones."""
    freedom = sum(counts) - 3
    return Gaussians(torch.tensor(counts), CENTRES, freedom * torch.eye(4).double())


def drawn(counts: list[int], seed: int) -> Gaussians:
    """The sums of some images of three classes."""
    labels = torch.arange(3).repeat_interleave(torch.tensor(counts))
    noise = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(seed)).double()
    rows = CENTRES[labels] + noise
    means = torch.stack([rows[labels == label].mean(0) for label in range(3)])
    away = rows - means[labels]
    return Gaussians(torch.tensor(counts), means, away.T @ away)


def test_many_images_give_the_rate_of_two_gaussians() -> None:
    """An image is taken for another class once it is half way there, in deviations."""
    rates = known([1_000_000] * 3).errors()
    assert rates is not None
    wanted = torch.special.ndtr(-APART / 2).fill_diagonal_(0)
    # a hundredth of the level is on the diagonal, which changes nothing where the covariance is the identity
    torch.testing.assert_close(rates, wanted, rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("counts", "told"), [([3, 3, 4], False), ([4, 4, 3], True), ([9, 1, 1], True), ([1, 1, 8], False)]
)
def test_fewer_images_than_twice_the_width_say_nothing(counts: list[int], told: bool) -> None:
    """What counts are the degrees of freedom: the images without one of each class."""
    assert (known(counts).errors() is not None) == told


@pytest.mark.parametrize("counts", [[8, 8, 8], [5, 8, 20]])
def test_few_images_are_not_taken_to_lie_further_apart_than_they_do(counts: list[int]) -> None:
    """Chance moves means and shrinks spreads: over many draws, the distance behind each rate is true."""
    found = torch.zeros(3, 3, dtype=torch.float64)
    draws = 600
    for seed in range(draws):
        rates = drawn(counts, seed).errors()
        assert rates is not None
        torch.testing.assert_close(rates, rates.T)
        found += (2 * torch.special.ndtri(rates.fill_diagonal_(0.5))).square() / draws
    # the diagonal that is added takes a few hundredths
    torch.testing.assert_close(found, APART.square(), rtol=0.06, atol=0)


def test_a_threshold_is_the_quantile_of_split_conformal_prediction() -> None:
    """k = floor(eps (n + 1)): 19 scores are enough for 5 %, 18 are not."""
    scores = torch.arange(19, dtype=torch.float64)
    assert threshold_of(scores, 0.05) == 0.0
    assert threshold_of(scores, 0.1) == 1.0
    few = r"needs 19 learned images to compare with, and the model has 18; raise the rate to 0\.053 or more"
    with pytest.raises(ConfigError, match=few):
        threshold_of(scores[:18], 0.05)


@pytest.mark.parametrize("images", [1, 2, 6, 9, 10, 15, 99, 998])
def test_the_least_rate_that_is_told_works(images: int) -> None:
    """It is rounded up, and told of any number of images."""
    scores = torch.arange(images, dtype=torch.float64)
    with pytest.raises(ConfigError) as refused:
        threshold_of(scores, 1e-4)
    told = re.search(r"raise the rate to (0\.\d+) or more", str(refused.value))
    assert told is not None
    least = float(told[1])
    assert threshold_of(scores, least) == 0.0
    assert least < 1.1 / (images + 1)


@pytest.mark.parametrize("kind", ["lda", "mahalanobis", "ridge", "klda"])
def test_left_out_images_are_scored_by_the_head_without_them(kind: str) -> None:
    """Taking rows out of the sums gives the Gaussians of the other rows."""
    draw = torch.Generator().manual_seed(1)
    rows, labels = torch.randn(400, 6, generator=draw).double(), torch.arange(4).repeat(100)
    rows += labels[:, None]

    def fitted(chosen: torch.Tensor) -> Any:
        head: Any = {
            "lda": lambda: Discriminant(6, 4),
            "mahalanobis": lambda: Mahalanobis(6, 4),
            "ridge": lambda: Ridge(6, 4, 12, 0),
            "klda": lambda: KernelDiscriminant(6, 4, 12, 0),
        }[kind]()
        if kind == "klda":
            head.bandwidth.fill_(0.1)
        head.update(rows[chosen], labels[chosen])
        return head

    gaussians = moments_of(every := fitted(torch.ones(400, dtype=torch.bool)), 4)
    assert isinstance(gaussians, Gaussians)
    lifted = every.lifted(rows)
    unknown = left_out(gaussians, lifted, labels)
    scores, distances, which = unknown.scores(), unknown.distances, unknown.which
    assert which.tolist() == list(range(400))
    for place in (0, 7, 398):
        rest = moments_of(fitted(torch.arange(400) != place), 4)
        assert rest is not None
        alone = lifted[place : place + 1]
        # but for the added diagonal, which follows the covariance of all
        torch.testing.assert_close(distances[place], rest.distances(alone)[0][0], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(scores[place], rest.scores(alone)[0], rtol=1e-3, atol=1e-2)
    # sums that never held an image, here those of all but the last fifty, score it as they are
    held = torch.arange(400) < 350
    rest = moments_of(fitted(held), 4)
    assert rest is not None
    unknown = scores_of(rest, lifted, labels, held)
    scores, distances, which = unknown.scores(), unknown.distances, unknown.which
    assert which.tolist() == [*range(350, 400), *range(350)]
    torch.testing.assert_close(scores[:50], rest.scores(lifted[350:]))
    torch.testing.assert_close(distances[:50], rest.distances(lifted[350:])[0])
    torch.testing.assert_close(distances[50:], left_out(rest, lifted[:350], labels[:350]).distances)
    assert moments_of(Cosine(6, 4), 4) is None


@pytest.mark.parametrize("images", [10, 100])
@pytest.mark.parametrize("distance", [50.0, 5e4])
def test_that_all_kept_images_are_right_is_no_certainty(images: int, distance: float) -> None:
    """However far classes lie apart: that n of n are right leaves a doubt of 1 in n + 2, within the grid."""
    labels = torch.arange(images) % 3
    distances = torch.full((images, 3), 3 * distance, dtype=torch.float64)
    distances[torch.arange(images), (labels + 1) % 3] = distance
    distances[torch.arange(images), labels] = 0
    temperature, _ = temperature_of(-distances / 2, labels)
    sure = (-distances / 2 / temperature).softmax(1).max(1).values
    # neighbours on the grid are a fifth apart
    assert 1 - float(sure.mean()) == pytest.approx(1 / (images + 2), rel=0.6)


def test_one_class_leaves_no_doubt() -> None:
    """Where there is no other class, an image cannot be taken for it."""
    assert temperature_of(torch.ones(5, 1).double(), torch.zeros(5).long()) == (1.0, None)
