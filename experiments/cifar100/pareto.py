"""The table of all methods, and a picture of what accuracy costs: numbers kept, training, time of an answer.

    python benchmarks/latency.py RUN... --json latency.json
    python experiments/cifar100/pareto.py runs/cifar100 --latency latency.json --svg methods.svg

Training is counted in operations, per image and times the images that were stepped on: no other load of the
machine changes it. Time of an answer is in passes of the bare backbone. A row is best at a price if no other
row gives more accuracy for it; controls do not count.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.columns import COLUMNS
from lw2g.results.found_runs import ReportedRun, find_runs
from lw2g.results.summaries import summary
from lw2g.results.table import Row, tables_of

PRICES = {"kept": "numbers kept", "work": "TFLOP of training", "passes": "passes of the backbone an answer"}
CONTROLS = "controls"


def numbers_of(run: ReportedRun, latency: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    """Return what the table says of a run; None where its record does not."""
    record = run.record
    stored, seconds = record["storage"], record["seconds"]
    images = (record["images_per_second"] or 0) * seconds["training"]
    per_image, statistics = record["flops"]["training_per_image"], stored.get("statistics")
    return {
        "faa": COLUMNS["faa"].of(record),
        "ffm": COLUMNS["ffm"].of(record),
        "sets": COLUMNS["ssp"].of(record),
        "parameters": stored["parameters"],
        "statistics": statistics,
        "kept": None if statistics is None else stored["parameters"] + statistics,
        "work": per_image and 1e-12 * per_image * images,
        "evidence": 100 * seconds["evidence"] / seconds["total"],
        "passes": latency.get(run.path.name, {}).get("passes"),
    }


def lines_of(
    rows: Sequence[Row], catalogue: Catalogue, latency: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Return a mapping a row, best first: name, plugin, means over runs, and the prices it is best at."""
    found = []
    for row in rows:
        each = [numbers_of(run, latency) for run in row.runs]
        means = {key: summary([one[key] for one in each]).mean for key in each[0]}
        baseline = row.runs[0].options["baseline.name"]
        plugin = CONTROLS if row.control else catalogue.entries["baseline", baseline].origin.plugin
        found.append(
            {"row": row.label, "plugin": plugin, "control": row.control, "n": len(row.runs), **means}
        )
    for line in found:
        line["best"] = [price for price in PRICES if not line["control"] and is_best(line, found, price)]
    return sorted(found, key=lambda line: -line["faa"])


def is_best(line: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], price: str) -> bool:
    """Whether no other row that is no control has as much accuracy for as little."""

    def beats(other: Mapping[str, Any]) -> bool:
        if other is line or other["control"] or other[price] is None:
            return False
        no_worse = other["faa"] >= line["faa"] and other[price] <= line[price]
        return no_worse and (other["faa"], other[price]) != (line["faa"], line[price])

    return line[price] is not None and not any(map(beats, rivals))


def printed(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as Markdown."""
    columns = {
        "FAA": ("faa", "{:.1f}"),
        "FFM": ("ffm", "{:.1f}"),
        "sets": ("sets", "{:.0f}"),
        "parameters, thousands": ("parameters", "{:,.0f}"),
        "kept beside, thousands": ("statistics", "{:,.0f}"),
        "training, TFLOP": ("work", "{:.0f}"),
        "evidence, %": ("evidence", "{:.0f}"),
        "answer, passes": ("passes", "{:.1f}"),
    }
    text = [f"| | {' | '.join(columns)} | best at |", f"| --- |{' ---: |' * len(columns)} --- |"]
    for line in lines:
        cells = []
        for key, form in columns.values():
            value = line[key]
            scale = 1e-3 if key in ("parameters", "statistics") else 1.0
            cells.append("-" if value is None else form.format(scale * value))
        name = f"{line['row']} (n = {line['n']})" if line["n"] > 1 else line["row"]
        text.append(f"| {name} | {' | '.join(cells)} | {', '.join(line['best'])} |")
    return "\n".join(text)


def drawn(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a panel a price as SVG: a point a row, the names of those that are best."""
    import vl_convert

    panels = []
    known = {price: title for price, title in PRICES.items() if any(line[price] for line in lines)}
    for price, title in known.items():
        values = [
            {"row": line["row"], "plugin": line["plugin"], "faa": line["faa"], "cost": line[price]}
            | {"best": price in line["best"]}
            for line in lines
            if line[price]
        ]
        place = {
            "x": {"field": "cost", "type": "quantitative", "title": title, "scale": {"type": "log"}},
            "y": {
                "field": "faa",
                "type": "quantitative",
                "title": "final average accuracy (%)",
                "scale": {"zero": False},
            },
        }
        of_best = [{"filter": "datum.best"}]
        panels.append(
            {
                "width": 330,
                "height": 330,
                "data": {"values": values},
                "layer": [
                    {
                        "transform": of_best,
                        "mark": {
                            "type": "line",
                            "interpolate": "step-after",
                            "color": "#999",
                            "strokeDash": [4, 3],
                        },
                        "encoding": place,
                    },
                    {
                        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.9},
                        "encoding": place
                        | {
                            "color": {
                                "field": "plugin",
                                "type": "nominal",
                                "title": None,
                                "legend": {"orient": "bottom"},
                            }
                        },
                    },
                    {
                        "transform": of_best,
                        "mark": {"type": "text", "align": "right", "dx": -7, "dy": -6, "fontSize": 9},
                        "encoding": place | {"text": {"field": "row"}},
                    },
                ],
            }
        )
    picture: str = vl_convert.vegalite_to_svg({"hconcat": panels, "background": "white"})
    return picture


def main() -> None:
    """Read the runs, print the table and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--latency", type=Path, help="what benchmarks/latency.py wrote")
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    asked = parser.parse_args()
    latency = json.loads(asked.latency.read_text()) if asked.latency else {}
    by_name = {Path(run).name: value for run, value in latency.items()}
    finished = [run for run in find_runs(asked.runs) if run.state == "finished"]
    catalogue = load_catalogue()
    tables = tables_of(finished, catalogue)
    if len(tables) != 1:
        parser.error(f"{len(tables)} benchmarks among these runs; give the runs of one")
    lines = lines_of(tables[0].rows, catalogue, by_name)
    print(printed(lines), "", *(f"- {note}" for note in tables[0].notes), sep="\n")
    if asked.svg:
        asked.svg.write_text(drawn(lines))


if __name__ == "__main__":
    main()
