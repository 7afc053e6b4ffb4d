"""What a checkpoint costs a run that trains on, against an epoch of 1,000 images: ViT-Tiny at 96 pixels.

A run stands still while the state is taken ("taken": processor and wall time), and trains on while it is
written ("written": wall time until the file is safe on the disk). A checkpoint is as large as the method's
state, which depends on width and depth of the backbone; an epoch is taken to be as long as forward and
backward through bare timm on as many images, which is less than any method needs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import timm
import torch

from lw2g.config.resolve import resolve
from lw2g.disk.checkpoint import Checkpoint, CheckpointStore
from lw2g.disk.record import RunDirectory
from lw2g.learning.session import open_session
from lw2g.lifecycle.run import Run
from lw2g_testing.tiny import tiny_catalogue

METHODS = ("hide-prompt", "coda-prompt")


class Clocked(CheckpointStore):
    """Measures the checkpoints within tasks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.times: list[tuple[float, float, float]] = []

    def save_behind(self, checkpoint: Checkpoint, keep: int = 2) -> Path:
        self.wait()
        began, used = time.perf_counter(), time.thread_time()
        path = super().save_behind(checkpoint, keep)
        taken = (time.thread_time() - used, time.perf_counter() - began)
        self.wait()
        if checkpoint.task_done is None and checkpoint.tensors:
            self.times.append((*taken, time.perf_counter() - began))
        return path


def checkpoints(method: str, folder: Path) -> list[tuple[float, float, float]]:
    catalogue = tiny_catalogue()
    options: dict[str, Any] = {"backbone.dim": 192, "backbone.depth": 12, "run.device": "cpu"}
    options |= {"benchmark.tasks": 10, "benchmark.increment": 10, "benchmark.train": 2, "benchmark.test": 1}
    names = {"baseline": method, "policy": "always", "benchmark": "tiny", "backbone": "tiny"}
    resolved = resolve(catalogue, overrides=options | {"baseline.epochs": 2}, **names)
    session, store = open_session(resolved.config, catalogue), Clocked(folder / "checkpoints")
    run = Run(resolved, session, RunDirectory(folder), store)
    run.aim(3)
    run.go_on([])
    return store.times


def epoch(bf16: bool) -> float:
    model = timm.create_model("vit_tiny_patch16_224", img_size=96, num_classes=0)
    model.requires_grad_(False)
    images, times = torch.randn(32, 3, 96, 96, requires_grad=True), []
    for _ in range(6):
        began = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(images).float().square().mean()
        torch.autograd.backward(loss)
        times.append(time.process_time() - began)
    return 1000 / 32 * statistics.median(times)


if __name__ == "__main__":
    torch.set_num_threads(1)
    slow, quick = epoch(False), epoch(True)
    print(f"epoch of 1,000 images: {slow:.1f} s in float32, {quick:.1f} s in bf16")
    for method in METHODS:
        with tempfile.TemporaryDirectory() as folder:
            used, taken, written = (
                statistics.median(column) for column in zip(*checkpoints(method, Path(folder)), strict=True)
            )
        print(
            f"{method:12s} taken {1000 * used:.1f} ms CPU, {1000 * taken:.1f} ms wall = {taken / slow:.2%} "
            f"of an epoch in float32, {taken / quick:.2%} in bf16; written {1000 * written:.1f} ms"
        )
