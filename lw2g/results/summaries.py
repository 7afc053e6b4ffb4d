"""Means over runs, and paired differences between runs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

__all__ = [
    "FEW_IMAGES",
    "LEAST_PAIRS",
    "LEAST_TESTED",
    "Difference",
    "MeanStd",
    "doubt_of_few",
    "grouped",
    "p_of_t_test",
    "paired_difference",
    "summary",
    "wilson",
    "without_rounding_error",
]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_LEVEL = 0.95
_DIGITS = 9
"""Decimals of a difference that are kept: those after them come of rounding."""
_NORMAL = 1.959964
"""Standard deviations on either side of a mean that hold 95 % of a normal distribution."""
FEW_IMAGES = 50
"""Images from which on an accuracy needs no other figure beside it."""
_WIDE = 30
"""Points between the ends of an interval from which on an accuracy tells little."""
LEAST_PAIRS = 3
"""The smallest number of pairs that have an interval of t."""
LEAST_TESTED = 5
"""The smallest number of class orders, or of seeds of one, that have a p value.

A sign test of n has none below 2/2^n, and drawing three again cannot tell of others: all draws may be on one
side of zero where a t test has 0.10.
"""


@attrs.frozen(kw_only=True)
class MeanStd:
    """A quantity over several runs.

    Attributes:
        mean: Its mean; None if a run has no value.
        std: Its sample standard deviation; None for a single value.
        n: Number of values: class orders, each the mean of its seeds, or seeds where there is one order.
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
        n: Number of pairs, those of one unit averaged.
        p: The two-sided p value of no difference; None where none was computed.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    n: int
    p: float | None = None

    @property
    def is_none(self) -> bool:
        """Whether nothing that is drawn again differs."""
        return self.mean == self.low == self.high == 0


def grouped(values: Iterable[tuple[K, V]], unit: Callable[[K], Hashable]) -> list[list[V]]:
    """Return values by what counts as one, which ``unit`` tells of their keys."""
    groups: dict[Hashable, list[V]] = defaultdict(list)
    for key, value in values:
        groups[unit(key)].append(value)
    return list(groups.values())


def paired_difference(
    ours: Mapping[K, float | None],
    theirs: Mapping[K, float | None],
    unit: Callable[[K], Hashable] = lambda key: key,
) -> Difference | None:
    """Return the mean of ``ours - theirs`` over common keys, with its t interval; None if no pair has values.

    There is no interval of fewer than three units, where t makes it nine times their deviation, and none of
    units that differ alike: runs that do not see what tells the units apart say nothing of how far others
    would spread. Where no pair differs, all numbers are 0.

    Args:
        ours: Values by what pairs them, such as seed and class order.
        theirs: Those that are subtracted.
        unit: What of a key counts as one: pairs of one unit are averaged before the interval.

    >>> paired_difference({0: 2.0, 1: 4.0}, {0: 1.0, 2: 9.0})
    Difference(mean=1.0, low=None, high=None, n=1, p=None)
    """
    gaps = _gaps(ours, theirs, unit)
    if not gaps:
        return None
    mean = without_rounding_error(statistics.fmean(gaps))
    if not any(gaps):  # nothing differs in any pair
        return Difference(mean=0.0, low=0.0, high=0.0, n=len(gaps))
    if len(gaps) < LEAST_PAIRS or len(set(gaps)) == 1:
        return Difference(mean=mean, n=len(gaps))
    from scipy.special import stdtrit  # here, so that reports without pairs start without scipy

    quantile = float(stdtrit(len(gaps) - 1, (1 + _LEVEL) / 2))
    half = quantile * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return Difference(mean=mean, low=mean - half, high=mean + half, n=len(gaps))


def p_of_t_test(
    ours: Mapping[K, float | None],
    theirs: Mapping[K, float | None],
    unit: Callable[[K], Hashable] = lambda key: key,
) -> float:
    """Return the two-sided p value of a paired t test; 0 of units that differ alike, which it cannot doubt.

    Args:
        ours: As for :func:`paired_difference`, of at least two units.
        theirs: Likewise.
        unit: Likewise.

    >>> round(p_of_t_test(dict(enumerate([1.0, 2.0, 3.0, 5.0, 9.0])), dict.fromkeys(range(5), 0.0)), 3)
    0.047
    """
    gaps = _gaps(ours, theirs, unit)
    deviation = statistics.stdev(gaps)
    if deviation == 0:
        return 0.0
    from scipy.special import stdtr  # likewise

    t = statistics.fmean(gaps) / deviation * math.sqrt(len(gaps))
    return 2 * float(stdtr(len(gaps) - 1, -abs(t)))


def _gaps(
    ours: Mapping[K, float | None], theirs: Mapping[K, float | None], unit: Callable[[K], Hashable]
) -> list[float]:
    """Return the mean difference of each unit, over the pairs that have values."""
    pairs = []
    for key, our_value in ours.items():
        other = theirs.get(key)
        if our_value is not None and other is not None:
            pairs.append((key, our_value - other))
    return [without_rounding_error(statistics.fmean(of_unit)) for of_unit in grouped(pairs, unit)]


def without_rounding_error(gap: float) -> float:
    """Return a difference without the digits that rounding makes, so that equal numbers differ by 0.

    >>> without_rounding_error(0.1 + 0.2 - 0.3)
    0.0
    """
    return round(gap, _DIGITS) + 0.0  # adding 0 takes the minus from a zero


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
    # an end of the scale is exact: rounding would leave a trace
    low = middle - half if share > 0 else 0.0
    high = middle + half if share < 1 else 1.0
    return [100 * max(low, 0.0), 100 * min(high, 1.0)]


def doubt_of_few(interval: Sequence[float], images: int) -> str:
    """Return that so few images tell little, to stand behind an interval; else nothing.

    >>> doubt_of_few((56.6, 89.9), 22), doubt_of_few((83.9, 100.0), 20)
    (': too few to tell much', '')
    """
    low, high = interval
    return ": too few to tell much" if images < FEW_IMAGES and high - low > _WIDE else ""
