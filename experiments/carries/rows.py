"""Run a method on all orders of streams, as a user would, for the rows of tables.

    python experiments/carries/rows.py --method recommended --streams pacs-art-sketch tiny
        --data DATA --weights FILE --runs RUNS [--orders 0 1] [--size 224]

It goes on where it stopped; `packs.py` packs what has finished.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from cell import command, finished, train


def main() -> None:
    """Run what has not been run yet, order after order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", required=True)
    parser.add_argument("--streams", nargs="+", required=True)
    parser.add_argument("--orders", nargs="+", type=int, help="some orders in place of all")
    parser.add_argument("--size", type=int, default=224)
    for name in ("--data", "--weights", "--runs"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for stream in arguments.streams:
        known = sorted(int(folder.name) for folder in (arguments.data / stream).iterdir())
        for order in arguments.orders or known:
            run = arguments.runs / f"{stream}.{order}.{arguments.method}.{arguments.size}"
            facts = (stream, order, arguments.method, arguments.size, arguments.data, arguments.weights, run)
            if (run / "record.json").exists() and finished(json.loads((run / "record.json").read_text())):
                continue
            try:
                record = train(run, command(*facts))
            except subprocess.CalledProcessError as error:
                print(f"{run.name}: ended with {error.returncode}", flush=True)
                continue
            print(f"{run.name}: {record['metrics']['faa']:.2f}", flush=True)


if __name__ == "__main__":
    main()
