"""Draw the decisions of runs beside those of the paper's table 7: HFC, HFC_pre and Z of every candidate.

    python experiments/paper/table7.py docs/table7.svg                      # the packs of space_rows.toml
    python experiments/paper/table7.py runs/paper/CELL/record.json table7.svg
    python experiments/paper/table7.py "all tokens=ONE/record.json" "one token=TWO/record.json" table7.svg

Hollow points are angles of random spaces of the same ranks.

The paper's run is DualPrompt on ImageNet-R in ten tasks. Its angles are those of its release, whose old
spaces lie over images instead of features: its HFC is a function of the number of bases alone, so it climbs
from 14 to 42 degrees as tasks join a set, while HFC_pre stays at 41. Z starts at -26 and crosses zero at
the ninth task, which grows. Spaces over features give the same, once the old space is built from few rows
(experiments/growth/space_rows.toml). See docs/growth.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "growth"))

from readings import of_policy, space_of
from vega_picture import as_svg

PAPER = (
    (2, 1, 13.90, 40.23),
    (3, 1, 20.22, 40.80),
    (4, 1, 25.09, 41.50),
    (5, 1, 29.15, 42.92),
    (6, 1, 32.85, 42.78),
    (7, 1, 36.35, 41.85),
    (8, 1, 39.39, 42.42),
    (9, 1, 42.54, 41.37),
    (10, 1, 42.54, 40.92),
    (10, 2, 13.81, 41.81),
)
"""Task, set, HFC and HFC_pre, as printed; task 9 grew, all others reused the set of least Z."""
PAPER_GREW = {1, 9}
PARTS = ("HFC", "HFC_pre", "Z")
SPACES = {
    "queries by head: all tokens": "queries by head",
    "block input: all tokens": "block input, all tokens",
    "queries, full width: all tokens": "queries, full width",
    "block input: one token an image, 24 images, centred": "one token, 24 images",
    "block output: one token an image, 12 images, 0.99": "one token, 12 images",
    "block input: mean of tokens": "one vector an image",
}
"""Old spaces of the packs that the page shows, with their names there, the largest angles first."""


def of_the_paper() -> list[dict[str, object]]:
    """Return the points of the paper's run."""
    found: list[dict[str, object]] = []
    for task, number, hfc, hfc_pre in PAPER:
        named = dict(zip(PARTS, (hfc, hfc_pre, hfc - hfc_pre), strict=True))
        grew = "grew" if task in PAPER_GREW else "reused"
        found += [
            {"run": "paper", "task": task, "set": number, "part": part, "degrees": value, "task was": grew}
            for part, value in named.items()
        ]
    return found


def of_a_run(record: dict[str, Any], title: str = "this run") -> list[dict[str, object]]:
    """Return the points of a run's record, with those of random spaces of the same ranks."""
    found: list[dict[str, object]] = []
    for task, decision in enumerate(record["decisions"], 1):
        grew = "grew" if decision["decision"] == "grow" else "reused"
        for candidate in decision["candidates"]:
            measured = (candidate["measures"] or {}).get("hindrance")
            if measured is None or measured["value"] is None:
                continue
            parts = measured["parts"]
            named = dict(zip(PARTS, (parts["hfc"], parts["hfc_pre"], measured["value"]), strict=True))
            null, null_hfc = measured["null"], parts["null_hfc"]
            by_rank = dict(zip(PARTS, (null_hfc, null_hfc - null, null), strict=True))
            found += [
                {
                    "run": title,
                    "task": task,
                    "set": candidate["set"] + 1,
                    "part": part,
                    "degrees": value,
                    "by ranks alone": by_rank[part],
                    "task was": grew,
                }
                for part, value in named.items()
            ]
    return found


def of_packs() -> list[dict[str, object]]:
    """Return the points of the packs that the page shows."""
    records = {space_of(record["config"]["growth"]): record for record in of_policy("one")}
    return [point for space, title in SPACES.items() for point in of_a_run(records[space], title)]


def drawn(found: list[dict[str, object]]) -> str:
    """Return the picture as SVG: runs below each other, under the name of each its three angles."""
    runs = list(dict.fromkeys(str(point["run"]) for point in found))
    lines = [
        {
            "title": {"text": run, "anchor": "start", "fontSize": 12, "fontWeight": "normal"},
            "spacing": 16,
            "hconcat": [panel(run, part, first=run == runs[0], last=run == runs[-1]) for part in PARTS],
        }
        for run in runs
    ]
    page = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "data": {"values": found},
        "config": {"legend": {"orient": "bottom"}},
        "spacing": 8,
        "vconcat": lines,
    }
    return as_svg(page)


def panel(run: str, part: str, *, first: bool, last: bool) -> dict[str, Any]:
    """Return the panel of an angle of a run; the first run has the angles' names, the last one the tasks'."""
    task = {"values": [2, 4, 6, 8, 10], "labelAngle": 0, "labels": last, "title": "task" if last else None}
    at_left = part == PARTS[0]
    degrees = {"labels": at_left, "title": "degrees" if at_left else None, "tickCount": 3}
    scale = {"type": "quantitative", "scale": {"domain": [-35, 80], "nice": False}, "axis": degrees}
    named = {"title": {"text": part, "fontSize": 12}} if first else {}
    return named | {
        "width": 108,
        "height": 64,
        "transform": [
            {"filter": {"field": "run", "equal": run}},
            {"filter": {"field": "part", "equal": part}},
        ],
        "encoding": {"x": {"field": "task", "type": "ordinal", "axis": task}},
        "layer": [
            {
                "mark": {"type": "point", "filled": True, "size": 60},
                "encoding": {
                    "y": {"field": "degrees", **scale},
                    "color": {"field": "set", "type": "nominal"},
                    "shape": {"field": "task was", "type": "nominal"},
                },
            },
            {
                "transform": [{"filter": "isValid(datum['by ranks alone'])"}],
                "mark": {"type": "point", "filled": False, "size": 60, "color": "gray"},
                "encoding": {"y": {"field": "by ranks alone", **scale}},
            },
        ],
    }


def main() -> None:
    """Draw records beside the paper."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "records",
        nargs="*",
        metavar="[TITLE=]RECORD",
        help="a run's record.json; none: the packs of the page",
    )
    parser.add_argument("out", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    own = [] if arguments.records else of_packs()
    for named in arguments.records:
        title, _, path = named.rpartition("=")
        of_run = of_a_run(json.loads(Path(path).read_text()), title or "this run")
        if not of_run:
            raise SystemExit(f"{path!r} measured no hindrance")
        own += of_run
    arguments.out.write_text(drawn(of_the_paper() + own))
    for part in PARTS:
        values = [float(str(point["degrees"])) for point in own if point["part"] == part]
        print(f"{part}: {min(values):.1f} to {max(values):.1f} degrees")


if __name__ == "__main__":
    main()
