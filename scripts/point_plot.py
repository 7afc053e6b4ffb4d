"""Parts of a picture of points: a panel with numbers along it, marks and lines.

The card around them is that of interval_plot.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from interval_plot import SHAPES, steps

__all__ = ["Panel", "axes", "line", "mark"]


class Panel(NamedTuple):
    """Where a panel stands, in pixels, and the values at its ends."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point in pixels."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + self.width * across, self.top + self.height * (1 - up)


def axes(panel: Panel, *, below: bool = True, beside: bool = True) -> Iterator[str]:
    """Yield the grid of a panel, with numbers below and at the left where they are asked for."""
    right, bottom = panel.left + panel.width, panel.top + panel.height
    for value in steps(*panel.x):
        x, _ = panel.place(value, panel.y[0])
        yield f'<path class="axis" stroke-width="0.3" d="M{x:.1f},{panel.top:.1f}V{bottom:.1f}"/>'
        if below:
            yield f'<text x="{x:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{value:g}</text>'
    for value in steps(*panel.y):
        _, y = panel.place(panel.x[0], value)
        yield f'<path class="axis" stroke-width="0.3" d="M{panel.left:.1f},{y:.1f}H{right:.1f}"/>'
        if beside:
            yield f'<text x="{panel.left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'


def mark(panel: Panel, point: tuple[float, float], colour: int, shape: int) -> str:
    """Return the mark of a point, in one of the card's colours and one of its shapes."""
    x, y = panel.place(*point)
    return f'<path class="c{colour}" transform="translate({x:.1f} {y:.1f})" d="{SHAPES[shape]}"/>'


def line(panel: Panel, points: Iterable[tuple[float, float]], named: str) -> str:
    """Return a line through points, of a class of the card."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (panel.place(*point) for point in points))
    return f'<polyline class="{named}" fill-opacity="0" stroke-width="1.5" points="{places}"/>'
