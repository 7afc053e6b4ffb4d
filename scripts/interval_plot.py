"""A picture of means with intervals: rows below each other, a shape and colour for each series.

Only the standard library draws it. It is as wide as a telephone, so that letters stay readable there,
stands on a card, and follows light and dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["COLOURS", "INK", "SHAPES", "Panel", "Point", "card", "legend", "picture", "steps"]

COLOURS = (
    ("#2f6fb7", "#5b9fe6"),
    ("#bb4d33", "#ee8064"),
    ("#2e8560", "#55b78d"),
    ("#7a55a8", "#b091dd"),
    ("#a37200", "#dfae45"),
    ("#148793", "#4fbfca"),
)
"""The colours of series, on a light and on a dark card."""
SHAPES = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
    "M-3.5,-3.5h7v7h-7z",
    "M0,-5l5,5l-5,5l-5,-5z",
    "M0,-5l5,8.5h-10z",
    "M0,5l5,-8.5h-10z",
    "M-1.6,-4.5h3.2v2.9h2.9v3.2h-2.9v2.9h-3.2v-2.9h-2.9v-3.2h2.9z",
)
"""Their marks, as paths around the origin: disc, square, diamond, triangles, cross."""
INK = ("#4c555e", "#b4bcc5")
"""The colour of letters and axes, on a light and on a dark card."""
CARD = ("#fdfdfb", "#1f2226")
"""The colours of the card."""
WIDTH, SHOWN = 440, 600
"""Its own width, and that on a wide screen, in pixels."""
LETTER = 7.6
"""The width of a letter in a word, in pixels: more than that of common fonts at a height of 12."""
LINE, BETWEEN = 11, 9
"""Between two marks of a row, and between two rows, in pixels."""


class Point(NamedTuple):
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


class Panel(NamedTuple):
    """One axis: the words below it, its points by row and series, and where intervals are cut off."""

    axis: str
    rows: Mapping[str, Mapping[str, Point]]
    within: tuple[float, float] = (-math.inf, math.inf)


def picture(series: Sequence[str], panels: Sequence[Panel], said: str) -> str:
    """Return the picture as SVG.

    Args:
        series: The names of the series, at most six.
        panels: The panels, one below the other.
        said: What it shows, for those who do not see it.
    """
    parts, bottom = legend([(SHAPES[at], at, name) for at, name in enumerate(series)], 22)
    for panel in panels:
        drawn, bottom = _panel(panel, series, bottom + 10)
        parts += drawn
    return card(WIDTH, bottom + 12, parts, said, [own for own, _ in zip(COLOURS, series, strict=False)])


def card(
    width: float, height: float, parts: Sequence[str], said: str, colours: Sequence[tuple[str, str]]
) -> str:
    """Return parts on a card as SVG; class ``cN`` has the Nth of the colours, light and dark."""
    schemes = []
    for scheme in (0, 1):
        rules = [
            f"text{{fill:{INK[scheme]}}} .axis{{stroke:{INK[scheme]}}}",
            f".card{{fill:{CARD[scheme]};stroke:{INK[scheme]};stroke-opacity:.25}}",
        ]
        rules += [f".c{at}{{fill:{own[scheme]};stroke:{own[scheme]}}}" for at, own in enumerate(colours)]
        schemes.append("\n".join(rules))
    light, dark = schemes
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{SHOWN}" '
        f'role="img" aria-label="{html.escape(said)}" font-family="sans-serif" font-size="12">',
        f"<style>\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}</style>",
        f'<rect class="card" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>',
        *parts,
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def legend(entries: Sequence[tuple[str, int, str]], top: float) -> tuple[list[str], float]:
    """Return a legend, as many names in a line as there is room for, and the height of its last line.

    Args:
        entries: Shape, number of the colour and name of each entry.
        top: The height of its first line.
    """
    parts = []
    left = 16.0
    for shape, colour, name in entries:
        width = 24 + LETTER * len(name)
        if left > 16 and left + width > WIDTH - 8:
            left = 16.0
            top += 18
        parts.append(f'<path class="c{colour}" transform="translate({left:.1f} {top - 4:.1f})" d="{shape}"/>')
        parts.append(f'<text x="{left + 9:.1f}" y="{top:.1f}">{html.escape(name)}</text>')
        left += width
    return parts, top


def steps(low: float, high: float) -> list[float]:
    """Return round numbers from ``low`` to ``high``, eight at most."""
    rough = (high - low) / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough)
    first = math.ceil(low / step)
    return [round(step * at, 6) for at in range(first, math.floor(high / step) + 1)]


def _panel(panel: Panel, series: Sequence[str], top: float) -> tuple[list[str], float]:
    """Return a panel that begins at a height, and where it ends."""
    points = [own for of in panel.rows.values() for own in of.values()]
    low = max(panel.within[0], min([0.0, *(own.low for own in points)]))
    high = min(panel.within[1], max([0.0, *(own.high for own in points)]))
    left = 20 + LETTER * max(map(len, panel.rows))
    right = WIDTH - 20

    def x(value: float) -> float:
        return left + (right - left) * (min(max(value, low), high) - low) / (high - low)

    row_height = LINE * len(series) + BETWEEN
    bottom = top + row_height * len(panel.rows)
    parts = []
    for value in steps(low, high):
        ends = f'x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{top:.1f}" y2="{bottom:.1f}"'
        parts.append(f'<line class="axis" {ends} stroke-width="{1.5 if value == 0 else 0.3}"/>')
        words = f"{value:+g}" if value else "0"
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{words}</text>')
    for number, (name, of) in enumerate(panel.rows.items()):
        above = top + row_height * number
        if number:
            ends = f'x1="14" x2="{right}" y1="{above:.1f}" y2="{above:.1f}"'
            parts.append(f'<line class="axis" {ends} stroke-width="0.3"/>')
        middle = above + row_height / 2 + 4
        parts.append(f'<text x="14" y="{middle:.1f}">{html.escape(name)}</text>')
        for at, one in enumerate(series):
            if one in of:
                y = above + (BETWEEN + LINE) / 2 + LINE * at
                parts += _marked(of[one], f"{one}, {name}", at, x, y)
    parts.append(
        f'<text x="{(left + right) / 2:.1f}" y="{bottom + 33:.1f}" text-anchor="middle">'
        f"{html.escape(panel.axis)}</text>"
    )
    return parts, bottom + 36


def _marked(own: Point, name: str, at: int, x: Callable[[float], float], y: float) -> Iterator[str]:
    """Yield the interval and the mark of a point, which says its numbers under the pointer."""
    ends = f'x1="{x(own.low):.1f}" x2="{x(own.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
    yield f'<line class="c{at}" {ends} stroke-width="1.5"/>'
    told = html.escape(f"{name}: {own.mean:+.1f} ({own.low:+.1f} to {own.high:+.1f})")
    yield f'<path class="c{at}" transform="translate({x(own.mean):.1f} {y:.1f})" d="{SHAPES[at]}">'
    yield f"<title>{told}</title></path>"
