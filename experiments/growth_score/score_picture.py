"""The picture of docs/growth.md: HFC against that of random spaces of the same ranks.

A row of panels is a method, a column what activations a space is of. A point is the mean over the spaces of a
kind of images, for one choice of rows. ``scripts/tables.py`` draws it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from score_pages import CELLS, PLAN, ROWS, TAPS
from score_results import METHODS, Cross, crosses

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from interval_plot import COLOURS, INK, SHAPES, WIDTH, card, legend
from point_plot import Panel, axes, line, mark

PICTURE = "docs/growth_score.svg"
WHOSE = {
    "gradient of the same task, other images": COLOURS[1],
    "gradient of tasks of the same kind": COLOURS[0],
    "gradient of tasks of other kinds": INK,
}
DISC, SQUARE, TRIANGLE, CROSS = SHAPES[0], SHAPES[1], SHAPES[3], SHAPES[5]
MARKS = dict(zip(ROWS, (DISC, SQUARE, TRIANGLE, CROSS), strict=True))
"""The mark of each choice of rows."""
ENDS = (0.0, 85.0)
"""Of both axes, in degrees."""
LEFT, BETWEEN, SIDE = 40, 12, (WIDTH - 40 - 2 * 12 - 14) / 3
AXES = "across: HFC of random spaces; up: HFC, degrees"


def points(cross: Cross, tap: str) -> Iterator[tuple[str, int, tuple[float, float]]]:
    """Yield the points of a panel: choice of rows, whose gradient, and both angles."""
    tasks = np.arange(len(cross.tables[f"null|{tap}|all|0.95"]))
    same = tasks[:, None] % cross.kinds == tasks[None] % cross.kinds
    own = np.eye(len(tasks), dtype=bool)
    for rows in ROWS:
        reading = f"{tap}|{rows}|0.95"
        table, null = cross.hfc(reading), cross.tables[f"null|{reading}"]
        for kind in range(cross.kinds):
            spaces = tasks[kind :: cross.kinds]
            for whose, chosen in enumerate((own, same & ~own, ~same)):
                hfc = table[:, spaces][chosen[:, spaces]].mean()
                yield rows, whose, (float(null[spaces].mean()), float(hfc))


def drawn(found: dict[str, Cross]) -> str:
    """Return the picture as SVG, of the studies by the words of their methods."""
    parts, top = legend([(DISC, at, words) for at, words in enumerate(WHOSE)], 22)
    told = {rows: "all tokens" if n == "all" else f"one token of {n} images" for rows, n in ROWS.items()}
    further, top = legend([(MARKS[rows], len(WHOSE) - 1, words) for rows, words in told.items()], top + 22)
    parts += further
    for method in METHODS.values():
        top += 26
        parts.append(f'<text x="10" y="{top:.1f}" font-weight="bold">{method}</text>')
        for column, (tap, words) in enumerate(TAPS.items()):
            left = LEFT + column * (SIDE + BETWEEN)
            panel = Panel(left, top + 8, SIDE, SIDE, ENDS, ENDS)
            parts.append(f'<text x="{left + SIDE:.1f}" y="{top:.1f}" text-anchor="end">{words}</text>')
            parts += axes(panel, beside=column == 0)
            parts.append(line(panel, [(end, end) for end in ENDS], "axis"))
            parts.append('<g fill-opacity="0">')
            for rows, whose, point in points(found[method], tap):
                parts.append(mark(panel, point, whose, list(SHAPES).index(MARKS[rows])))
            parts.append("</g>")
        top += SIDE + 26
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{top + 14:.1f}" text-anchor="middle">{AXES}</text>')
    said = "HFC against that of random spaces of the same ranks, by method and activations"
    return card(WIDTH, top + 26, parts, said, list(WHOSE.values()))


def written() -> dict[str, str]:
    """Return the picture by its path, drawn from the stored cells."""
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))["tables"]
    return {PICTURE: drawn({cross.words: cross for cross in crosses(CELLS, plan)})}
