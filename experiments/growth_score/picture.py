"""Draw HFC against that of random spaces of the same ranks, for own, like and unlike tasks.

    python experiments/growth_score/picture.py docs/growth_score.svg

A row of panels is a method; a point is the mean over the spaces of a kind, for one choice of rows.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

import numpy as np
from score_pages import CELLS, PLAN, ROWS, TAPS
from score_results import METHODS, Cross, crosses

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vega_picture import as_svg

WHOSE = ("the same task, other images", "tasks of the same kind", "tasks of other kinds")


def points(cross: Cross, kinds: list[str]) -> list[dict[str, object]]:
    """Return the points of a method."""
    count = cross.kinds
    found: list[dict[str, object]] = []
    for tap, words in TAPS.items():
        for rows, tokens in ROWS.items():
            reading = f"{tap}|{rows}|0.95"
            told = "all tokens" if tokens == "all" else f"one token of {tokens} images"
            table, null = cross.hfc(reading), cross.tables[f"null|{reading}"]
            tasks = np.arange(len(table))
            same = tasks[:, None] % count == tasks[None] % count
            own = np.eye(len(table), dtype=bool)
            for kind, name in enumerate(kinds):
                spaces = tasks[kind::count]
                for whose, chosen in zip(WHOSE, (own, same & ~own, ~same), strict=True):
                    values = table[:, spaces][chosen[:, spaces]]
                    found.append(
                        {
                            "method": cross.words,
                            "space": words,
                            "rows": told,
                            "kind": name,
                            "gradient of": whose,
                            "by ranks": round(float(null[spaces].mean()), 2),
                            "HFC": round(float(values.mean()), 2),
                        }
                    )
    return found


def drawn(found: list[dict[str, object]]) -> str:
    """Return the picture as SVG."""
    axis = {"type": "quantitative", "scale": {"zero": False, "domain": [5, 80]}}
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "data": {"values": found},
        "config": {
            "legend": {
                "orient": "bottom",
                "columns": 1,
                "layout": {"bottom": {"direction": "vertical"}},
            }
        },
        "facet": {
            "column": {"field": "space", "type": "nominal", "title": None, "sort": list(TAPS.values())},
            "row": {"field": "method", "type": "nominal", "title": None, "sort": list(METHODS.values())},
        },
        "spacing": {"column": 28, "row": 16},
        "spec": {
            "width": 100,
            "height": 110,
            "layer": [
                {
                    "data": {"values": [{"x": 5, "y": 5}, {"x": 80, "y": 80}]},
                    "mark": {"type": "line", "color": "#8a929b"},
                    "encoding": {
                        "x": {"field": "x", "type": "quantitative"},
                        "y": {"field": "y", "type": "quantitative"},
                    },
                },
                {
                    "mark": {"type": "point", "filled": False, "size": 35},
                    "encoding": {
                        "x": {"field": "by ranks", "title": "random, degrees", **axis},
                        "y": {"field": "HFC", "title": "HFC, degrees", **axis},
                        "color": {
                            "field": "gradient of",
                            "type": "nominal",
                            "sort": list(WHOSE),
                            "scale": {"domain": list(WHOSE), "range": ["#d9534f", "#4a86c5", "#8a929b"]},
                        },
                        "shape": {"field": "rows", "type": "nominal", "sort": None},
                    },
                },
            ],
        },
    }
    return as_svg(page)


def main() -> None:
    """Draw all methods that have been measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))["tables"]
    found = [point for cross in crosses(CELLS, plan) for point in points(cross, plan["kinds"])]
    arguments.out.write_text(drawn(found), encoding="utf-8")


if __name__ == "__main__":
    main()
