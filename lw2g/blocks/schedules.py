"""Learning-rate schedules: the rate of an epoch, given a group's base rate, the epoch and their number.

Each schedule is a formula. Released code often runs its formula one epoch late (:func:`late`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lw2g.blocks.options import ScheduleOptions, Stepping
from lw2g.interfaces.phase import Schedule, constant

__all__ = ["chosen_schedule", "coda_cosine", "cosine", "late", "milestones", "stepped", "steps", "warmed_up"]

_LEAST = 1e-5
"""Rate at which the HiDe-Prompt family's cosine ends, whatever the base rate."""
_WARMUP_START = 1e-6
"""Rate at which its warm-up starts, likewise."""


def cosine(minimum: float = 0.0) -> Schedule:
    """Return half a cosine from the base rate towards ``minimum``, which is the same for all groups.

    >>> [round(cosine(0.1)(1.0, epoch, 4), 4) for epoch in range(4)]
    [1.0, 0.8682, 0.55, 0.2318]
    """

    def schedule(base: float, epoch: int, epochs: int) -> float:
        least = min(minimum, base)  # a group whose base rate lies below it keeps its rate
        return least + (base - least) * 0.5 * (1 + math.cos(math.pi * epoch / max(epochs, 1)))

    return schedule


def steps(every: int, factor: float = 0.1) -> Schedule:
    """Return the base rate times ``factor`` for every ``every`` epochs that have passed.

    >>> [round(steps(2)(1.0, epoch, 5), 4) for epoch in range(5)]
    [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def schedule(base: float, epoch: int, epochs: int) -> float:
        return base * factor ** (epoch // every)

    return schedule


def milestones(epochs: Sequence[int], factor: float) -> Schedule:
    """Return the base rate times ``factor`` for each of the given epochs that has been reached.

    >>> [round(milestones((2, 3), 0.1)(1.0, epoch, 4), 4) for epoch in range(4)]
    [1.0, 1.0, 0.1, 0.01]
    """

    def schedule(base: float, epoch: int, _: int) -> float:
        return base * factor ** sum(epoch >= milestone for milestone in epochs)

    return schedule


def coda_cosine(base: float, epoch: int, epochs: int) -> float:
    """Return CODA-Prompt's rate, ``base cos(99 pi epoch / (200 (epochs - 1)))``; ``base`` for one epoch.

    >>> round(coda_cosine(1.0, 10, 20), 4), round(coda_cosine(1.0, 19, 20), 4)
    (0.6833, 0.0157)
    """
    if epochs <= 1:
        return base
    return base * math.cos(99 * math.pi * epoch / (200 * (epochs - 1)))


def warmed_up(schedule: Schedule, epochs: int, start: float) -> Schedule:
    """Return a schedule whose first ``epochs`` rates rise linearly from ``start`` to the base rate.

    The schedule itself is not delayed: its rates for those epochs are skipped.

    >>> [warmed_up(steps(4), 2, 0.5)(1.0, epoch, 6) for epoch in range(6)]
    [0.5, 0.75, 1.0, 1.0, 0.1, 0.1]
    """

    def warm(base: float, epoch: int, total: int) -> float:
        if epoch >= epochs:
            return schedule(base, epoch, total)
        least = min(start, base)  # a group whose base rate lies below the start keeps its rate
        return least + (base - least) * epoch / epochs

    return warm


def late(schedule: Schedule) -> Schedule:
    """Return a schedule one epoch late: epochs 0 and 1 have its first rate, and its last rate is never used.

    CODA-Prompt's scheduler and its copies run so, because their constructor takes a step and resets the
    counter; HiDe-Prompt's too, because they get an epoch's number after that epoch.

    >>> [round(late(coda_cosine)(1.0, epoch, 4), 4) for epoch in range(4)]
    [1.0, 1.0, 0.8686, 0.509]
    """

    def schedule_before(base: float, epoch: int, epochs: int) -> float:
        return schedule(base, max(epoch - 1, 0), epochs)

    return schedule_before


def stepped(schedule: Schedule, stepping: Stepping) -> Schedule:
    """Return the schedule as released code runs it (``"official"``), or unchanged (``"exact"``)."""
    if stepping == "official":
        return late(schedule)
    return schedule


def chosen_schedule(options: ScheduleOptions, task: int) -> Schedule:
    """Return the schedule that the options choose for a task.

    Args:
        options: Options of the method.
        task: Index of the task, from 0.
    """
    if options.schedule == "constant" or (task and options.schedule_tasks == "first"):
        return constant
    formula = cosine(_LEAST)
    if options.schedule == "step":
        formula = steps(options.decay_epochs)
    # ``stepping`` comes last: where it is one epoch late, as in released code, the warm-up is late as well
    return stepped(warmed_up(formula, options.warmup_epochs, _WARMUP_START), options.stepping)
