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

from stream_tables import FLOOR, FROZEN, LABELS, Line

COLOURS = (
    "#2f6fb5",
    "#c2502f",
    "#3d8b53",
    "#8a5fb0",
    "#a8801f",
    "#4b9aa8",
    "#d16ba5",
    "#7a5230",
    "#9aa83b",
    "#5b5bd6",
    "#e0a030",
    "#20705f",
    "#b0305c",
    "#606c38",
)
GREY = "#888888"
"""The colour of what trains nothing."""
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
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 400, 60, 16, 56
LONGEST = 44
"""Letters of a name in the legend that half of the width has room for."""
INK = "#808080"
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
    colours = {method: COLOURS[number % len(COLOURS)] for number, method in enumerate(trained)}
    marks = dict(zip(streams, itertools.cycle(SHAPES)))
    legend = [(marks[stream], INK, stream) for stream in streams]
    legend.append((SHAPES[0], GREY, "other heads on frozen features"))
    legend += [(SHAPES[0], colours[method], _plain(method)) for method in trained]
    # two in a line; a long name has a line of its own, after the others
    short = [entry for entry in legend if len(entry[2]) <= LONGEST]
    long = [entry for entry in legend if len(entry[2]) > LONGEST]
    first_long = math.ceil(len(short) / 2)
    placed = [(entry, number % 2, number // 2) for number, entry in enumerate(short)]
    placed += [(entry, 0, first_long + number) for number, entry in enumerate(long)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} '
        f'{HEIGHT + 18 * (first_long + len(long)) + 9}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        *_axes(x, y, (low, high), most, right, bottom),
    ]
    for times, gain, line in points:
        said = f"{_plain(line.method)}, {line.stream}: {gain:+.1f} points for {times:.0f} forwards an image"
        parts.append(
            f'<path transform="translate({x(times):.1f} {y(gain):.1f})" d="{marks[line.stream]}" '
            f'fill="{colours.get(line.method, GREY)}" fill-opacity="0.8">'
            f"<title>{html.escape(said)}</title></path>"
        )
    for (shape, colour, name), column, row in placed:
        left, down = LEFT + 330 * column, HEIGHT + 18 * row
        parts.append(f'<path transform="translate({left} {down - 4})" d="{shape}" fill="{colour}"/>')
        parts.append(f'<text x="{left + 10}" y="{down}" font-size="11">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


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
            f'<line x1="{LEFT}" x2="{right}" y1="{y(gain):.1f}" y2="{y(gain):.1f}" '
            f'stroke="{INK}" stroke-width="{width}"/>'
        )
        yield f'<text x="{LEFT - 8}" y="{y(gain) + 4:.1f}" text-anchor="end">{gain:+d}</text>'
    for power in range(math.ceil(math.log2(2 * most)) + 1):
        times = 2**power
        if times <= 2 * most:
            yield f'<text x="{x(times):.1f}" y="{bottom + 18}" text-anchor="middle">{times}</text>'
    yield (
        f'<text x="{(LEFT + right) / 2:.0f}" y="{bottom + 36}" text-anchor="middle">'
        "forwards of the bare backbone for each training image</text>"
    )
    yield (
        f'<text x="14" y="{(TOP + bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + bottom) / 2:.0f})">points above lda on frozen features</text>'
    )
