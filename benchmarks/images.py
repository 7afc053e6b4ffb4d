"""What images cost: a pass under the test transform, first and again, and epochs of training."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lw2g.config.resolve import resolve
from lw2g.learning.session import open_session
from lw2g.pixels.decoding import chunks
from lw2g.pixels.image_set import ImageSet
from lw2g.registry.catalogue import load_catalogue

BATCH = 64


def seconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def walked(images: ImageSet, count: int, seed: int | None) -> None:
    for batch in images.batches(chunks(range(count), BATCH), seed=seed):
        batch.images  # noqa: B018


def measured(folder: Path, size: int, speed: str, count: int) -> dict[str, list[float]]:
    """Return microseconds per image of each kind of pass, one number per pass."""
    config = resolve(
        load_catalogue(),
        overrides={
            "benchmark.root": folder,
            "benchmark.increment": 20,
            "backbone.image_size": size,
            "run.speed": speed,
        },
        baseline="dual-prompt",
        benchmark="folder",
        backbone="micro",  # only its image size matters here
    ).config
    session = open_session(config, load_catalogue())
    still = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    moving = session.data.image_set(still.originals, train=True)
    count = min(count, len(still))
    passes = {
        "statistics": [seconds(lambda: walked(still, count, None)) for _ in range(3)],
        "training": [seconds(lambda e=epoch: walked(moving, count, e)) for epoch in range(4)],
    }
    return {name: [1e6 * one / count for one in found] for name, found in passes.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="train/<class>/* and test/<class>/*")
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 224])
    parser.add_argument("--images", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("microseconds of one core per image\n")
    print("| pixels | speed | statistics, first pass | again | training, first epoch | later |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size in arguments.sizes:
        for speed in ("exact", "fast"):
            found = measured(arguments.folder, size, speed, arguments.images)
            row = [
                f"{number:.0f}"
                for passes in (found["statistics"], found["training"])
                for number in (passes[0], statistics.median(passes[1:]))
            ]
            print(f"| {size} | {speed} | {' | '.join(row)} |")
