"""Draw a run's decisions and accuracies from its record as an SVG picture, light or dark by preference.

python scripts/draw_decisions.py runs/glyphs-hide-prompt-min-1/record.json docs/decisions.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

STYLE = (
    ".card{fill:#fdfdfb} .ink{fill:#333} .grey{fill:#ddd} .seen{fill:#999} .on{fill:#fff}"
    "@media (prefers-color-scheme: dark){"
    ".card{fill:#1f2226} .ink{fill:#e8e8e6} .grey{fill:#42474d} .seen{fill:#8a9198}}"
)
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
CELL, LEFT, TOP = 56, 150, 64


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def text(
    x: float, y: float, content: str, *, size: int = 12, anchor: str = "middle", kind: str = "ink"
) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" class="{kind}"'
    return f"<text {place}>{content}</text>"


def box(x: float, y: float, fill: str, *, opacity: float = 1.0, edge: str = "none") -> str:
    """Return a box; ``fill`` is a colour, or the class of one that follows light and dark."""
    paint = f'fill="{fill}"' if fill.startswith("#") else f'class="{fill}"'
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{CELL - 4}" height="26" rx="4" {paint} '
        f'fill-opacity="{opacity:.2f}" stroke="{edge}"/>'
    )


def draw(record: dict[str, Any]) -> str:
    """Return the picture: families, chosen sets, Z of every candidate, final accuracy of each task."""
    tasks = len(record["task_to_set"])
    sets = sorted(set(record["task_to_set"]))
    parts = [text(LEFT + i * CELL + CELL / 2 - 2, TOP - 10, f"task {i + 1}", size=11) for i in range(tasks)]
    y = TOP
    groups = record.get("planted_groups")
    if groups:
        parts.append(text(LEFT - 12, y + 18, "planted family", anchor="end"))
        for i, group in enumerate(groups):
            parts += [box(LEFT + i * CELL, y, "grey"), text(LEFT + i * CELL + 26, y + 18, "ABCDEFGH"[group])]
        y += 34
    parts.append(text(LEFT - 12, y + 18, "set it got", anchor="end"))
    for i, (chosen, decision) in enumerate(zip(record["task_to_set"], record["decisions"], strict=True)):
        label = f"{'+' if decision['decision'] == 'grow' else ''}#{chosen}"
        parts.append(box(LEFT + i * CELL, y, colour(chosen)))
        parts.append(text(LEFT + i * CELL + 26, y + 18, label, kind="on", size=13))
    y += 46
    for number in sets:
        parts.append(text(LEFT - 12, y + 18, f"Z against set #{number}", anchor="end"))
        for i, decision in enumerate(record["decisions"]):
            for candidate in decision["candidates"]:
                measured = candidate["measures"].get("hindrance", {"value": None})
                if candidate["set"] == number and measured["value"] is not None:
                    edge = colour(number) if record["task_to_set"][i] == number else "none"
                    parts.append(box(LEFT + i * CELL, y, colour(number), opacity=0.15, edge=edge))
                    parts.append(text(LEFT + i * CELL + 26, y + 18, f"{measured['value']:+.1f}"))
        y += 30
    y += 14
    parts.append(text(LEFT - 12, y + 18, "final accuracy", anchor="end"))
    for i, row in enumerate(record["accuracy_matrix"]):
        parts.append(box(LEFT + i * CELL, y, "seen", opacity=row[-1] / 100))
        parts.append(text(LEFT + i * CELL + 26, y + 18, f"{row[-1]:.0f}"))
    config, metrics = record["config"], record["metrics"]
    title = (
        f"{config['baseline']['name']} x {config['policy']['name']} on {config['benchmark']['name']}: "
        f"{metrics['ssp']} sets for {tasks} tasks, FAA {metrics['faa']:.1f}"
    )
    if metrics["pra"] is not None:
        title += f", PRA {metrics['pra']:.1f} (chance {metrics['chance_pra']:.1f})"
    width, height = LEFT + tasks * CELL + 16, y + 44
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif">'
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" rx="8" class="card"/>'
    )
    return head + text(16, 26, title, size=15, anchor="start") + "".join(parts) + "</svg>\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path)
    asked = parser.parse_args()
    asked.picture.write_text(draw(json.loads(asked.record.read_text(encoding="utf-8"))), encoding="utf-8")
