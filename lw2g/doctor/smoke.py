"""One small run of the default experiment: evidence, growth, training, protection and evaluation for real."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lw2g.config.resolve import resolve
from lw2g.doctor.finding import Finding, ok, problem, split_remedy
from lw2g.errors import Lw2gError
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.training.runner import start

__all__ = ["SMALL", "smoke_findings"]

# Two tasks of five classes, four training images a class, one epoch: a few seconds on one core.
SMALL: Mapping[str, Any] = {
    "benchmark.classes_per_family": 2,
    "benchmark.increment": 5,
    "benchmark.train_per_class": 4,
    "benchmark.test_per_class": 2,
    "baseline.epochs": 1,
    "baseline.replay_epochs": 1,
    "retrieval.epochs": 1,
    "retrieval.replay_epochs": 1,
    "growth.images": 16,
}


def smoke_findings(catalogue: Catalogue | None = None) -> Iterator[Finding]:
    """Run it on the device a run would choose, and yield how it went."""
    catalogue = load_catalogue() if catalogue is None else catalogue
    began = time.perf_counter()
    try:
        resolved = resolve(catalogue, overrides=SMALL)
        with tempfile.TemporaryDirectory() as folder:
            record = start(resolved, catalogue, Path(folder) / "run")
    except Lw2gError as error:
        what, remedy = split_remedy(str(error), "run `lw2g run` to see more")
        yield problem("smoke run", f"the default experiment does not run: {what}", remedy)
        return
    config, seconds = resolved.config, time.perf_counter() - began
    names = f"{config.baseline.name} x {config.policy.name} on {config.benchmark.name}"
    yield ok(
        "smoke run",
        f"{names}, made small: {len(record['task_to_set'])} tasks learned and evaluated on "
        f"{record['environment']['device']} in {seconds:.1f} s",
    )
