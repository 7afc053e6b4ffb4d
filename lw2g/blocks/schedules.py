"""Learning-rate schedules: the rate of an epoch, given a group's own rate, the epoch and their number.

Each of them is a formula. Released code does not run its formulas as they are written (:func:`late`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lw2g.blocks.options import ScheduleOptions, Stepping
from lw2g.interfaces.phase import Schedule, constant

__all__ = ["chosen_schedule", "coda_cosine", "cosine", "late", "milestones", "stepped", "steps", "warmed_up"]

_LEAST, _WARMUP_START = 1e-5, 1e-6
"""Rates at which the cosines of the HiDe-Prompt family end and its warm-up begins, whatever a group's own."""


def cosine(minimum: float = 0.0) -> Schedule:
    """Return half a cosine from the group's rate towards the rate ``minimum``, the same one for all groups.

    >>> [round(cosine(0.1)(1.0, epoch, 4), 4) for epoch in range(4)]
    [1.0, 0.8682, 0.55, 0.2318]
    """

    def schedule(base: float, epoch: int, epochs: int) -> float:
        least = min(minimum, base)
        return least + (base - least) * 0.5 * (1 + math.cos(math.pi * epoch / max(epochs, 1)))

    return schedule


def steps(every: int, factor: float = 0.1) -> Schedule:
    """Return the group's rate, times ``factor`` once for every ``every`` epochs that are over.

    >>> [round(steps(2)(1.0, epoch, 5), 4) for epoch in range(5)]
    [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def schedule(base: float, epoch: int, epochs: int) -> float:
        return base * factor ** (epoch // every)

    return schedule


def milestones(epochs: Sequence[int], factor: float) -> Schedule:
    """Return the group's rate, times ``factor`` from each of the given epochs on.

    >>> [round(milestones((2, 3), 0.1)(1.0, epoch, 4), 4) for epoch in range(4)]
    [1.0, 1.0, 0.1, 0.01]
    """

    def schedule(base: float, epoch: int, _: int) -> float:
        return base * factor ** sum(epoch >= one for one in epochs)

    return schedule


def coda_cosine(base: float, epoch: int, epochs: int) -> float:
    """Return CODA-Prompt's rate, ``cos(99 pi epoch / (200 (epochs - 1)))`` of the base; 1 for a single epoch.

    >>> round(coda_cosine(1.0, 10, 20), 4), round(coda_cosine(1.0, 19, 20), 4)
    (0.6833, 0.0157)
    """
    return base if epochs <= 1 else base * math.cos(99 * math.pi * epoch / (200 * (epochs - 1)))


def warmed_up(schedule: Schedule, epochs: int, start: float) -> Schedule:
    """Return a schedule whose first ``epochs`` rates rise in a line from ``start`` to the group's own rate.

    The schedule itself is not moved: the rates that it would have had meanwhile are left out.

    >>> [warmed_up(steps(4), 2, 0.5)(1.0, epoch, 6) for epoch in range(6)]
    [0.5, 0.75, 1.0, 1.0, 0.1, 0.1]
    """

    def warm(base: float, epoch: int, total: int) -> float:
        if epoch >= epochs:
            return schedule(base, epoch, total)
        least = min(start, base)
        return least + (base - least) * epoch / epochs

    return warm


def late(schedule: Schedule) -> Schedule:
    """Return a schedule one epoch late: epochs 0 and 1 have its first rate, and its last rate is never used.

    So run CODA-Prompt's scheduler and those that have it from there, whose constructor takes a step and sets
    the counter back, and HiDe-Prompt's, which are told after an epoch the number of that epoch.

    >>> [round(late(coda_cosine)(1.0, epoch, 4), 4) for epoch in range(4)]
    [1.0, 1.0, 0.8686, 0.509]
    """

    def schedule_before(base: float, epoch: int, epochs: int) -> float:
        return schedule(base, max(epoch - 1, 0), epochs)

    return schedule_before


def stepped(schedule: Schedule, stepping: Stepping) -> Schedule:
    """Return the schedule as released code runs it (``"official"``), or as it is (``"exact"``)."""
    return late(schedule) if stepping == "official" else schedule


def chosen_schedule(options: ScheduleOptions, task: int) -> Schedule:
    """Return the schedule of a task that the options choose.

    Args:
        options: A method's options.
        task: Index of the task, from 0.
    """
    if options.schedule == "constant" or (task and options.schedule_tasks == "first"):
        return constant
    formula = steps(options.decay_epochs) if options.schedule == "step" else cosine(_LEAST)
    return stepped(warmed_up(formula, options.warmup_epochs, _WARMUP_START), options.stepping)
