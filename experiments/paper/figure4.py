"""Draw figure 4 from its runs: final accuracy and number of sets against epsilon, and against phi.

python experiments/paper/figure4.py runs/paper figure4.svg

Epsilon is the energy of the spaces (`growth.energy`), phi the strength of CPK. Each is varied alone, at the
other's value in the paper, which is one run of both curves. `lw2g sweep experiments/paper/figure4.toml` makes
the runs. The paper prints curves without their values, so none stand beside ours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vl_convert

EPSILON, PHI = 0.95, 0.5
"""What one is while the other is varied."""
MEASURES = {"final accuracy, %": "faa", "sets": "ssp"}


def points(record: dict[str, Any]) -> Iterator[dict[str, object]]:
    """Yield the points of a run; none for runs of other figures."""
    config = record["config"]
    if config["policy"]["name"] != "min" or sorted(config["constraints"]) != ["cpk", "orthogonal"]:
        return
    growth = config["growth"]
    epsilon = growth["energy"]
    if growth["energy_pre"] not in (None, epsilon):
        return
    phi = config["constraints"]["cpk"]["phi"]
    for varied, value, is_varied in (
        ("epsilon", epsilon, phi == PHI),
        ("phi", phi, epsilon == EPSILON),
    ):
        if not is_varied:
            continue
        for measure, metric in MEASURES.items():
            yield {
                "method": config["baseline"]["name"],
                "varied": varied,
                "value": value,
                "measure": measure,
                "number": record["metrics"][metric],
            }


def drawn(found: list[dict[str, object]]) -> str:
    """Return the picture as SVG."""
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "data": {"values": found},
        "facet": {
            "row": {"field": "measure", "type": "nominal", "title": None, "sort": list(MEASURES)},
            "column": {"field": "varied", "type": "nominal", "title": None, "sort": ["epsilon", "phi"]},
        },
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": 300,
            "height": 150,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "value", "type": "quantitative", "title": None, "scale": {"zero": False}},
                # several seeds are averaged
                "y": {
                    "field": "number",
                    "type": "quantitative",
                    "aggregate": "mean",
                    "title": None,
                    "scale": {"zero": False},
                },
                "color": {"field": "method", "type": "nominal", "title": None},
            },
        },
    }
    return str(vl_convert.vegalite_to_svg(page))


def main() -> None:
    """Draw the runs below a folder, and print each point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the sweep's directory")
    parser.add_argument("out", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    found: list[dict[str, object]] = []
    for path in sorted(arguments.runs.glob("*/record.json")):
        record = json.loads(path.read_text())
        if len(record["accuracy_matrix"]) == record["tasks"]:
            found += points(record)
    if not found:
        raise SystemExit(f"{str(arguments.runs)!r} has no finished run of figure 4")
    for point in sorted(found, key=lambda point: (str(point["varied"]), float(str(point["value"])))):
        print(
            f"{point['method']}, {point['varied']} {point['value']}: {point['measure']} {point['number']:.1f}"
        )
    arguments.out.write_text(drawn(found))


if __name__ == "__main__":
    main()
