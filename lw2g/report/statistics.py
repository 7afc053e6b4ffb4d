"""Means over runs, and differences of runs that belong together in pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import attrs

__all__ = ["Difference", "Summary", "paired_difference", "summary"]

K = TypeVar("K", bound=Hashable)
_LEVEL = 0.95


@attrs.frozen(kw_only=True)
class Summary:
    """A quantity over several runs.

    Attributes:
        mean: Its mean; None where a run has no value.
        std: Its sample standard deviation; None for a single run.
        n: Number of runs.
    """

    mean: float | None
    std: float | None
    n: int


def summary(values: Sequence[float | None]) -> Summary:
    """Return mean, sample standard deviation and number of values.

    >>> summary([1.0, 3.0])
    Summary(mean=2.0, std=1.4142135623730951, n=2)
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return Summary(mean=None, std=None, n=len(values))
    std = statistics.stdev(known) if len(known) > 1 else None
    return Summary(mean=statistics.fmean(known), std=std, n=len(known))


@attrs.frozen(kw_only=True)
class Difference:
    """The mean of paired differences.

    Attributes:
        mean: The mean.
        half: Half the width of its 95 % interval (t distribution over the pairs); None for a single pair.
        n: Number of pairs.
    """

    mean: float
    half: float | None
    n: int


def paired_difference(mine: Mapping[K, float | None], theirs: Mapping[K, float | None]) -> Difference | None:
    """Return how much greater ``mine`` is than ``theirs`` over common keys; None where no pair has values.

    >>> paired_difference({0: 2.0, 1: 4.0}, {0: 1.0, 2: 9.0})
    Difference(mean=1.0, half=None, n=1)
    """
    pairs = [(mine[key], theirs[key]) for key in mine if key in theirs]
    found = [one - other for one, other in pairs if one is not None and other is not None]
    if not found:
        return None
    half = None
    if len(found) > 1:
        from scipy.special import stdtrit

        quantile = float(stdtrit(len(found) - 1, (1 + _LEVEL) / 2))
        half = quantile * statistics.stdev(found) / math.sqrt(len(found))
    return Difference(mean=statistics.fmean(found), half=half, n=len(found))
