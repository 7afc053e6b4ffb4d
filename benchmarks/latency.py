"""What an answer of a trained model costs, beside one pass of its bare backbone.

    python benchmarks/latency.py RUN... [--images 64] [--repeats 5] [--json OUT.json]

A whole answer is timed: the query's pass, retrieval, the passes through sets, the head. Images are noise, in
one batch on one thread; backbone and model take turns, and the least processor time of each counts. What the
JSON file has already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lw2g


def quickest(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the least processor seconds of each, in turns after one that does not count."""
    found = dict.fromkeys(works, float("inf"))
    for turn in range(repeats + 1):
        for name, work in works.items():
            began = time.process_time()
            work()
            if turn:
                found[name] = min(found[name], time.process_time() - began)
    return found


def measure(run: Path, images: int, repeats: int) -> dict[str, float]:
    model = lw2g.load(run, device="cpu", batch_size=images)
    size = model.backbone.image_size
    batch = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(0))
    precision = json.loads((run / "record.json").read_text())["precision"]

    def bare() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision["used"] == "bf16-mixed"):
            model.backbone.features(batch)

    with torch.no_grad():
        found = quickest({"bare": bare, "answer": lambda: model(batch)}, repeats)
    return {"ms": 1e3 * found["answer"] / images, "passes": found["answer"] / found["bare"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    print("ms an image  bare passes  run")
    for run in asked.runs:
        if str(run) not in found:
            found[str(run)] = measure(run, asked.images, asked.repeats)
        print(f"{found[str(run)]['ms']:11.2f}  {found[str(run)]['passes']:11.2f}  {run}", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
