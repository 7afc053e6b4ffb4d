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
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "carries"))

from cell import command, finished, train  # noqa: E402

METHODS = FOLDER / "methods.toml"
SIZE = 224


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
            run = arguments.runs / f"{stream}.{order}.{arguments.method}.{SIZE}"
            if (run / "record.json").exists() and finished(json.loads((run / "record.json").read_text())):
                continue
            facts = (stream, order, arguments.method, SIZE, arguments.data, arguments.weights, run)
            try:
                record = train(run, command(*facts, methods=METHODS))
            except subprocess.CalledProcessError as error:
                print(f"{run.name}: ended with {error.returncode}", flush=True)
                continue
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
            ends, seconds = record["metrics"]["faa"], record["seconds"]["total"]
            print(f"{run.name}: {ends:.2f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
