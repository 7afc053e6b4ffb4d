"""The table and the picture of the map: who ends above one set, by how much, and how unlike the tasks are.

    python experiments/map/table.py RUNS --streams DATA/map --weights FILE [--svg map.svg]

RUNS holds ``GRID-ORDER``, one directory of ``lw2g sweep`` each. A difference is taken on equal test images,
per task and then over tasks, as FAA is (of a set learned on all classes at once, too), and averaged over
orders. Its 95 % interval is over test images, or, with three orders, over orders where that is wider. The
slope over streams has an interval over streams, which holds all of it. H is that of README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.numpy import load_file
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from interval_plot import Panel, Point, picture

ONE, EACH, LONG, SLOW = "one set", "a set each, three asked", "one set of length 50", "slca-plus-plus"
DRAWN = {
    "a set each less one": "a set each less one",
    "a set each less one, same routing": "the same, same routing",
    "LoRA: a set each less one": "LoRA: a set each less one",
    "LoRA: a set each less one at a tenth of the rate, same routing": (
        "LoRA: the same, one slow, same routing"
    ),
    "slca-plus-plus less one": "slca-plus-plus less one",
}
"""The comparisons of the picture, and their names there."""
PAIRS = {
    "a set each less one": (EACH, ONE),
    "a set each less one, same routing": (EACH, "one set, routed as a set each"),
    "what the routing does to one set": ("one set, routed as a set each", ONE),
    "a set each less one as long as all": (EACH, LONG),
    "by hand less a set each": ("sets by hand, three asked", EACH),
    "LoRA: a set each less one": ("LoRA, a set each, three asked", "LoRA, one set"),
    "LoRA: a set each less one at a tenth of the rate": (
        "LoRA, a set each, three asked",
        "LoRA, one set, slow",
    ),
    "LoRA: a set each less one at a tenth of the rate, same routing": (
        "LoRA, a set each, three asked",
        "LoRA, one set, slow, routed as a set each",
    ),
    "LoRA: a set each less one, all at a tenth of the rate, same routing": (
        "LoRA, a set each, slow, three asked",
        "LoRA, one set, slow, routed as a set each",
    ),
    "LoRA: a set each less one, merged on average": (
        "LoRA, a set each, three asked",
        "LoRA, one set, merged on average",
    ),
    "LoRA: a set each less one, all at a tenth of the rate": (
        "LoRA, a set each, slow, three asked",
        "LoRA, one set, slow",
    ),
    "LoRA: a set each less slca-plus-plus": ("LoRA, a set each, three asked", SLOW),
    "slca-plus-plus less one": (SLOW, ONE),
    "slca-plus-plus less all at once": (SLOW, f"at once: {SLOW}"),
    "one less all at once": (ONE, f"at once: {ONE}"),
    "one of length 100 less of 5": ("one set of length 100", ONE),
    "growing to length 50 less one of 50": ("one set that grows to length 50", LONG),
}
NAMES = ("comparison", "stream", "H", "mean", "low", "high")
SIZES = {"long": 2, "pacs-alike": 3, "pacs-unlike": 3}

Cells = Mapping[tuple[str, str, int], Mapping[str, bool]]
"""Whether each test image, by its id, was right after the last task: by label, stream and order."""


def read(runs: Path) -> Cells:
    """Return the finished cells of all sweeps."""
    found = {}
    for sweep in sorted(runs.glob("*-*/sweep.json")):
        order = int(sweep.parent.name.rpartition("-")[2])
        for cell in json.loads(sweep.read_text())["cells"]:
            run, root = sweep.parent / cell["name"], Path(cell["settings"]["benchmark.root"]).name
            if not (run / "record.json").exists():
                continue
            record = json.loads((run / "record.json").read_text())
            if len(record["task_to_set"]) < record["tasks"]:
                continue
            rows = load_file(run / "predictions" / f"task-{record['tasks'] - 1:03d}.safetensors")
            ids = json.loads((run / "samples.json").read_text())
            right = (rows["true"] == rows["predicted"]).tolist()
            label = cell["label"].partition(", root")[0].partition(", increment")[0]
            found[label, root, order] = {ids[at]: own for at, own in zip(rows["sample"], right, strict=True)}
    return found


def compared(cells: Cells, label: str, other: str | None, stream: str) -> tuple[float, float, int] | None:
    """Return FAA of a row, or its difference from another, half its interval, and the number of orders."""
    means, errors = [], []
    for order in sorted({key[2] for key in cells}):
        own, base = cells.get((label, stream, order)), cells.get((other or label, stream, order))
        if own is None or base is None:
            continue
        tasks: dict[int, list[float]] = {}
        for name, right in own.items():
            task = int(name.split("/")[-2][:3]) // SIZES.get(stream, 5)
            tasks.setdefault(task, []).append(right - (base[name] if other else 0.0))
        means.append(np.mean([np.mean(row) for row in tasks.values()]))
        errors.append(sum(np.var(row, ddof=1) / len(row) for row in tasks.values()) / len(tasks) ** 2)
    if not means:
        return None
    half = 1.96 * float(np.sqrt(sum(errors))) / len(means)
    if len(means) > 2:
        half = max(half, float(stats.t.ppf(0.975, len(means) - 1) * stats.sem(means)))
    return 100 * float(np.mean(means)), 100 * half, len(means)


def heterogeneity(folder: Path, size: int, weights: Path) -> float:
    """Return H of the stream in a folder with ``size`` classes a task, on 20 training images a class."""
    overlay = {"file": str(weights), "custom_load": False}
    net = timm.create_model(
        "vit_tiny_patch16_224", True, img_size=64, num_classes=0, pretrained_cfg_overlay=overlay
    )
    means, left = [], []
    for classed in sorted((folder / "train").iterdir()):
        images = [Image.open(file).convert("RGB") for file in sorted(classed.iterdir())[:20]]
        pixels = np.stack([np.asarray(image.resize((64, 64), Image.Resampling.BICUBIC)) for image in images])
        with torch.inference_mode():
            rows = net.eval()(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1).double().numpy()
        means.append(rows.mean(0))
        left.append(rows - rows.mean(0))
    scatter = np.cov(np.concatenate(left).T)
    scatter += 0.1 * np.trace(scatter) / len(scatter) * np.eye(len(scatter))
    white = np.linalg.solve(np.linalg.cholesky(scatter), np.stack(means).T).T
    tasks = white.reshape(-1, size, white.shape[1]).mean(1)
    share, chance = tasks.var(0).sum() / white.var(0).sum(), (len(tasks) - 1) / (len(white) - 1)
    return float((share - chance) / (1 - chance))


def drawn(points: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture as SVG: a row a stream, the most alike tasks first, a mark a comparison."""
    rows: dict[str, dict[str, Point]] = {}
    for point in sorted(points, key=lambda point: point["H"]):
        row = rows.setdefault(f"{point['stream']} {point['H']:+z.2f}", {})
        row[DRAWN[point["comparison"]]] = Point(point["mean"], point["low"], point["high"])
    panel = Panel("difference of FAA, points", rows)
    return picture(list(DRAWN.values()), [panel], "Differences of final accuracy by stream and comparison")


