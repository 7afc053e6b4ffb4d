"""Peak memory of a run on stored features as many as ImageNet's, and seconds of heads on CIFAR-100's.

    python benchmarks/stored_features.py memory [--head lda] [--tasks 10]   # 1.3 million rows of 768, float16
    python benchmarks/stored_features.py heads [--orders 10]                # 60,000 rows of 768, every head

Rows are drawn: classes are Gaussians with one covariance, so accuracies say nothing. Memory is what the
system reports of the run's process at its peak.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_CHUNK = 8192
_APART = 0.3
_HEADS = ("cosine", "lda", "mahalanobis", "ridge", "klda")


def write(folder: Path, train: int, test: int, classes: int, dim: int, dtype: str) -> Path:
    """Write a folder of drawn rows, chunk by chunk."""
    draw = np.random.default_rng(0)
    centres = _APART * draw.standard_normal((classes, dim), dtype=np.float32)
    for split, count in (("train", train), ("test", test)):
        labels = np.arange(count) % classes
        rows = np.lib.format.open_memmap(
            folder / f"{split}_x.npy", mode="w+", dtype=dtype, shape=(count, dim)
        )
        for start in range(0, count, _CHUNK):
            own = labels[start : start + _CHUNK]
            rows[start : start + _CHUNK] = centres[own] + draw.standard_normal(
                (len(own), dim), dtype=np.float32
            )
        rows.flush()
        np.save(folder / f"{split}_y.npy", labels)
    return folder


def run(file: Path, out: Path, head: str, increment: int, order: int) -> tuple[float, float, float]:
    """Run a head on a file; return wall seconds, processor seconds, and the peak GiB of all runs so far."""
    options = {
        "benchmark.file": file,
        "benchmark.increment": increment,
        "benchmark.order": "seeded",
        "benchmark.order_seed": order,
        "baseline.head": head,
        "run.device": "cpu",
    }
    command = [sys.executable, "-m", "lw2g", "run", "--benchmark", "features", "--baseline", "simple-cil"]
    command += [f"--set={key}={value}" for key, value in options.items()]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used, after.ru_maxrss / 2**20


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["memory", "heads"])
    parser.add_argument("--head", action="append", choices=_HEADS)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--orders", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1_300_000)
    arguments = parser.parse_args()
    large = arguments.what == "memory"
    train, test, classes = (arguments.rows, 50_000, 1000) if large else (50_000, 10_000, 100)
    heads = arguments.head or (["lda"] if large else _HEADS)
    with tempfile.TemporaryDirectory(dir=".") as made:
        (place := Path(made, "file")).mkdir()
        file = write(place, train, test, classes, 768, "float16")
        print(f"{train + test:,} rows of 768 in float16, {classes} classes, {arguments.tasks} tasks")
        print("| head | order | wall s | processor s | peak GiB |\n| --- | --- | --- | --- | --- |")
        for head in heads:
            for order in range(arguments.orders):
                out = Path(made, f"{head}-{order}")
                wall, used, peak = run(file, out, head, classes // arguments.tasks, order)
                print(f"| {head} | {order} | {wall:.1f} | {used:.1f} | {peak:.2f} |", flush=True)


if __name__ == "__main__":
    main()
