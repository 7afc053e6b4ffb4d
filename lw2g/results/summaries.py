"""Means over runs, and paired differences between runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import attrs

__all__ = ["LEAST_PAIRS", "Difference", "MeanStd", "paired_difference", "summary", "wilson"]

K = TypeVar("K", bound=Hashable)
_LEVEL = 0.95
_NORMAL = 1.959964
"""Standard deviations on either side of a mean that hold 95 % of a normal distribution."""
LEAST_PAIRS = 3
"""The smallest number of pairs that have an interval of t, or a p value."""


@attrs.frozen(kw_only=True)
class MeanStd:
    """A quantity over several runs.

    Attributes:
        mean: Its mean; None if a run has no value.
        std: Its sample standard deviation; None for a single run.
        n: Number of runs.
    """

    mean: float | None
    std: float | None
    n: int


def summary(values: Sequence[float | None]) -> MeanStd:
    """Return mean, sample standard deviation and number of values.

    >>> summary([1.0, 3.0])
    MeanStd(mean=2.0, std=1.4142135623730951, n=2)
    """
    present = [value for value in values if value is not None]
    if len(present) < len(values) or not present:
        return MeanStd(mean=None, std=None, n=len(values))
    std = None
    if len(present) > 1:  # one value has no deviation
        std = statistics.stdev(present)
    return MeanStd(mean=statistics.fmean(present), std=std, n=len(present))


@attrs.frozen(kw_only=True)
class Difference:
    """The mean of paired differences.

    Attributes:
        mean: The mean.
        low: The lower end of its 95 % interval; None where there is none, as for pairs that are alike.
        high: The upper end.
        n: Number of pairs.
        p: The two-sided p value of no difference; None where none was computed.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    n: int
    p: float | None = None


def paired_difference(ours: Mapping[K, float | None], theirs: Mapping[K, float | None]) -> Difference | None:
    """Return the mean of ``ours - theirs`` over common keys, with its t interval; None if no pair has values.

    There is no interval of fewer than three pairs, where t makes it nine times their deviation, and none of
    pairs that are alike: runs that do not see what tells the pairs apart say nothing of how far others would
    spread.

    >>> paired_difference({0: 2.0, 1: 4.0}, {0: 1.0, 2: 9.0})
    Difference(mean=1.0, low=None, high=None, n=1, p=None)
    """
    gaps = []
    for key, our_value in ours.items():
        other = theirs.get(key)
        if our_value is not None and other is not None:
            gaps.append(our_value - other)
    if not gaps:
        return None
    mean = statistics.fmean(gaps)
    if len(gaps) < LEAST_PAIRS or len(set(gaps)) == 1:
        return Difference(mean=mean, n=len(gaps))
    from scipy.special import stdtrit  # here, so that reports without pairs start without scipy

    quantile = float(stdtrit(len(gaps) - 1, (1 + _LEVEL) / 2))
    half = quantile * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return Difference(mean=mean, low=mean - half, high=mean + half, n=len(gaps))


def wilson(accuracy: float, images: float) -> list[float]:
    """Return the 95 % interval of an accuracy (Wilson, 1927), in percent.

    With the share p of n images and z = 1.96 it is
    ``(p + z^2 / 2n -/+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)``.

    Args:
        accuracy: Of the images, in percent.
        images: How many there are; of images that do not count alike, as many as tell the same.

    >>> [round(end, 1) for end in wilson(100.0, 20)]
    [83.9, 100.0]
    """
    share = accuracy / 100
    square = _NORMAL**2
    middle = (share + square / (2 * images)) / (1 + square / images)
    spread = math.sqrt(share * (1 - share) / images + square / (4 * images**2))
    half = _NORMAL / (1 + square / images) * spread
    return [100 * max(middle - half, 0.0), 100 * min(middle + half, 1.0)]
