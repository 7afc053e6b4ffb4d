"""What a task costs as tasks go by: CPU seconds and bytes of the last tasks against those around the 20th.

Processor time of the whole process, the thread that writes included, from one evaluation to the next; the
median of eleven tasks. Bytes are those of a task's checkpoint; its predictions stand beside them, a row for
every test image of every seen task, which grow by what they are. Tasks are tiny, so that nothing hides behind
training: 4 training and 2 test images of 16 pixels, one epoch of whatever has epochs.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import attrs
import torch

from lw2g.config.resolve import resolve
from lw2g.interfaces.tracker import Event, PhaseStarted, TaskEvaluated
from lw2g.lifecycle.runner import start
from lw2g_testing.tiny import tiny_catalogue

METHODS = ("s-prompt-plus-plus", "simple-cil", "dual-prompt", "inflora", "coda-prompt")
AROUND, EARLY = 5, 20


class Meter:
    """Notes the processor time of every phase of every task, and may profile some tasks."""

    def __init__(self, profiled: range) -> None:
        self.seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._profiled, self._profile = profiled, cProfile.Profile()
        self._task, self._phase, self._since = 0, "opening", time.process_time()

    def on_event(self, event: Event) -> None:
        if isinstance(event, PhaseStarted):
            self._turn(event.task, event.phase)
        elif isinstance(event, TaskEvaluated):
            self._turn(event.task, "writing down")

    def _turn(self, task: int, phase: str) -> None:
        now = time.process_time()
        self.seconds[self._task][self._phase] += now - self._since
        self._task, self._phase, self._since = task, phase, now
        if task in self._profiled and phase != "writing down":
            self._profile.enable()
        elif task not in self._profiled:
            self._profile.disable()

    def close(self) -> None:
        self._profile.disable()

    def report(self) -> None:
        pstats.Stats(self._profile).sort_stats("tottime").print_stats(25)


def measured(method: str, arguments: argparse.Namespace, folder: Path) -> Meter:
    catalogue = tiny_catalogue()
    fields = attrs.fields_dict(catalogue.get("baseline", method).config)
    overrides: dict[str, Any] = {
        "benchmark.tasks": arguments.tasks,
        "benchmark.increment": 2,
        "benchmark.train": 4,
        "benchmark.test": 2,
        "run.device": "cpu",
        **{f"baseline.{name}": 1 for name in fields if name.endswith("epochs")},
    }
    names = {"baseline": method, "policy": "always", "benchmark": "tiny", "backbone": "tiny"}
    profiled = (
        range(arguments.profile - AROUND, arguments.profile + AROUND) if arguments.profile else range(0)
    )
    meter = Meter(profiled)
    start(resolve(catalogue, overrides=overrides, **names), catalogue, folder, [meter])
    return meter


def told(what: str, early: float, last: float, unit: str) -> None:
    print(f"{what:24s} {early:9.1f} {last:9.1f} {unit:6s} {last / early:6.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--profile", type=int, default=0, help="profile the tasks around this one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    late = arguments.tasks - AROUND - 1
    print(f"{'':24s} {f'task {EARLY}':>9s} {f'task {arguments.tasks}':>9s}")
    for method in arguments.methods:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            meter = measured(method, arguments, run)
            sizes = {
                what: [path.stat().st_size for path in sorted((run / what).glob("task-???.safetensors"))]
                for what in ("checkpoints", "predictions")
            }
        whole = {task: sum(parts.values()) for task, parts in meter.seconds.items()}
        learning = {task: whole[task] - parts["evaluation"] for task, parts in meter.seconds.items()}
        ranges = [range(at - AROUND, at + AROUND + 1) for at in (EARLY, late)]
        for name, seconds in ((method, whole), ("  without evaluation", learning)):
            early, last = (statistics.median(seconds[task] for task in tasks) for tasks in ranges)
            told(name, 1000 * early, 1000 * last, "ms")
        for part in meter.seconds[EARLY]:
            told(
                f"  {part}",
                *(1000 * statistics.median(meter.seconds[t][part] for t in tasks) for tasks in ranges),
                "ms",
            )
        for what, found in sizes.items():
            told(f"  {what}", *(statistics.median(found[t] for t in tasks) for tasks in ranges), "bytes")
        if arguments.profile:
            meter.report()