def main() -> None:
    """Print the tables, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--streams", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    cells, unlike = read(arguments.runs), {}
    for stream in dict.fromkeys(key[1] for key in cells):
        orders = {key[2] for key in cells if key[1] == stream}
        folders = [arguments.streams / str(order) / stream for order in orders]
        each = [heterogeneity(folder, SIZES.get(stream, 5), arguments.weights) for folder in folders]
        unlike[stream] = float(np.mean(each))
    print(f"| {len(cells)} runs | {' | '.join(f'{name} ({at:+.2f})' for name, at in unlike.items())} |")
    print("| --- |" + " ---: |" * len(unlike))
    points: list[tuple[str, str, float, float, float, float]] = []
    rows: dict[str, tuple[str, str | None]] = {label: (label, None) for label, _, _ in cells}
    for name, (label, other) in {**rows, **PAIRS}.items():
        found = {stream: compared(cells, label, other, stream) for stream in unlike}
        told = [
            "-" if one is None else f"{one[0]:{'+' if other else ''}.1f} ± {one[1]:.1f} ({one[2]})"
            for one in found.values()
        ]
        print(f"| {name} | {' | '.join(told)} |")
        for at, one in found.items():
            if one is not None and name in DRAWN and at != "long":
                low, high = one[0] - one[1], one[0] + one[1]
                points.append((name, at, unlike[at], one[0], low, high))
    for name in PAIRS:
        x, y = ([point[at] for point in points if point[0] == name] for at in (2, 3))
        if len(x) > 3:
            line, mean = stats.linregress(x, y), stats.t.ppf(0.975, len(y) - 1) * stats.sem(y)
            slope = f"{line.slope / 10:+.1f} ± {stats.t.ppf(0.975, len(y) - 2) * line.stderr / 10:.1f}"
            print(f"\n{name}: {np.mean(y):+.1f} ± {mean:.1f} over {len(y)} streams; {slope} for 0.1 of H")
    if arguments.svg:
        arguments.svg.write_text(drawn([dict(zip(NAMES, point, strict=True)) for point in points]))


if __name__ == "__main__":
    main()
