"""What runs of one configuration reach together, the same wherever it is told."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from lw2g.results.bootstrap import over_gaps
from lw2g.results.right_answers import RightAnswers, shared_answers
from lw2g.results.run_draws import Draw, unit_of
from lw2g.results.summaries import MeanStd, doubt_of_few, grouped, summary, without_rounding_error

__all__ = ["Interval", "as_number", "interval_over", "over_draws", "printed"]


@attrs.frozen(kw_only=True)
class Interval:
    """The 95 % interval of a final accuracy (FAA).

    Attributes:
        low: Its lower end, in percent.
        high: Its upper end.
        images: How many test images it is over.
        alike: Whether it is over these alone, as all runs give the same answers, or there is one run.
    """

    low: float
    high: float
    images: int
    alike: bool

    @property
    def doubt(self) -> str:
        """That so few images tell little, to stand behind it; empty where they are not few."""
        return doubt_of_few((self.low, self.high), self.images)

    def __str__(self) -> str:
        return f"{self.low:.1f} to {self.high:.1f}"


def over_draws(draws: Sequence[Draw], values: Sequence[float | None]) -> MeanStd:
    """Return mean, deviation and n of a value of each run, over class orders or the seeds of one.

    Args:
        draws: The seed and class order of each run.
        values: Its value; None where it has none.

    >>> over_draws([(0, (0, 1)), (1, (0, 1)), (0, (1, 0))], [1.0, 3.0, 4.0])
    MeanStd(mean=3.0, std=1.4142135623730951, n=2)
    """
    means: list[float | None] = []
    for of_unit in grouped(zip(draws, values, strict=True), unit_of(draws)):
        present = [value for value in of_unit if value is not None]
        means.append(statistics.fmean(present) if len(present) == len(of_unit) else None)
    return summary(means)


def interval_over(
    answers: Mapping[Draw, RightAnswers], shared: RightAnswers | None = None
) -> Interval | None:
    """Return the interval of a row's final accuracy; None without answers.

    Of one run, or of runs that answer alike, it is over test images (Wilson); else a percentile bootstrap
    over images and class orders, or the seeds of one (:mod:`lw2g.results.bootstrap`).

    Args:
        answers: Those of each run, by its seed and class order.
        shared: Those that all of them share, where they do.
    """
    if not answers:
        return None
    if len(answers) == 1:
        shared = shared_answers(list(answers.values()))
    if shared is not None:
        low, high = shared.interval
        return Interval(low=low, high=high, images=len(shared.images), alike=True)

    # orders are drawn by their places, which may not depend on how the runs were found
    in_order = sorted(answers.items(), key=_by_draw)
    place_of: dict[object, int] = {}
    for _, own in in_order:
        for image in own.images:
            place_of.setdefault(image, len(place_of))
    units = grouped(in_order, unit_of(answers))
    right = np.zeros((len(units), len(place_of)))
    shares = np.zeros_like(right)
    for row, of_unit in enumerate(units):
        for own in of_unit:
            places = [place_of[image] for image in own.images]
            right[row, places] += own.shares * own.right / len(of_unit)
            shares[row, places] += own.shares / len(of_unit)
    low, high, _ = over_gaps(right, shares)
    return Interval(low=low, high=high, images=len(place_of), alike=False)


def _by_draw(item: tuple[Draw, RightAnswers]) -> Draw:
    draw, _ = item
    return draw


def as_number(value: float, digits: int, sign: str = "") -> str:
    """Return a number with thousands set apart and no minus before a zero; ``sign`` is ``+`` or empty.

    Numbers that differ by the digits of rounding errors alone are printed alike.

    >>> as_number(0.145, 2), as_number(0.1 + 0.045, 2), as_number(-1234.5, 0), as_number(-0.001, 2, "+")
    ('0.14', '0.14', '-1,234', '+0.00')
    """
    return f"{without_rounding_error(value):{sign}z,.{digits}f}"


def printed(over: MeanStd, digits: int) -> tuple[str, str]:
    """Return mean and deviation as they are printed; the latter is empty where it says nothing.

    That is of a single value, of a constant, and where it is below the last digit.

    >>> printed(summary([80.0, 81.0]), 2), printed(summary([80.0, 80.001]), 2)
    (('80.50', '0.71'), ('80.00', ''))
    """
    if over.mean is None:
        return "-", ""
    std = "" if over.std is None else as_number(over.std, digits)
    return as_number(over.mean, digits), std if std.strip("0.") else ""
