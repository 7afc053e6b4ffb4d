"""Training steps on a CPU through lw2g's own loop beside bare timm's, in float32 and bf16.

Bare timm is its forward and its backward to the tokens in the same precision (bf16: autocast,
fused attention).
Un-prompted queries are known, as in any epoch but the first; *and queries* computes them in the step,
which is then compared with timm's step and forward. ``every-task`` is :data:`EVERY_TASK`, which has no
queries. ``LW2G_KEEP_MEMORY=0`` shows what the allocator does.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from gpu.components import LabPlugin, random_backbone
from gpu.lab import Lab
from gpu.stage import Resident, staged

from lw2g.runtime.engine import BF16, FP32, open_engine
from lw2g_testing.tiny import tiny_catalogue

Work = Callable[[], list[float]]
EVERY_TASK = {
    "baseline": "slca-plus-plus",
    "baseline.head": "lda",
    "baseline.head_carry": "gated",
    "routing.expert": "frozen",
}
"""A method that trains on every task, with what it is called on the command line."""
FORWARD, QUERIES = "its forward", " and queries"


class Known(Resident):
    """Images whose un-prompted queries are computed once."""

    def _query(self, images: Tensor) -> Tensor:
        if self._found is None:
            self._found = super()._query(images)
        return self._found

    _found: Tensor | None = None


def ours(
    lab: Any,
    model: str,
    size: int,
    baseline: str,
    precision: str,
    batch: int,
    steps: int,
    images_of: type[Resident] = Known,
) -> Work:
    """Return the seconds of steps of the host phase of a second task, the first of each epoch left out."""
    options = {"backbone.model": model, "backbone.image_size": size, "run.precision": precision}
    if baseline == "every-task":
        options |= EVERY_TASK
        baseline = options.pop("baseline")
    names = {"benchmark": "noise", "backbone": "random"}
    stage = staged(lab, Lab.resolve(lab, baseline, "one", options, **names))
    images = images_of(stage.session, stage.context.task.classes, batch * (steps + 1), batch)

    def work() -> list[float]:
        marks: list[float] = []
        stage.train(images, batch, lambda *_: marks.append(time.thread_time()))
        return [after - before for before, after in itertools.pairwise(marks)]

    return work


def bare(model: str, size: int, precision: str, batch: int, steps: int, *, grad: bool = True) -> Work:
    """Return the seconds of timm's own forward and backward to the tokens; of the forward alone if not."""
    backbone = copy.deepcopy(random_backbone(model, size))
    vit: Any = (backbone.to_bf16() if precision == BF16 else backbone).model
    nothing = nn.Parameter(torch.zeros(()))
    images = torch.randn(batch, 3, size, size)

    def work() -> list[float]:
        taken = []
        for _ in range(steps):
            began = time.thread_time()
            with (
                torch.set_grad_enabled(grad),
                torch.autocast("cpu", torch.bfloat16, enabled=precision == BF16),
            ):
                loss = vit.forward_features(images + nothing)[:, 0].sum()
            if grad:
                torch.autograd.grad(loss, nothing)
            taken.append(time.thread_time() - began)
        return taken

    return work


def main() -> None:
    """Print a line per precision and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit_tiny_patch16_224", help="timm architecture, or toy")
    parser.add_argument("--size", type=int, default=96, help="side of an image in pixels")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3, help="how often all are measured in turn")
    parser.add_argument("--steps", type=int, default=3, help="steps of each in a round")
    parser.add_argument("--baselines", default="dual-prompt,hide-prompt,every-task")
    given = parser.parse_args()
    torch.set_num_threads(1)  # so that the seconds of the thread are those of the step
    keeps = open_engine("cpu", FP32).keeps_memory
    lab = SimpleNamespace(catalogue=tiny_catalogue(LabPlugin()), device=torch.device("cpu"))
    works: dict[tuple[str, str], Work] = {}
    for precision in (FP32, BF16):
        sizes = (given.batch, given.steps)
        works["bare timm", precision] = bare(given.model, given.size, precision, *sizes)
        works[FORWARD, precision] = bare(given.model, given.size, precision, *sizes, grad=False)
        for name in given.baselines.split(","):
            for label, images_of in ((name, Known), (f"{name}{QUERIES}", Resident)):
                works[label, precision] = ours(
                    lab, given.model, given.size, name, precision, *sizes, images_of=images_of
                )
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in works}
    for turn in range(given.rounds + 1):
        for key, work in works.items():
            found = work()
            taken[key] += found if turn else []  # the first turn warms up
    ms = {key: 1e3 * statistics.median(values) / given.batch for key, values in taken.items()}
    print(f"{given.model} at {given.size} pixels, batch {given.batch}, memory kept: {keeps}")
    print(f"{'':24s} {'':10s} ms an image  x bare timm  x its float32's speed")
    for (name, precision), value in ms.items():
        whole = ms["bare timm", precision] + (ms[FORWARD, precision] if name.endswith(QUERIES) else 0.0)
        print(
            f"{name:24s} {precision:10s} {value:11.2f} {value / whole:12.2f} {ms[name, FP32] / value:23.2f}"
        )


if __name__ == "__main__":
    main()
