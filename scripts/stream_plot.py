"""A picture of the leaderboard: what a method ends above the floor on each report stream, and what it takes.

A row is a method, in the order of its forwards of the bare backbone for each training image; at its right
stand their least and most. A mark is a report stream at the largest size: FAA less that of ``lda`` on frozen
features. Only the standard library draws it.
"""

from __future__ import annotations

import html
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from interval_plot import COLOURS as MARKED
from interval_plot import WIDTH, card, legend, steps
from stream_tables import FLOOR, FROZEN, LABELS, Line

COLOURS = (*MARKED, ("#b1447f", "#e580b6"))
"""The colours of streams, on a light and on a dark card."""
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "M-4.5,-4.5h9v9h-9z",
    "M0,-6l6,11h-12z",
    "M0,-7l6,7l-6,7l-6,-7z",
    "M0,6l6,-11h-12z",
    "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "M-6,-2l6,-4l6,4l-2,7h-8z",
)
"""Their marks, as paths around the origin: disc, square, triangles, diamond, cross, pentagon."""
LEFT, RIGHT, ROW = 14, WIDTH - 14, 31
OTHERS = "other heads on frozen features"


def picture(lines: Sequence[Line]) -> str:
    """Return the picture as SVG, empty axes where no line but the floor's is there."""
    shown = [line for line in lines if line.method != FLOOR and line.less_the_floor is not None]
    streams = list(dict.fromkeys(line.stream for line in shown))
    if len(streams) > len(SHAPES):
        raise ValueError(f"{len(streams)} streams for {len(SHAPES)} marks")
    rows: dict[str, list[Line]] = defaultdict(list)
    for line in shown:
        rows[OTHERS if line.method in FROZEN else _plain(line.method)].append(line)
    in_order = dict(sorted(rows.items(), key=lambda row: statistics.fmean(map(_forwards, row[1]))))
    parts, top = legend([(SHAPES[at], at, stream) for at, stream in enumerate(streams)], 22)
    parts.append(f'<text x="{RIGHT}" y="{top + 24:.0f}" text-anchor="end">forwards an image</text>')
    parts += _rows(in_order, {stream: at for at, stream in enumerate(streams)}, top + 32)
    bottom = top + 32 + ROW * len(in_order)
    axis = "points above lda on frozen features"
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{bottom + 34:.0f}" text-anchor="middle">{axis}</text>')
    said = "Points above lda on frozen features by method and stream, with forwards for each training image"
    return card(WIDTH, bottom + 46, parts, said, COLOURS)


def _plain(method: str) -> str:
    """Return the label of a method without marks of Markdown."""
    return LABELS.get(method, method).replace("`", "").replace("*", "")


def _forwards(line: Line) -> float:
    """Return a line's forwards for each training image."""
    return max(1.0, statistics.fmean(run.forwards for run in line.runs))


def _gain(line: Line) -> float:
    """Return a line's FAA less the floor's."""
    apart = line.less_the_floor
    assert apart is not None, "the floor has no place"
    return apart.mean


def _rows(rows: Mapping[str, Sequence[Line]], marks: Mapping[str, int], top: float) -> Iterator[str]:
    """Yield the grid, then for each method its name and forwards, and below them its marks."""
    gains = [_gain(line) for lines in rows.values() for line in lines]
    low, high = min([-1.0, *gains]), max([1.0, *gains])
    bottom = top + ROW * len(rows)

    def x(gain: float) -> float:
        return LEFT + 8 + (RIGHT - LEFT - 16) * (gain - low) / (high - low)

    for value in steps(low, high):
        words = f"{value:+g}" if value else "0"
        yield f'<text x="{x(value):.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{words}</text>'
    for number, (method, lines) in enumerate(rows.items()):
        above = top + ROW * number
        ends = f'x1="{LEFT}" x2="{RIGHT}" y1="{above:.1f}" y2="{above:.1f}"'
        yield f'<line class="axis" {ends} stroke-width="0.3"/>'
        for value in steps(low, high):
            # beside the marks alone: a line through the words would make them hard to read
            ends = f'x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{above + 17:.1f}" y2="{above + ROW:.1f}"'
            yield f'<line class="axis" {ends} stroke-width="{1.5 if value == 0 else 0.3}"/>'
        taken = sorted(map(_forwards, lines))
        least, most = f"{taken[0]:.1f}", f"{taken[-1]:.1f}"
        cost = least if least == most else f"{least} to {most}"
        yield f'<text x="{LEFT}" y="{above + 13:.1f}">{html.escape(method)}</text>'
        yield f'<text x="{RIGHT}" y="{above + 13:.1f}" text-anchor="end">{cost}</text>'
        for line in lines:
            at = marks[line.stream]
            said = f"{_plain(line.method)}, {line.stream}: {_gain(line):+.1f} points"
            yield (
                f'<path class="c{at}" fill-opacity="0.85" stroke="none" '
                f'transform="translate({x(_gain(line)):.1f} {above + 23:.1f})" d="{SHAPES[at]}">'
                f"<title>{html.escape(said)}</title></path>"
            )
