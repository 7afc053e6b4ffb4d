"""What decides whether a night on this GPU is worth it: steps, waits, images a second, memory."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import timm
import torch
from torch import nn

from gpu.components import random_backbone
from gpu.lab import Lab, Measurement, Skipped, peak_memory, timed
from gpu.stage import Resident, Stage, staged
from lw2g.blocks.replay import _descend, linear_gradients
from lw2g.pixels.decoding import open_workers, workers_of
from lw2g.runtime.engine import BF16, FP32, open_engine

MODES = {"bf16": BF16, "compiled": BF16, "float32": FP32}
"""Precision by mode; ``compiled`` is bf16 with the blocks compiled, as by ``run.compile``."""
WARM = 4


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield the machine, the steps of each mode, and what surrounds a step."""
    yield "machine", partial(_machine, lab)
    methods = lab.given.baselines.split(",")
    for mode in lab.given.modes.split(","):
        yield f"bare timm / {mode}", partial(_of_bare_timm, lab, mode)
        for baseline in methods:
            yield f"{baseline} / {mode}", partial(_of_baseline, lab, mode, baseline)
    for baseline in methods:
        yield f"{baseline} / waits", partial(_waits, lab, baseline)
    yield "images", partial(_images, lab, methods[0])
    yield "replay", partial(_replay, lab, methods[0])


def _batches(lab: Lab) -> tuple[int, ...]:
    """Return the published batch, which is bound by launches, and one that fills a GPU."""
    return (4, 8) if lab.toy else (24, 128)


def _steps(lab: Lab) -> int:
    return 2 if lab.toy else 12


