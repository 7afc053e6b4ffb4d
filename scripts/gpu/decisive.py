"""The checks that decide whether a night on this GPU is worth it: steps, waits, images a second, memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import torch
from torch import nn

from gpu.lab import Lab, Measurement, Skipped
from gpu.stage import Resident
from gpu.training import WARM, of_bare_timm, of_baseline, open_stage, steps_of
from lw2g.blocks.replay import _descend, linear_gradients
from lw2g.pixels.decoding import open_workers, workers_of

BATCHES = (24, 128)
"""The published batch, which is bound by launches, and one that fills a GPU."""
REPLAYED = (24, 100)
"""Samples of a step of replay, and classes of its head."""


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield the checks for the largest model and the first baselines."""
    model = lab.models[0]
    for baseline in lab.baselines[:2]:
        yield f"{model} / {baseline} / steps", partial(_steps, lab, model, baseline)
        yield f"{model} / {baseline} / waits", partial(_waits, lab, model, baseline)
    yield f"{model} / images", partial(_images, lab, model, lab.baselines[0])
    yield f"{model} / replay", partial(_replay, lab, model)


def _batches(lab: Lab) -> tuple[int, ...]:
    return (4, 8) if lab.toy else BATCHES


def _steps(lab: Lab, model: str, baseline: str) -> dict[str, Any]:
    """Time a step beside bare timm's forward and backward, and the memory of both."""
    sizes = _batches(lab)
    bare = of_bare_timm(lab, model, "bf16", sizes)["batches"]
    ours = of_baseline(lab, model, "bf16", baseline, sizes)["batches"]
    found: dict[str, Any] = {}
    for size in map(str, sizes):
        if "ms" not in ours.get(size, {}) or "ms" not in bare.get(size, {}):
            raise Skipped(f"batch {size} does not fit in memory")
        found[f"ms at {size}"] = ours[size]["ms"]
        found[f"times bare timm at {size}"] = ours[size]["ms"] / bare[size]["ms"]
        found[f"images/s at {size}"] = ours[size]["images_per_second"]
        found[f"peak MiB at {size}"] = ours[size]["peak_mib"]
    return found


def _waits(lab: Lab, model: str, baseline: str) -> dict[str, Any]:
    """Count how often a step waits for the device, by CUDA's own warnings."""
    if not lab.on_cuda:
        raise Skipped("a CPU waits for nothing")
    stage = open_stage(lab, model, "bf16", baseline)
    batch = _batches(lab)[0]
    count = batch * (WARM + steps_of(lab, "bf16"))
    images = Resident(stage.session, stage.context.task.classes, count, batch)
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


def _images(lab: Lab, model: str, baseline: str) -> dict[str, Any]:
    """Time whole steps with images made as `exact` makes them, by one process and by workers, and `fast`."""
    batch = _batches(lab)[-1]
    count = batch * (WARM + steps_of(lab, "bf16") + 1)
    stage = open_stage(lab, model, "bf16", baseline, last=count)
    session, task = stage.session, stage.context.task
    alone = float(stage.seconds(Resident(session, task.classes, count, batch), batch, WARM).mean())
    found: dict[str, Any] = {"images/s without making images": batch / alone}
    workers = workers_of("auto", lab.device)
    ways = {
        "exact, one process": ("exact", 0),
        f"exact, {workers} workers": ("exact", workers),
        "fast": ("fast", 0),
    }
    for name, (speed, number) in ways.items():
        data = session.data
        run = attrs.evolve(session.parts.config.run, speed=speed)
        helpers = open_workers(number, data.stream, data.transforms, lab.device)
        opened = attrs.evolve(data, options=run, workers=helpers)
        images = opened.image_set([session.data.stream.tasks[task.index].train], train=True)
        if speed == "fast":  # the first epoch fills the device with images
            stage.seconds(images, batch, WARM)
        found[f"images/s, {name}"] = batch / float(stage.seconds(images, batch, WARM).mean())
    return found


def _replay(lab: Lab, model: str) -> dict[str, Any]:
    """Time a step of a head's replay on the device and on the CPU: few products, many launches."""
    width = open_stage(lab, model, "bf16", lab.baselines[0]).session.parts.backbone.dim
    rows, classes = REPLAYED
    found: dict[str, Any] = {}
    for device in dict.fromkeys((lab.device, torch.device("cpu"))):
        head = nn.Linear(width, classes, device=device)
        features = torch.randn(rows, width, device=device)
        labels = torch.arange(rows, device=device) % classes
        parameters, speeds = [head.weight, head.bias], list[torch.Tensor]()
        count = 10 if lab.toy else 300
        for warm in (True, False):
            if lab.on_cuda:
                torch.cuda.synchronize(lab.device)
            began = time.perf_counter()
            for _ in range(WARM if warm else count):
                slopes = linear_gradients(head, features, labels, classes)
                _descend(parameters, slopes, speeds, 1e-3, 0.0)
            if lab.on_cuda:
                torch.cuda.synchronize(lab.device)
        found[f"ms a step on {device.type}"] = 1e3 * (time.perf_counter() - began) / count
    return found
