"""A picture of the leaderboard: what a method ends above the floor, against what it takes.

A point is a method on a report stream at the largest size: its forwards of the bare backbone for each
training image (logarithmic), and its FAA less that of ``lda`` on frozen features. Only the standard library
draws it.
"""

from __future__ import annotations

import html
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from interval_plot import COLOURS as MARKED
from interval_plot import card, legend
from stream_tables import FLOOR, FROZEN, LABELS, Line

COLOURS = (
    *MARKED,
    ("#b1447f", "#e580b6"),
    ("#7d5a45", "#c2987d"),
    ("#5f6f1c", "#a9ba55"),
    ("#4d4fc4", "#9a9cf0"),
    ("#b86b00", "#f2b35c"),
    ("#20705f", "#6fd0b8"),
    ("#8f1f4c", "#f06a9b"),
    ("#606c38", "#c5d08a"),
    ("#1f5fd0", "#8ab8ff"),
    ("#7b2fa0", "#d3a3f0"),
    ("#3f7d20", "#8fdc66"),
    ("#9c3d10", "#ffa27a"),
)
"""The colours of what trains, on a light and on a dark card."""
GREY = ("#737a83", "#9aa2ad")
"""That of what trains nothing."""
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "M-5,-5h10v10h-10z",
    "M0,-6l6,11h-12z",
    "M0,-7l6,7l-6,7l-6,-7z",
    "M0,6l6,-11h-12z",
    "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "M-6,-2l6,-4l6,4l-2,7h-8z",
)
"""Marks of streams, as paths around the origin: disc, square, triangles, diamond, cross, pentagon."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 440, 360, 54, 16, 48
Scale: TypeAlias = Callable[[float], float]


def picture(lines: Sequence[Line]) -> str:
    """Return the picture as SVG, empty axes where no line but the floor's is there."""
    shown = [line for line in lines if line.method != FLOOR and line.less_the_floor is not None]
    points = [(*_place(line), line) for line in shown]
    most = max([2.0, *(times for times, _, _ in points)])
    low = 5 * math.floor(min([0.0, *(gain for _, gain, _ in points)]) / 5)
    high = 5 * math.ceil(max([5.0, *(gain for _, gain, _ in points)]) / 5)
    right, bottom = WIDTH - 20, HEIGHT - BOTTOM

    def x(times: float) -> float:
        return LEFT + (right - LEFT) * math.log2(times) / math.log2(2 * most)

    def y(gain: float) -> float:
        return bottom - (bottom - TOP) * (gain - low) / (high - low)

    streams = list(dict.fromkeys(line.stream for line in shown))
    trained = list(dict.fromkeys(line.method for line in shown if line.method not in FROZEN))
    grey = len(COLOURS)
    colours = {method: number % grey for number, method in enumerate(trained)}
    marks = dict(zip(streams, itertools.cycle(SHAPES)))
    parts = list(_axes(x, y, (low, high), most, right, bottom))
    for times, gain, line in points:
        said = f"{_plain(line.method)}, {line.stream}: {gain:+.1f} points for {times:.0f} forwards an image"
        parts.append(
            f'<path class="c{colours.get(line.method, grey)}" fill-opacity="0.8" stroke="none" '
            f'transform="translate({x(times):.1f} {y(gain):.1f})" d="{marks[line.stream]}">'
            f"<title>{html.escape(said)}</title></path>"
        )
    down = HEIGHT + 14.0
    for title, entries in (
        ("Shape: stream", [(marks[stream], grey, stream) for stream in streams]),
        (
            "Colour: method",
            [
                (SHAPES[0], grey, "other heads on frozen features"),
                *((SHAPES[0], colours[method], _plain(method)) for method in trained),
            ],
        ),
    ):
        parts.append(f'<text x="12" y="{down:.0f}" font-weight="bold">{title}</text>')
        drawn, down = legend(entries, down + 20)
        parts += drawn
        down += 26
    said = "Points above lda on frozen features against forwards for each training image"
    return card(WIDTH, down - 12, parts, said, [*COLOURS, GREY])


def _plain(method: str) -> str:
    """Return the label of a method without marks of Markdown."""
    return LABELS.get(method, method).replace("`", "").replace("*", "")


def _place(line: Line) -> tuple[float, float]:
    """Return a line's forwards for each training image, and its FAA less the floor's."""
    forwards = statistics.fmean(run.forwards for run in line.runs)
    apart = line.less_the_floor
    assert apart is not None, "the floor has no place"
    return max(1.0, forwards), apart.mean


def _axes(x: Scale, y: Scale, gains: tuple[int, int], most: float, right: int, bottom: int) -> Iterator[str]:
    """Yield the grid and its words."""
    for gain in range(gains[0], gains[1] + 1, 5):
        width = 1.5 if gain == 0 else 0.4
        yield (
            f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{y(gain):.1f}" y2="{y(gain):.1f}" '
            f'stroke-width="{width}"/>'
        )
        yield f'<text x="{LEFT - 8}" y="{y(gain) + 4:.1f}" text-anchor="end">{gain:+d}</text>'
    for power in range(math.ceil(math.log2(2 * most)) + 1):
        times = 2**power
        if times <= 2 * most:
            yield f'<text x="{x(times):.1f}" y="{bottom + 18}" text-anchor="middle">{times}</text>'
    yield (
        f'<text x="{(LEFT + right) / 2:.0f}" y="{bottom + 34}" text-anchor="middle">'
        "forwards for each training image</text>"
    )
    yield (
        f'<text x="14" y="{(TOP + bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + bottom) / 2:.0f})">points above lda on frozen features</text>'
    )