def _machine(lab: Lab) -> dict[str, Any]:
    """Return names and versions, the rates of large products, and the memory's bandwidth."""
    found: dict[str, Any] = {"device": lab.device_name, "cores": os.cpu_count()}
    found |= {"torch": torch.__version__, "timm": timm.__version__}
    side = 128 if lab.toy else 8192
    # without TF32, as lw2g's runs
    torch.set_float32_matmul_precision("highest")
    for dtype in (torch.bfloat16, torch.float32):
        one, other = (torch.randn(side, side, device=lab.device, dtype=dtype) for _ in range(2))
        seconds = timed(partial(torch.matmul, one, other), lab.device)
        found[f"TFLOP/s, {dtype}"] = 2 * side**3 / seconds / 1e12
    source = torch.zeros(2**20 if lab.toy else 2**30, device=lab.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    found["GB/s"] = 2 * len(source) / timed(lambda: target.copy_(source), lab.device) / 1e9
    return found


def _open(lab: Lab, mode: str, baseline: str, **noise: int) -> Stage:
    """Bring a baseline to the last of two tasks on noise."""
    options: dict[str, Any] = {f"benchmark.{key}": value for key, value in noise.items()}
    options |= {"backbone.model": lab.given.model, "run.precision": MODES[mode]}
    return staged(lab, lab.resolve(baseline, "one", options, benchmark="noise", backbone="random"))


def _of_baseline(lab: Lab, mode: str, baseline: str) -> dict[str, Any]:
    """Time a baseline's steps, un-prompted queries included."""
    stage = _open(lab, mode, baseline)
    if mode == "compiled":
        stage.session.parts.backbone.compile_blocks(_batches(lab))

    def step(batch: int) -> float:
        count = batch * (WARM + _steps(lab) + 1)
        images = Resident(stage.session, stage.context.task.classes, count, batch)
        return float(stage.seconds(images, batch, WARM).median())

    return _by_batch(lab, step, lab.results["steps"].get(f"bare timm / {mode}", {}))


def _of_bare_timm(lab: Lab, mode: str) -> dict[str, Any]:
    """Time timm's own forward and backward to the tokens."""
    engine = open_engine(str(lab.device), MODES[mode])
    backbone = copy.deepcopy(random_backbone(lab.given.model))
    if mode != "float32":
        backbone.to_bf16()
    vit: Any = backbone.to(engine.device).model
    if mode == "compiled":
        for block in vit.blocks:  # as torch does it, without lw2g
            block.compile(dynamic=False)
    nothing = nn.Parameter(torch.zeros((), device=engine.device))
    side = backbone.image_size

    def work(images: torch.Tensor) -> None:
        with engine.autocast():
            loss = vit.forward_features(images + nothing)[:, 0].sum()
        torch.autograd.grad(loss, nothing)

    def step(batch: int) -> float:
        images = torch.randn(batch, 3, side, side, device=engine.device)
        return timed(lambda: work(images), engine.device, warm=WARM, rounds=_steps(lab))

    return _by_batch(lab, step, {})


def _by_batch(lab: Lab, step: Callable[[int], float], bare: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of each batch, beside bare timm's where these are known."""
    found: dict[str, Any] = {}
    for batch in _batches(lab):
        peak_memory(lab.device)
        try:
            ms = 1e3 * step(batch)
        except torch.cuda.OutOfMemoryError:
            raise Skipped(f"batch {batch} does not fit in memory") from None
        found[f"ms at {batch}"] = ms
        if f"ms at {batch}" in bare:
            found[f"times bare timm at {batch}"] = ms / bare[f"ms at {batch}"]
        found[f"images/s at {batch}"] = 1e3 * batch / ms
        found[f"peak MiB at {batch}"] = peak_memory(lab.device)
    return found


def _waits(lab: Lab, baseline: str) -> dict[str, Any]:
    """Count how often a step waits for the device, by CUDA's own warnings."""
    if not lab.on_cuda:
        raise Skipped("a CPU waits for nothing")
    stage = _open(lab, "bf16", baseline)
    batch = _batches(lab)[0]
    images = Resident(stage.session, stage.context.task.classes, batch * (WARM + _steps(lab)), batch)
    steps: list[int] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            stage.train(images, batch, lambda *_: steps.append(len(caught)))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # between two steps in the middle: what begins and ends an epoch is not of a step
    return {"waits a step": (steps[-2] - steps[WARM]) / (len(steps) - 2 - WARM)}


def _images(lab: Lab, baseline: str) -> dict[str, Any]:
    """Time whole steps with images made as `exact` makes them, by one process and by workers, and `fast`."""
    batch = _batches(lab)[-1]
    count = batch * (WARM + _steps(lab) + 1)
    stage = _open(lab, "bf16", baseline, last=count)
    data, task = stage.session.data, stage.context.task
    alone = float(stage.seconds(Resident(stage.session, task.classes, count, batch), batch, WARM).mean())
    found: dict[str, Any] = {"images/s without making images": batch / alone}
    workers = workers_of("auto", lab.device)
    for speed, number in (("exact", 0), ("exact", workers), ("fast", 0)):
        run = attrs.evolve(stage.session.parts.config.run, speed=speed)
        helpers = open_workers(number, data.stream, data.transforms, lab.device)
        opened = attrs.evolve(data, options=run, workers=helpers)
        images = opened.image_set([data.stream.tasks[task.index].train], train=True)
        if speed == "fast":  # the first epoch fills the device with images
            stage.seconds(images, batch, WARM)
        seconds = float(stage.seconds(images, batch, WARM).mean())
        found[f"images/s, {speed}, {number} workers"] = batch / seconds
    return found


def _replay(lab: Lab, baseline: str) -> dict[str, Any]:
    """Time a step of a head's replay on the device and on the CPU: few products, many launches."""
    width = _open(lab, "bf16", baseline).session.parts.backbone.dim
    rows, classes = 24, 100
    found: dict[str, Any] = {}
    for device in dict.fromkeys((lab.device, torch.device("cpu"))):
        head = nn.Linear(width, classes, device=device)
        features = torch.randn(rows, width, device=device)
        labels = torch.arange(rows, device=device) % classes
        parameters, speeds = [head.weight, head.bias], list[torch.Tensor]()
        count = 10 if lab.toy else 300
        for steps in (WARM, count):
            began = time.perf_counter()
            for _ in range(steps):
                slopes = linear_gradients(head, features, labels, classes)
                _descend(parameters, slopes, speeds, 1e-3, 0.0)
            if lab.on_cuda:
                torch.cuda.synchronize(lab.device)
        found[f"ms a step on {device.type}"] = 1e3 * (time.perf_counter() - began) / count
    return found
