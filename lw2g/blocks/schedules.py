"""Learning-rate schedules: functions of (epoch, epochs) that give the factor on the base learning rate."""

from __future__ import annotations

import math

from lw2g.interfaces.phase import Schedule

__all__ = ["coda_cosine", "cosine", "step_at"]


def cosine(minimum: float = 0.0) -> Schedule:
    """Return a half cosine from 1 towards ``minimum``, stepped once an epoch.

    >>> [round(cosine()(epoch, 4), 4) for epoch in range(4)]
    [1.0, 0.8536, 0.5, 0.1464]
    """

    def schedule(epoch: int, epochs: int) -> float:
        return minimum + (1 - minimum) * 0.5 * (1 + math.cos(math.pi * epoch / max(epochs, 1)))

    return schedule


def step_at(epoch_of_drop: int, factor: float = 0.1) -> Schedule:
    """Return 1 before the given epoch and ``factor`` from it on.

    >>> [step_at(2)(epoch, 4) for epoch in range(4)]
    [1.0, 1.0, 0.1, 0.1]
    """

    def schedule(epoch: int, epochs: int) -> float:
        return 1.0 if epoch < epoch_of_drop else factor

    return schedule


def coda_cosine(epoch: int, epochs: int) -> float:
    """Return CODA-Prompt's factor ``cos(99 pi epoch / (200 (epochs - 1)))``, 1 for a single epoch.

    >>> round(coda_cosine(10, 20), 4), round(coda_cosine(19, 20), 4)
    (0.6833, 0.0157)
    """
    return 1.0 if epochs <= 1 else math.cos(99 * math.pi * epoch / (200 * (epochs - 1)))
