"""What a figure draws and its table shows: rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

__all__ = ["Field", "Numbers", "Value", "mean"]

Value: TypeAlias = "str | int | float | bool | None"


@attrs.frozen(kw_only=True)
class Field:
    """A column of a figure's numbers.

    Attributes:
        name: What the drawing calls it.
        title: What a reader is told, with its unit.
        digits: Decimals that are shown; None where it is no fraction.
    """

    name: str
    title: str
    digits: int | None = None


@attrs.frozen(kw_only=True)
class Numbers:
    """The numbers of one figure.

    Attributes:
        rows: One value per field each.
        facts: What they come to, in short sentences.
        why: Why there are none, in one line; empty where there are some.
        extra: What is drawn beside the rows: lines, outlines; by names that the drawing knows.
    """

    rows: Sequence[Sequence[Value]] = ()
    facts: Sequence[str] = ()
    why: str = ""
    extra: Mapping[str, Sequence[Mapping[str, Any]]] = attrs.field(factory=dict)


def mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    found = list(values)
    return sum(found) / len(found)
