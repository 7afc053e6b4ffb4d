"""Intervals over class orders and test images, and the pairing of images that they rest on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lw2g.results.bootstrap import holm, over_gaps, over_orders_and_images
from lw2g.results.right_answers import RightAnswers, right_answers
from lw2g.results.summaries import Difference, wilson

ROOT = Path(__file__).resolve().parents[3]
COUNT = 400


def answers(right, order=None):
    """Return answers of one task, in another order of images where one is given."""
    places = np.arange(len(right)) if order is None else order
    shares = np.full(len(right), 1.0 / len(right))
    return RightAnswers(images=places.tolist(), right=np.asarray(right)[places], shares=shares)


def drawn(seed, share, count=COUNT):
    return np.random.default_rng(seed).random(count) < share


def test_images_have_one_name_in_every_class_order():
    """Targets are named by their classes, images of a class by their places; tasks count alike in the FAA."""
    first = right_answers(
        {"true": np.array([0, 0, 1]), "predicted": np.array([0, 1, 1])}, ["a", "b"], np.array([0, 0, 1])
    )
    turned = right_answers(
        {"true": np.array([0, 1, 1]), "predicted": np.array([0, 1, 0])}, ["b", "a"], np.array([0, 1, 1])
    )
    assert set(first.images) == set(turned.images) == {("a", "", 0), ("a", "", 1), ("b", "", 0)}
    assert dict(zip(first.images, first.right.tolist(), strict=True)) == dict(
        zip(turned.images, turned.right.tolist(), strict=True)
    )
    assert first.accuracy == turned.accuracy == 75.0
    # shares of 1/4, 1/4 and 1/2 tell as much as 8/3 images that count alike
    assert first.interval == pytest.approx(tuple(wilson(75.0, 8 / 3)))


def test_images_of_two_domains_are_two():
    """A class that comes in two domains has images of its own in each."""
    columns = {"true": np.array([0, 0]), "predicted": np.array([0, 1])}
    found = right_answers(columns, ["a", "b"], np.array([0, 1]), ["photo", "sketch"])
    assert found.images == [("a", "photo", 0), ("a", "sketch", 0)]


def test_orders_that_answer_alike_are_no_new_evidence():
    """Five copies of one order have the interval of one: that over its images, near the normal one."""
    ours, theirs = drawn(0, 0.8), drawn(1, 0.7)
    once = over_orders_and_images({0: answers(ours)}, {0: answers(theirs)})
    turned = np.random.default_rng(2).permutation(COUNT)
    copies = {order: answers(ours, turned if order else None) for order in range(5)}
    five = over_orders_and_images(copies, {order: answers(theirs) for order in range(5)})
    gaps = 100 * (ours.astype(float) - theirs)
    half = 1.96 * gaps.std() / COUNT**0.5
    assert (once.low, once.high) == (five.low, five.high)  # whatever the places of the images
    for found in (once, five):
        assert found.mean == pytest.approx(gaps.mean())
        assert (found.low, found.high) == pytest.approx((gaps.mean() - half, gaps.mean() + half), abs=0.6)
    assert (once.n, five.n) == (1, 5)


def test_equal_answers_in_another_order_have_equal_accuracy():
    """Else differences of orders that answer alike are not alike, and get an interval of nothing."""
    right = drawn(0, 0.7, 347)
    turned = [np.random.default_rng(seed).permutation(347) for seed in range(20)]
    assert len({answers(right, order).accuracy for order in turned}) == 1


def test_orders_that_differ_widen_the_interval():
    """Half of the orders lose 10 points and half gain 10: more than the images alone would tell."""
    base = np.arange(COUNT) % 2 == 0
    better, worse = base | (np.arange(COUNT) < 80), base & (np.arange(COUNT) >= 80)
    apart = {order: answers(better if order % 2 else worse) for order in range(6)}
    found = over_orders_and_images(apart, {order: answers(base) for order in range(6)})
    assert found.mean == pytest.approx(0.0)
    assert found.low < -5
    assert found.high > 5
    assert found.p > 0.5


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=2, max_size=6))
def test_a_difference_named_the_other_way_round_is_its_mirror(columns):
    """Else the verdict of a pair may depend on which of the two rows a reader names first."""
    right = np.array(columns)
    ours = {order: answers(right[:, order]) for order in (0, 1)}
    theirs = {order: answers(right[:, 2 + order]) for order in (1, 0)}
    one, other = over_orders_and_images(ours, theirs), over_orders_and_images(theirs, ours)
    assert (one.mean, one.low, one.high, one.p) == (-other.mean, -other.high, -other.low, other.p)


def test_an_interval_covers_as_often_as_it_says():
    """Of 200 drawn comparisons about one in twenty misses the true difference, 10 points."""
    missed = 0
    for seed in range(200):
        found = over_orders_and_images(
            {0: answers(drawn(2 * seed, 0.8))}, {0: answers(drawn(2 * seed + 1, 0.7))}
        )
        missed += not found.low <= 10.0 <= found.high
    assert 3 <= missed <= 20


@pytest.mark.parametrize(("orders", "least", "most"), [(5, 1 / 9, 1 / 5), (3, 1 / 5, 1 / 3)])
def test_few_orders_alone_miss_no_difference_too_often(orders, least, most):
    """As docs/howto/report.md says: draws of orders have lighter tails than a t interval."""
    generator = np.random.RandomState(0)
    counts = np.ones((orders, 1))
    missed = 0
    for _ in range(400):
        low, high = over_gaps(generator.normal(size=(orders, 1)), counts)[:2]
        missed += not low <= 0.0 <= high
    assert least < missed / 400 < most


def test_the_page_says_how_often_few_orders_miss_no_difference():
    """The shares that the test above draws."""
    page = (ROOT / "docs" / "howto" / "report.md").read_text(encoding="utf-8")
    said = "an interval over five misses a true 0 in about one case of seven, one over three in one of four"
    assert said in " ".join(page.split())


def test_what_has_other_images_is_no_pair():
    """Neither another order nor other images of it are compared; nothing in common is None."""
    ours = answers(drawn(0, 0.5))
    assert over_orders_and_images({0: ours}, {1: ours}) is None
    assert over_orders_and_images({0: ours}, {0: answers(drawn(0, 0.5, COUNT - 1))}) is None
    same = over_orders_and_images({0: ours, 1: ours}, {0: ours})
    assert (same.mean, same.low, same.high, same.n, same.p) == (0.0, 0.0, 0.0, 1, 1.0)


@given(st.lists(st.none() | st.floats(0, 1), max_size=6))
def test_holm_keeps_places_and_orders(values):
    """Corrected values are none smaller, in the order of the given ones, and rejections are Holm's."""
    given_ = [None if p is None else Difference(mean=0.0, n=1, p=p) for p in values]
    found = holm(given_)
    known = sorted((p, place) for place, p in enumerate(values) if p is not None)
    for rank, (p, place) in enumerate(known):
        rejected = all(own * (len(known) - at) < 0.05 for at, (own, _) in enumerate(known[: rank + 1]))
        assert (found[place].p < 0.05) == rejected
        assert found[place].p >= p
    assert [each is None for each in found] == [p is None for p in values]
