"""What `ranpac` without adapters ends at on frozen features, with and without the expert.

    python experiments/carries/floor.py --data DATA --runs RUNS --out experiments/carries/cells/floor

It reads the frozen features that the cells left in RUNS. A ridge's scores are no likelihoods: beside the
expert they get one temperature, fitted on a fifth of all training images to a ridge on the others.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carrying import Discriminant, Rows, normalised
from cell import STREAMS, Images, Labels

from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.context import derive_seed

FEATURES = 1000
"""Random features of lw2g's `ranpac`."""

TEMPERATURES = tuple(10.0 ** (power / 4) for power in range(-12, 5))
HELD = 5


def ridge(rows: Rows, labels: Labels, tasks: int, classes: int, seed: int) -> Ridge:
    """Return the classifier that has learned some images, task by task."""
    dim = rows.shape[1]
    head = Ridge(dim, classes, FEATURES, derive_seed(seed, "ranpac", dim, FEATURES), choice="task")
    draw = torch.Generator().manual_seed(seed)
    for task in range(tasks):
        own = labels // (classes // tasks) == task
        head.learn(torch.from_numpy(rows[own]), torch.from_numpy(labels[own]), draw)
    return head


def scores(head: Ridge, rows: Rows) -> Rows:
    """Return its scores of all classes, ``[n, classes]``."""
    found: Rows = head.scores(torch.from_numpy(rows), len(head.count)).numpy()
    return found


def temperature(rows: Rows, labels: Labels, tasks: int, classes: int, seed: int) -> float:
    """Return the temperature with the least cross-entropy on every fifth image, fitted to the others."""
    held = np.arange(len(labels)) % HELD == 0
    found = scores(ridge(rows[~held], labels[~held], tasks, classes, seed), rows[held])
    own = labels[held]
    losses = [-normalised(found / each)[np.arange(len(own)), own].mean() for each in TEMPERATURES]
    return TEMPERATURES[int(np.argmin(losses))]


def measure(features: Path, data: Path, out: Path) -> None:
    """Write the floor of one stream, order and size."""
    stream, order, _, size = features.stem.split(".")
    facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
    images, tasks = Images(data / stream / order, facts), facts["tasks"]
    classes, seed = tasks * facts["increment"], int(order)
    (_, labels), (_, true) = images.of("train", 0, tasks - 1), images.of("test", 0, tasks - 1)
    bare = np.load(features)
    rows, test = bare["train"], bare["test"]
    expert = Discriminant(rows.shape[1])
    expert.learn(rows, labels)
    beside = expert.posteriors(test)
    found = scores(ridge(rows, labels, tasks, classes, seed), test)
    heat = temperature(rows, labels, tasks, classes, seed)
    answers = np.stack([found.argmax(1), (normalised(found / heat) + beside).argmax(1), beside.argmax(1)])
    told: dict[str, Any] = {
        "stream": stream,
        "order": int(order),
        "size": int(size),
        "rows": ["ranpac", "ranpac with expert", "raw"],
        "temperature": heat,
    }
    np.savez_compressed(
        out / f"{stream}.{order}.{size}.npz",
        facts=np.array(json.dumps(told)),
        answers=answers.astype(np.int16),
        labels=true.astype(np.int16),
    )


def main() -> None:
    """Write the floors of all features there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "runs", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for features in sorted(arguments.runs.glob("*.frozen.*.npz")):
        measure(features, arguments.data, arguments.out)


if __name__ == "__main__":
    main()
