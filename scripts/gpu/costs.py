"""What each part of a task costs as sets come: evidence, training, spaces, evaluation, saving; and memory."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from gpu.lab import Lab, Measurement, Skipped, peak_memory
from gpu.stage import run_through
from lw2g.interfaces.growth import Decision, Evidence, Grow
from lw2g.interfaces.tracker import Event, PhaseStarted, TaskDecided, TaskEvaluated
from lw2g.learning.session import open_session

LIMIT = 90.0
"""Seconds after which a run has shown enough."""

PARTS = ("evidence", "training", "spaces", "evaluation", "between")


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield one run per model and baseline that grows, with evidence before every task and a set for each."""
    for baseline in lab.baselines:
        for model in lab.models:
            if lab.catalogue.get("baseline", baseline).growth == "sets":
                yield f"{model} / {baseline}", partial(_costs, lab, model, baseline)


class _Grows:
    """The policy of these runs: evidence is collected, and every task gets a set."""

    margin = 0.0
    burden = None

    def decide(self, evidence: Evidence, rng: np.random.Generator) -> Decision:
        return Grow()


class _EnoughError(Exception):
    """The run is cut short."""


class _Clock:
    """Notes seconds and peak memory of every part of every task, until the time is up."""

    def __init__(self, device: torch.device, until: float) -> None:
        self._device, self._until = device, until
        self.tasks = 0
        self._part, self._task, self._since = "between", 0, time.perf_counter()
        self.seconds: dict[str, dict[int, float]] = {part: defaultdict(float) for part in PARTS}
        self.peak: dict[str, float] = {}

    def on_event(self, event: Event) -> None:
        match event:
            case PhaseStarted():
                known = event.phase in PARTS
                self._turn(event.phase if known else "training", event.task)
            case TaskDecided() | TaskEvaluated():
                self._turn("between", event.task)
                if isinstance(event, TaskEvaluated):
                    self.tasks = event.task + 1
                    if time.monotonic() > self._until:
                        raise _EnoughError

    def close(self) -> None:
        self._turn("between", self._task)

    def _turn(self, part: str, task: int) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[self._part][self._task] += now - self._since
        if (peak := peak_memory(self._device)) is not None:
            self.peak[self._part] = max(peak, self.peak.get(self._part, 0.0))
        self._part, self._task, self._since = part, task, now


def _costs(lab: Lab, model: str, baseline: str) -> dict[str, Any]:
    tasks, images, sample = (3, 16, 16) if lab.toy else (21, 256, 256)
    options = {"benchmark.tasks": tasks, "benchmark.train": images, "benchmark.last": images}
    options |= {"benchmark.test": images, "growth.images": sample, "backbone.model": model}
    options |= {"run.precision": "bf16-mixed"}
    resolved = lab.resolve(baseline, "min", options, benchmark="noise", backbone="random")
    session = open_session(resolved.config, lab.catalogue)
    growth = attrs.evolve(session.parts.growth, policy=_Grows())
    session = attrs.evolve(session, parts=attrs.evolve(session.parts, growth=growth))
    if not session.parts.growth.collects_evidence:
        raise Skipped("measures no evidence")
    clock = _Clock(lab.device, time.monotonic() + min(LIMIT, lab.seconds_left()))
    with tempfile.TemporaryDirectory() as folder, suppress(_EnoughError):
        run_through(session, resolved, [clock], Path(folder))
    last = clock.tasks - 1
    if last < 1:
        raise Skipped(f"learned {clock.tasks} tasks in the time")
    asked = sorted({1, min(5, last), last})  # the first task pays for what is made once
    found: dict[str, Any] = {
        "images_per_task": images,
        "evidence_sample": sample,
        "seconds": {part: {str(task): clock.seconds[part][task] for task in asked} for part in PARTS},
        "peak_mib": clock.peak,
    }
    one, many = (clock.seconds["evidence"][task] for task in (asked[0], asked[-1]))
    return {**found, "evidence_ratio": many / one if one else None}
