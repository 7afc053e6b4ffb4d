"""Averages of values of which some are not defined."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["mean_of_known"]


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are defined; None where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) / len(known)
