"""Draw figure 5 from its runs: accuracy on each new task once it is learned, and retrieval at the end.

python experiments/paper/figure5.py runs/paper figure5.svg

A row is a method; a line is what its sets are: one for each task, shared by LW2G, or one for each task with
an oracle that names it. `lw2g sweep experiments/paper/figure5.toml` makes the runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vl_convert

LINES = {
    "a set for each task": "#30638e",
    "shared by LW2G": "#d1495b",
    "each its own, told the task": "#9a9a9a",
}
MEASURES = ("accuracy on the new task", "retrieval at the end")


def line_of(record: dict[str, Any]) -> str | None:
    """Return the line that a run belongs to; None for runs of other figures."""
    config = record["config"]
    told = (config.get("retrieval") or {}).get("name") == "oracle"
    names = sorted(config["constraints"])
    if config["policy"]["name"] == "min" and names == ["cpk", "orthogonal"] and not told:
        return "shared by LW2G"
    if config["policy"]["name"] == "always" and not names:
        return "each its own, told the task" if told else "a set for each task"
    return None


def points(record: dict[str, Any], line: str) -> Iterator[dict[str, object]]:
    """Yield accuracy on each task right after it was learned, and its retrieval after the last one."""
    series = {
        MEASURES[0]: [row[task] for task, row in enumerate(record["accuracy_matrix"])],
        MEASURES[1]: [row[-1] for row in record.get("retrieval_matrix") or ()],
    }
    for measure, values in series.items():
        for task, value in enumerate(values, 1):
            yield {
                "method": record["config"]["baseline"]["name"],
                "measure": measure,
                "sets": line,
                "task": task,
                "percent": value,
            }


def drawn(found: list[dict[str, object]]) -> str:
    """Return the picture as SVG."""
    colour = {
        "field": "sets",
        "type": "nominal",
        "scale": {"domain": list(LINES), "range": list(LINES.values())},
        "legend": {"title": None, "orient": "top"},
    }
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "data": {"values": found},
        "facet": {
            "row": {"field": "method", "type": "nominal", "title": None},
            "column": {"field": "measure", "type": "nominal", "title": None, "sort": list(MEASURES)},
        },
        "spec": {
            "width": 300,
            "height": 150,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "task", "type": "ordinal", "axis": {"labelAngle": 0}},
                # several seeds are averaged
                "y": {
                    "field": "percent",
                    "type": "quantitative",
                    "aggregate": "mean",
                    "title": "percent",
                    "scale": {"domain": [0, 100]},
                },
                "color": colour,
            },
        },
    }
    return str(vl_convert.vegalite_to_svg(page))


def main() -> None:
    """Draw the runs below a folder, and print the mean of each line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the sweep's directory")
    parser.add_argument("out", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    found: list[dict[str, object]] = []
    for path in sorted(arguments.runs.glob("*/record.json")):
        record = json.loads(path.read_text())
        line = line_of(record)
        if line is None or len(record["accuracy_matrix"]) < record["tasks"]:
            continue
        own = list(points(record, line))
        found += own
        for measure in MEASURES:
            values = [float(str(point["percent"])) for point in own if point["measure"] == measure]
            mean = f"{sum(values) / len(values):.1f}" if values else "-"
            print(f"{record['config']['baseline']['name']}, {line}: {measure} {mean}")
    if not found:
        raise SystemExit(f"{str(arguments.runs)!r} has no finished run of figure 5")
    arguments.out.write_text(drawn(found))


if __name__ == "__main__":
    main()
