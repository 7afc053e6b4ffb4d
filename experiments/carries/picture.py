"""Draw how far classes move in each task of a cell: new ones, old ones, and old ones as the gate moves them.

python experiments/carries/picture.py CELL.npz docs/carries.svg
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from cell import STEPS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vega_picture import as_svg

LINES = {"new classes": "#cf5468", "old classes": "#4a86c5", "old classes, by the gate": "#6f9a3e"}
MARKS = ("circle", "square", "triangle-up")


def points(steps: np.ndarray) -> list[dict[str, object]]:
    """Return the points of the three lines, one of each a task from the second."""
    named = dict(zip(STEPS, steps.T, strict=True))
    lengths = (named["new_test"], named["old_test"], named["gate"] * named["new_test"])
    return [
        {"task": task + 2, "classes": line, "length": float(length)}
        for line, values in zip(LINES, lengths, strict=True)
        for task, length in enumerate(values)
    ]


def drawn(steps: np.ndarray) -> str:
    """Return the picture as SVG."""
    colour = {
        "field": "classes",
        "type": "nominal",
        "sort": list(LINES),
        "scale": {"domain": list(LINES), "range": list(LINES.values())},
        "legend": {"title": None, "orient": "top", "columns": 2},
    }
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 350,
        "height": 220,
        "background": "white",
        "data": {"values": points(steps)},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "task", "type": "ordinal", "axis": {"labelAngle": 0}},
            "y": {"field": "length", "type": "quantitative", "title": "motion of class means (distance)"},
            "color": colour,
            "shape": {
                "field": "classes",
                "sort": list(LINES),
                "scale": {"domain": list(LINES), "range": list(MARKS)},
                "legend": colour["legend"],
            },
        },
    }
    return as_svg(page)


def main() -> None:
    """Draw one cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cell", type=Path, help="its file")
    parser.add_argument("out", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    arguments.out.write_text(drawn(np.load(arguments.cell)["steps"]))


if __name__ == "__main__":
    main()
