"""The picture of docs/carries.md: how far classes move in each task of a cell, and by the gate.

``scripts/tables.py`` draws it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from cell import STEPS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from interval_plot import COLOURS, SHAPES, WIDTH, card, legend  # noqa: E402
from point_plot import Panel, axes, line, mark  # noqa: E402

PICTURE = "docs/carries.svg"
CELL = "turns.0.slca-plus-plus.64.npz"
"""The cell of the page's picture, whose caption names its stream, order and size."""
AXES = "across: task; up: motion of class means (distance)"


def lengths(steps: np.ndarray) -> dict[str, np.ndarray]:
    """Return the motion of each kind of classes in each task from the second on."""
    named = dict(zip(STEPS, steps.T, strict=True))
    return {
        "new classes": named["new_test"],
        "old classes": named["old_test"],
        "old classes, by the gate": named["gate"] * named["new_test"],
    }


def drawn(steps: np.ndarray) -> str:
    """Return the picture as SVG: a line for each kind of classes."""
    found = lengths(steps)
    parts, bottom = legend([(SHAPES[at], at, name) for at, name in enumerate(found)], 22)
    highest = float(max(values.max() for values in found.values()))
    panel = Panel(44, bottom + 18, WIDTH - 62, 220, (1.5, len(steps) + 1.5), (0, 1.05 * highest))
    parts += axes(panel)
    for at, values in enumerate(found.values()):
        points = [(task, float(length)) for task, length in enumerate(values, start=2)]
        parts.append(line(panel, points, f"c{at}"))
        parts += [mark(panel, point, at, at) for point in points]
    bottom = panel.top + panel.height + 36
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{bottom:.1f}" text-anchor="middle">{AXES}</text>')
    return card(WIDTH, bottom + 12, parts, "Motion of new and old classes by task", COLOURS[: len(found)])


def written(cells: Path) -> dict[str, str]:
    """Return the picture by its path, drawn from the stored answers."""
    return {PICTURE: drawn(np.load(cells / CELL)["steps"])}
