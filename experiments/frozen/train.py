"""Run trained rows on orders of streams, as a user would; finished ones are passed over.

    nice -n 19 python experiments/frozen/train.py --method ranpac-joined --streams signs-first waste-first
        --orders 0 --data DATA --weights FILE --runs RUNS

Checkpoints are deleted: a pack needs none. An interrupted run goes on from its last task.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "carries"))

from cell import COMPONENTS, STREAMS, finished, train  # noqa: E402

METHODS = FOLDER / "methods.toml"


def command(stream: str, order: int, method: str, data: Path, weights: Path, run: Path) -> list[str]:
    """Return the command of a run: that of the study of carries at 224 px, with this study's methods."""
    facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
    options = {
        **tomllib.loads(METHODS.read_text())[method],
        "benchmark.root": str(data / stream / str(order)),
        "benchmark.increment": facts["increment"],
        "benchmark.train_per_class": facts["train_per_class"],
        "benchmark.test_per_class": facts["test_per_class"],
        "benchmark.train_transform": "none",
        "benchmark.test_resize": "squash",
        "backbone.model": "vit_tiny_patch16_224",
        "backbone.image_size": 224,
        "backbone.mean": "[0.5, 0.5, 0.5]",
        "backbone.std": "[0.5, 0.5, 0.5]",
        "run.precision": "bf16-mixed",
        "run.seed": order,
        "run.protocol": "like-for-like",
    }
    if "classes" in facts:
        # of which the last task has fewer
        options["benchmark.uneven"] = "true"
    named = [f"--{kind}={options.pop(kind)}" for kind in COMPONENTS if kind in options]
    chosen = [f"--set={key}={value}" for key, value in options.items()]
    fixed = ["--benchmark=folder", "--backbone=timm", f"--weights={weights}"]
    return ["lw2g", "run", *named, *fixed, *chosen, f"--out={run}"]


def main() -> None:
    """Run what has not been run yet, order after order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", required=True)
    parser.add_argument("--streams", nargs="+", required=True)
    parser.add_argument("--orders", nargs="+", type=int, default=[0])
    for name in ("--data", "--weights", "--runs"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for order in arguments.orders:
        for stream in arguments.streams:
            run = arguments.runs / f"{stream}.{order}.{arguments.method}.224"
            if (run / "record.json").exists() and finished(json.loads((run / "record.json").read_text())):
                continue
            facts = (stream, order, arguments.method, arguments.data, arguments.weights, run)
            try:
                record = train(run, command(*facts))
            except subprocess.CalledProcessError as error:
                print(f"{run.name}: ended with {error.returncode}", flush=True)
                continue
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
            ends, seconds = record["metrics"]["faa"], record["seconds"]["total"]
            print(f"{run.name}: {ends:.2f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
