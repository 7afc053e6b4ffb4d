"""Intervals of paired differences of accuracy, by drawing orders and test images again.

An interval over class orders alone leaves out that other test images would give another difference; where all
orders have the same images it comes out far too narrow. Both are drawn here: orders with replacement, and
images with replacement, the same ones for both methods and for every order. So an image has to have one name
in all orders: drawn by their places in each order's file, the orders would seem to have images of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.results.right_answers import RightAnswers
from lw2g.results.summaries import Difference, grouped, without_rounding_error

__all__ = ["holm", "over_gaps", "over_orders_and_images"]

K = TypeVar("K", bound=Hashable)
Floats = npt.NDArray[np.float64]

_DRAWS = 10_000
"""With another seed the ends move by about a twentieth of a point; where few images count alike, means lie on
a grid of one image (half a point of 200 images), and an end may move by one step of it."""
_NUMBERS = 2_000_000
"""How many numbers of draws are in memory at once."""
_SEED = 0
_DIGITS = 9
"""Decimals of a point that are kept."""
_TAILS = (2.5, 97.5)
"""Per cent of the draws below the ends of an interval of 95 %."""


def over_orders_and_images(
    ours: Mapping[K, RightAnswers],
    theirs: Mapping[K, RightAnswers],
    unit: Callable[[K], Hashable] = lambda key: key,
) -> Difference | None:
    """Return the mean over common keys of the difference of final accuracy, with its bootstrap interval.

    Args:
        ours: The answers by what pairs runs, such as seed and class order.
        theirs: Those that are subtracted.
        unit: What of a key is drawn as one: pairs of one unit are averaged.

    Returns:
        The difference in points with a percentile interval over orders and test images, and the two-sided p
        value of no difference; None where no pair has the same images.
    """
    pairs = []
    # orders are drawn by their places, which may not depend on which of the two rows is named first
    for key in sorted(ours, key=repr):
        own, other = ours[key], theirs.get(key)
        if other is not None and set(own.images) == set(other.images):
            pairs.append((key, (own, other)))
    if not pairs:
        return None

    place_of: dict[Hashable, int] = {}
    for _, (own, _) in pairs:
        for image in own.images:
            place_of.setdefault(image, len(place_of))
    units = grouped(pairs, unit)
    gaps = np.zeros((len(units), len(place_of)))
    shares = np.zeros_like(gaps)
    for row, of_unit in enumerate(units):
        for own, other in of_unit:
            own_places = [place_of[image] for image in own.images]
            other_places = [place_of[image] for image in other.images]
            gaps[row, own_places] += own.shares * own.right / len(of_unit)
            gaps[row, other_places] -= other.shares * other.right / len(of_unit)
            shares[row, own_places] += own.shares / len(of_unit)

    low, high, p = over_gaps(gaps, shares)
    mean = without_rounding_error(100.0 * float(gaps.sum(axis=1).mean()))
    return Difference(mean=mean, low=low, high=high, n=len(units), p=p)


def over_gaps(gaps: Floats, shares: Floats) -> tuple[float, float, float]:
    """Return the ends of the interval of a mean difference in points, and its p value.

    Args:
        gaps: ``[orders, images]`` what each image adds to the difference of an order, as a share of 1.
        shares: ``[orders, images]`` what it counts there; 0 where the order does not have it.
    """
    # One draw serves a difference and its mirror, whichever is named first: the one whose mean is positive is
    # drawn, and its ends are negated for the other. Of no difference both are drawn, for the same reason.
    total = round(float(gaps.sum()), _DIGITS)
    if total > 0:
        return _sorted_and_drawn(gaps, shares)
    mirrored_low, mirrored_high, mirrored_p = _sorted_and_drawn(-gaps, shares)
    if total < 0:
        return 0.0 - mirrored_high, 0.0 - mirrored_low, mirrored_p  # -0.0 would stand in files
    low, high, p = _sorted_and_drawn(gaps, shares)
    return (low - mirrored_high) / 2, (high - mirrored_low) / 2, (p + mirrored_p) / 2


def _sorted_and_drawn(gaps: Floats, shares: Floats) -> tuple[float, float, float]:
    """Return what :func:`over_gaps` returns, from draws of these gaps themselves."""
    # images that add and count alike in every order are drawn alike: a few kinds stand for thousands
    columns = np.concatenate([gaps, shares]).round(_DIGITS + 3)
    # as `np.unique` with `axis=1` sorts them, which takes ten times as long
    columns = columns[:, np.lexsort(columns[::-1])]
    is_first = np.ones(columns.shape[1], dtype=bool)
    is_first[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    counts = np.diff(np.append(np.flatnonzero(is_first), columns.shape[1]))
    return _of_kinds(columns[:, is_first].tobytes(), tuple(counts.tolist()), len(gaps))


@lru_cache(maxsize=4096)  # a difference stands on several pages, and drawing takes nearly all the time
def _of_kinds(kinds: bytes, counts: tuple[int, ...], orders: int) -> tuple[float, float, float]:
    """Return what :func:`over_gaps` returns.

    Args:
        kinds: ``[2 orders, kinds]`` as bytes: what an image of a kind adds in each order, and what it counts.
        counts: How many images there are of each kind.
        orders: How many orders.
    """
    drawn = _drawn_means(np.frombuffer(kinds).reshape(2 * orders, len(counts)), np.array(counts), orders)
    low, high = np.percentile(drawn, _TAILS)
    # the share of draws on the other side of zero, twice; a draw more, so that no p value is zero
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return float(low), float(high), min(1.0, 2.0 * (beyond + 1) / (_DRAWS + 1))


def _drawn_means(kinds: Floats, counts: npt.NDArray[np.int64], orders: int) -> Floats:
    """Return the mean difference in points of each draw, ``[draws]``; arguments as of :func:`_of_kinds`."""
    images = int(counts.sum())
    # whole numbers of this generator are the same in every version of numpy, as pages need them
    generator = np.random.RandomState(_SEED)
    by_order = np.empty((_DRAWS, orders))
    # in parts: of 10,000 images that all differ, all draws at once would be a gigabyte
    part = max(1, _NUMBERS // len(counts))
    for begin in range(0, _DRAWS, part):
        size = min(part, _DRAWS - begin)
        times = generator.multinomial(images, counts / images, size=size).astype(np.float64)
        # an order's difference over the drawn images: a ratio, since how much these count is drawn as well
        counted = np.maximum(times @ kinds[orders:].T, np.finfo(float).tiny)
        by_order[begin : begin + size] = 100.0 * (times @ kinds[:orders].T) / counted
    # one order fewer than there are: the mean over as many varies (n - 1)/n as much as the mean over new ones
    chosen = generator.randint(orders, size=(_DRAWS, max(1, orders - 1)))
    means: Floats = np.take_along_axis(by_order, chosen, axis=1).mean(axis=1)
    # machines add up in different orders: without the last digits a tie is a tie on all of them
    return means.round(_DIGITS)


def holm(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Return the differences with p values corrected for their number (Holm 1979); None stays.

    >>> [each.p for each in holm([Difference(mean=1.0, n=1, p=p) for p in (0.02, 0.01)])]
    [0.02, 0.02]
    """
    family = []
    for place, each in enumerate(differences):
        if each is not None and each.p is not None:
            family.append((each.p, place))
    corrected = list(differences)
    least = 0.0
    for rank, (p, place) in enumerate(sorted(family)):
        # each is at least as large as those before it
        least = max(least, min(1.0, (len(family) - rank) * p))
        own = corrected[place]
        assert own is not None
        corrected[place] = attrs.evolve(own, p=least)
    return corrected
