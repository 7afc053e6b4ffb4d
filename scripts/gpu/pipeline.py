"""What decoding, augmenting and moving images add to a step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs

from gpu.lab import Lab, Measurement
from gpu.stage import Resident
from gpu.training import WARM, open_stage, steps_of
from lw2g.pixels.decoding import open_workers


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield one measurement per model, each with several numbers of decoding processes."""
    for model in lab.models:
        for baseline in lab.baselines[:2]:
            yield f"{model} / {baseline}", partial(_pipeline, lab, model, baseline)


def _pipeline(lab: Lab, model: str, baseline: str) -> dict[str, Any]:
    batch = 8 if lab.toy else 128
    count = batch * (WARM + steps_of(lab, "bf16") + 1)
    stage = open_stage(lab, model, "bf16", baseline, last=count)
    session, task = stage.session, stage.context.task
    alone = float(stage.seconds(Resident(session, task.classes, count, batch), batch, WARM).mean())
    found: dict[str, Any] = {"batch": batch, "step_ms": 1e3 * alone, "workers": {}}
    cores = os.cpu_count() or 1
    for workers in (0, 1) if lab.toy else (0, cores // 2, cores - 1):
        data = session.data
        helpers = open_workers(workers, data.stream, data.transforms, lab.device)
        opened = attrs.evolve(data, workers=helpers)
        images = opened.image_set([session.data.stream.tasks[task.index].train], train=True)
        whole = float(stage.seconds(images, batch, WARM).mean())
        found["workers"][str(workers)] = {
            "whole_step_ms": 1e3 * whole,
            "pipeline_share_of_step": max(0.0, whole / alone - 1),
            "images_per_second": batch / whole,
        }
    return found
