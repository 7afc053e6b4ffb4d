"""What a worker saves where un-prompted features of images in folders are computed: paired passes."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from lw2g.config.resolve import resolve
from lw2g.learning.session import Session, open_session
from lw2g.pixels.decoding import chunks
from lw2g.registry.catalogue import load_catalogue

BATCH = 64


def opened(folder: Path, size: int, workers: int) -> Session:
    config = resolve(
        load_catalogue(),
        overrides={
            "benchmark.root": folder,
            "benchmark.increment": 10,
            "backbone.image_size": size,
            "run.workers": workers,
        },
        baseline="simple-cil",
        benchmark="folder",
        backbone="micro",
    ).config
    return open_session(config, load_catalogue())


def seconds(session: Session) -> tuple[float, int]:
    """Return the seconds of a pass that asks for features batch by batch, as heads do, and its images."""
    images = session.data.image_set([task.train for task in session.data.stream.tasks], train=False)
    began = time.perf_counter()
    for batch in images.batches(chunks(range(len(images)), BATCH)):
        batch.query  # noqa: B018
    return time.perf_counter() - began, len(images)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="train/<class>/* and test/<class>/*")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    both = [opened(arguments.folder, arguments.size, count) for count in (0, arguments.workers)]
    for session in both:
        seconds(session)  # the first pass of each starts what it needs
    ratios = []
    for _ in range(arguments.rounds):
        (alone, count), (helped, _) = map(seconds, both)
        ratios.append(alone / helped)
        rates = [round(count / one) for one in (alone, helped)]
        print(f"{rates[0]} images a second alone, {rates[1]} with {arguments.workers} workers")
    print(f"median ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
