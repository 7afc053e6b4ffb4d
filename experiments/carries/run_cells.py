"""Run the cells of the study one after the other, the most telling ones first; finished ones are passed over.

    nice -n 19 python experiments/carries/run_cells.py --data DATA --weights FILE --runs RUNS --out RESULTS

A second process may run beside it, with ``--skip`` further on in the list: a cell under way is passed over.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPORT = {"turns": 6, "pacs-art-sketch": 5, "cifar-second": 3, "tiny": 3}
DEVELOPMENT = {"turns-small": 3, "pacs-photo-cartoon": 3, "cifar-first": 1, "caltech": 1}
MAIN = "slca-plus-plus"
OTHERS = ("lora", "prompt", "ssiat")

Cell = tuple[str, int, str, int]
"""Stream, order, method and size."""


def cells() -> Iterator[Cell]:
    """Yield the cells in the order of their value, some twice."""
    yield ("turns-small", 0, MAIN, 64)
    yield from ((stream, order, MAIN, 64) for order in range(3) for stream in ("turns", "pacs-art-sketch"))
    yield from ((stream, 0, MAIN, 64) for stream in ("tiny", "cifar-second"))
    yield from ((stream, 0, MAIN, 224) for stream in ("turns", "pacs-art-sketch"))
    yield from ((stream, 1, MAIN, 224) for stream in ("pacs-art-sketch", "turns"))
    yield ("tiny", 0, MAIN, 224)
    yield ("pacs-art-sketch", 2, MAIN, 224)
    yield ("cifar-second", 0, MAIN, 224)
    yield ("turns", 2, MAIN, 224)
    yield from ((stream, order, MAIN, 64) for order in range(1, 3) for stream in ("tiny", "cifar-second"))
    yield from ((stream, order, MAIN, 224) for order in range(1, 3) for stream in ("tiny", "cifar-second"))
    yield from (("turns", order, MAIN, 224) for order in range(3, 6))
    yield from (("pacs-art-sketch", order, MAIN, 224) for order in range(3, 5))
    yield from (("turns", 0, method, 224) for method in OTHERS)
    yield from (("pacs-art-sketch", order, method, 224) for order in range(3) for method in OTHERS)
    yield from ((stream, order, MAIN, 64) for stream, count in DEVELOPMENT.items() for order in range(count))
    yield from (("turns", order, method, 224) for order in range(1, 3) for method in OTHERS)
    yield from ((stream, 0, method, 224) for stream in ("cifar-second", "tiny") for method in OTHERS)
    yield from ((stream, order, MAIN, 64) for stream, count in REPORT.items() for order in range(count))
    yield from ((stream, order, method, 64) for order in range(3) for stream in REPORT for method in OTHERS)
    yield from (
        (stream, order, method, 224)
        for order in range(1, 3)
        for stream in ("cifar-second", "tiny")
        for method in OTHERS
    )
    yield from ((stream, order, MAIN, 224) for order in range(3, 5) for stream in ("cifar-second", "tiny"))


def main() -> None:
    """Run all cells that are not finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "weights", "runs", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--skip", type=int, default=0, help="cells that come last instead of first")
    arguments = parser.parse_args()
    ordered = list(dict.fromkeys(cells()))
    wanted = ordered[arguments.skip :] + ordered[: arguments.skip]
    arguments.runs.mkdir(parents=True, exist_ok=True)
    for cell in wanted:
        name = ".".join(map(str, cell))
        # two cells of one stream, order and size share the run on frozen features
        lock = arguments.runs / f"{cell[0]}.{cell[1]}.{cell[3]}.lock"
        with lock.open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if not (arguments.out / f"{name}.npz").exists():
                run_one(cell, arguments)
            if (arguments.out / f"{name}.npz").exists():
                # what a pack needs stays: record, configuration, predictions
                shutil.rmtree(arguments.runs / name / "checkpoints", ignore_errors=True)


def run_one(cell: Cell, arguments: argparse.Namespace) -> None:
    """Run a cell in a process of its own, so that a failure stops no other."""
    stream, order, method, size = cell
    script = Path(__file__).with_name("cell.py")
    named = [f"--stream={stream}", f"--order={order}", f"--method={method}", f"--size={size}"]
    paths = [f"--{name}={getattr(arguments, name)}" for name in ("data", "weights", "runs", "out")]
    try:
        subprocess.run([sys.executable, str(script), *named, *paths], check=True)
    except subprocess.CalledProcessError as error:
        print(f"{'.'.join(map(str, cell))}: not finished, code {error.returncode}", file=sys.stderr)


if __name__ == "__main__":
    main()
