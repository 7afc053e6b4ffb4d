"""Training steps: images per second, share of the device's own rate, memory, beside bare timm."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gpu.components import random_backbone
from gpu.lab import Lab, Measurement, peak_memory, timed
from gpu.machine import rate_of
from gpu.stage import PRECISIONS, Resident, Stage, staged
from lw2g.learning.flops import count_flops
from lw2g.runtime.engine import open_engine

BARE = "bare timm"
WARM = 4


def batch_sizes(lab: Lab, mode: str) -> tuple[int, ...]:
    """Return the batch sizes of a mode: 24 is published, and bound by launches; compiling takes long."""
    if lab.toy:
        return (4, 8)
    return (24, 128) if mode == "compile" else (24, 128, 64, 256, 512)


def steps_of(lab: Lab, mode: str) -> int:
    """Return how many steps are timed; without tensor cores they are long, and alike."""
    return 2 if lab.toy else 6 if mode == "fp32" else 12


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield models by mode, bare timm first in each, then all baselines, all batch sizes of each together."""
    for mode in lab.given.modes.split(","):
        for model in lab.models:
            yield f"{model} / {mode} / {BARE}", partial(of_bare_timm, lab, model, mode)
            for baseline in lab.baselines:
                yield f"{model} / {mode} / {baseline}", partial(of_baseline, lab, model, mode, baseline)


def open_stage(lab: Lab, model: str, mode: str, baseline: str, **noise: int) -> Stage:
    """Bring a baseline to the last of two tasks on noise."""
    names = {"benchmark": "noise", "backbone": "random"}
    options = {f"benchmark.{key}": value for key, value in noise.items()}
    options |= {"backbone.model": model, "run.precision": PRECISIONS[mode]}
    return staged(lab, lab.resolve(baseline, "one", options, **names))


def of_baseline(
    lab: Lab, model: str, mode: str, baseline: str, sizes: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Time a baseline's steps at some batch sizes, those of the mode by default."""
    stage = open_stage(lab, model, mode, baseline)
    session, classes = stage.session, stage.context.task.classes
    if mode == "compile":
        session.parts.backbone.compile_blocks(batch_sizes(lab, mode))
    few = Resident(session, classes, 2, 2)
    flops = count_flops(session.parts, stage.context, stage.phase, few)["training_per_image"]  # type: ignore[arg-type]
    counters.clear()

    def step(batch: int) -> float:
        images = Resident(session, classes, batch * (WARM + steps_of(lab, mode) + 1), batch)
        return float(stage.seconds(images, batch, WARM).median())

    found = _by_batch(lab, mode, flops, step, sizes)
    if mode == "compile":
        found["graphs"] = counters["stats"]["unique_graphs"]
    return found


def of_bare_timm(lab: Lab, model: str, mode: str, sizes: tuple[int, ...] = ()) -> dict[str, Any]:
    """Time timm's own forward and backward to the tokens."""
    engine = open_engine(str(lab.device), PRECISIONS[mode])
    backbone = copy.deepcopy(random_backbone(model))
    if mode != "fp32":
        backbone.to_bf16()
    vit: Any = backbone.to(engine.device).model
    if mode == "compile":
        for block in vit.blocks:  # as torch does it, without lw2g
            block.compile(dynamic=False)
    nothing = nn.Parameter(torch.zeros((), device=engine.device))
    size = backbone.image_size

    def work(images: torch.Tensor) -> None:
        with engine.autocast():
            loss = vit.forward_features(images + nothing)[:, 0].sum()
        torch.autograd.grad(loss, nothing)

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work(torch.randn(2, 3, size, size, device=engine.device))

    def step(batch: int) -> float:
        images = torch.randn(batch, 3, size, size, device=engine.device)
        return timed(lambda: work(images), engine.device, warm=WARM, rounds=steps_of(lab, mode))

    return _by_batch(lab, mode, counter.get_total_flops() / 2, step, sizes)


def _by_batch(
    lab: Lab, mode: str, flops: float | None, step: Callable[[int], float], sizes: tuple[int, ...]
) -> dict[str, Any]:
    """Return the figures of each batch size; one that does not fit in memory says so."""
    found: dict[str, Any] = {"gflops_per_image": None if flops is None else flops / 1e9, "batches": {}}
    rate = rate_of(lab, mode)
    for batch in sizes or batch_sizes(lab, mode):
        peak_memory(lab.device)
        try:
            seconds = step(batch)
        except torch.cuda.OutOfMemoryError:
            found["batches"][str(batch)] = {"error": "out of memory"}
            break
        found["batches"][str(batch)] = {
            "ms": 1e3 * seconds,
            "images_per_second": batch / seconds,
            "share_of_rate": None if rate is None or flops is None else flops * batch / seconds / rate,
            "peak_mib": peak_memory(lab.device),
        }
    return found
