"""The numbers of a figure and its table: rows of plain values."""

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
        name: Its name in the drawing.
        title: Its title for readers, with the unit.
        digits: Shown decimals; None if it is not a fraction.
    """

    name: str
    title: str
    digits: int | None = None


@attrs.frozen(kw_only=True)
class Numbers:
    """The numbers of one figure.

    Attributes:
        rows: Rows of one value per field.
        facts: Their summary, in short sentences.
        why: Why there are no rows, in one line; empty otherwise.
        extra: Further data of the drawing, such as lines and outlines, by name.
        has_line: Whether these draw the line that the figure's reading explains.
    """

    rows: Sequence[Sequence[Value]] = ()
    facts: Sequence[str] = ()
    why: str = ""
    extra: Mapping[str, Sequence[Mapping[str, Any]]] = attrs.field(factory=dict)
    has_line: bool = False


def mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    listed = list(values)
    return sum(listed) / len(listed)
