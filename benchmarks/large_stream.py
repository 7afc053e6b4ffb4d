"""1,000 classes in 200 tasks on glyphs and micro: what grows with tasks and sets, CPU time and its ratios.

    python benchmarks/large_stream.py asked            # retrieval and answers with 20 and 200 sets
    python benchmarks/large_stream.py run FOLDER       # s-prompt-plus-plus x min with growth.screen 5
    python benchmarks/large_stream.py read FOLDER      # its record, events, show, runs, report and page

Tasks are small (5 classes, 4 training images and a test image each, one epoch, 16 images in the evidence
sample), so that nothing hides behind training; commands run in processes of their own, imports included.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flatness import AROUND, EARLY, Meter

from lw2g.config.resolve import Resolved, resolve
from lw2g.disk.sealed import unseal_json
from lw2g.interfaces.calibration import best_of, best_of_task
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.tracker import Event, TaskEvaluated
from lw2g.learning.session import Session, open_session
from lw2g.lifecycle.runner import start
from lw2g.model.trained import TrainedModel
from lw2g.registry.catalogue import load_catalogue

TASKS, CLASSES = 200, 5
FEW = 20
WIDE = 44


class Memory:
    """Notes the largest resident memory of the process after each task, MiB."""

    def __init__(self) -> None:
        self.after: list[float] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, TaskEvaluated):
            self.after.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)

    def close(self) -> None:
        pass


def resolved(**names: str) -> Resolved:
    chosen = {
        "benchmark.classes_per_family": TASKS * CLASSES // 5,
        "benchmark.increment": CLASSES,
        "benchmark.train_per_class": 4,
        "benchmark.test_per_class": 1,
        "baseline.epochs": 1,
        "growth.images": 16,
        "growth.screen": 5,
        "run.device": "cpu",
    }
    names |= {"baseline": "s-prompt-plus-plus", "policy": "min", "benchmark": "glyphs", "backbone": "micro"}
    return resolve(load_catalogue(), overrides=chosen, **names)


def milliseconds(work: Callable[[], object], repeat: int = 7) -> float:
    """Return the median CPU milliseconds of a call, after one that does not count."""
    work()
    found = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        found.append(1000 * (time.process_time() - began))
    return statistics.median(found)


def told(what: str, few: float, many: float, unit: str = "ms") -> None:
    print(f"{what:{WIDE}s} {few:10.3f} {many:10.3f} {unit:4s} {many / few:7.2f}", flush=True)


@torch.no_grad()
def retrievals(session: Session) -> None:
    """Ask strategies with random state for the task of a batch, 20 and 200 tasks being seen."""
    context = session.parts.baseline.context
    query = torch.randn(32, context.backbone.dim)
    owner = torch.arange(TASKS).repeat_interleave(CLASSES)
    for name in ("key-cosine", "centroids", "classifier", "mahalanobis"):
        retrieve = strategy_of(name, context).retrieve
        compared(
            f"retrieval of 32 images, {name}", retrieve, lambda n: (query, range(n), owner[: n * CLASSES])
        )
    scores = torch.randn(32, TASKS * CLASSES)

    def classes(tasks: int) -> tuple[Any, ...]:
        return scores[:, : tasks * CLASSES], owner[: tasks * CLASSES], range(tasks)

    compared("  best class of each task", best_of_task, classes)
    compared("  best task of each set", best_of, lambda n: (scores[:, :n], torch.arange(n), n))


def compared(what: str, work: Callable[..., object], given: Callable[[int], tuple[Any, ...]]) -> None:
    few, many = given(FEW), given(TASKS)
    told(what, milliseconds(lambda: work(*few)), milliseconds(lambda: work(*many)))


def strategy_of(name: str, context: BuildContext) -> Any:
    component = load_catalogue().get("retrieval", name)
    made = component.build(component.config(), context)
    if name == "centroids":
        made.centroid.normal_()
        made.count.fill_(1)
    if name == "mahalanobis":
        labels = torch.arange(TASKS * CLASSES).repeat(8)
        made.classifier.update(torch.randn(len(labels), context.backbone.dim), labels)
    return made.eval()


@torch.no_grad()
def answers(session: Session) -> None:
    """Ask a model of 20 and of 200 sets for answers; its test images go to as many sets as they may."""
    images = torch.randn(32, 3, session.parts.backbone.image_size, session.parts.backbone.image_size)
    found: dict[int, list[float]] = {1: [], 32: []}
    for tasks in (FEW, TASKS):
        while len(session.parts.pool) < tasks:
            session.parts.begin_task(len(session.parts.pool))
            session.parts.pool.grow(session.parts.new_set(None))
        model = TrainedModel(session.parts, tasks)
        session.parts.retrieval.centroid.normal_()
        session.parts.retrieval.count.fill_(1)
        for batch, figures in found.items():
            model.batch_size = batch
            figures.append(milliseconds(partial(model.answer, images[:batch])))
        print(f"  {tasks} sets: 32 images go to {len(model.answer(images).sets.unique())}", flush=True)
    for batch, figures in found.items():
        told(f"an answer for {batch} images, s-prompt-plus-plus", *figures)


def run(folder: Path) -> None:
    """Run the stream and tell what a task costs, early and late."""
    meter, memory = Meter(range(0)), Memory()
    start(resolved(), load_catalogue(), folder, [meter, memory])
    ranges = [range(at - AROUND, at + AROUND + 1) for at in (EARLY, TASKS - AROUND - 1)]
    for part in [*meter.seconds[EARLY], "whole"]:
        of = {
            task: sum(one.values()) if part == "whole" else one[part] for task, one in meter.seconds.items()
        }
        told(part, *(1000 * statistics.median(of[task] for task in tasks) for tasks in ranges))
    told("largest memory", memory.after[EARLY], memory.after[-1], "MiB")
    sizes = [path.stat().st_size for path in sorted((folder / "checkpoints").glob("task-???.safetensors"))]
    told("checkpoint", *(statistics.median(sizes[t] for t in tasks) / 1e3 for tasks in ranges), "kB")


def read(folder: Path) -> None:
    """Read a run's files, and tell what commands take."""
    record, events = folder / "record.json", folder / "events.jsonl"
    whole = unseal_json(record)
    decisions = whole["decisions"]
    print(f"{len(decisions)} tasks, {len(set(whole['task_to_set']))} sets")

    def lines() -> list[Any]:
        return [json.loads(line) for line in events.read_text().splitlines()]

    seconds("record.json", lambda: unseal_json(record), record.stat().st_size)
    seconds("events.jsonl", lines, events.stat().st_size)
    # what no screen would leave: every set measured before every task
    one = next(each for entry in decisions for each in entry["candidates"] if each["measures"])
    text = json.dumps([[one] * task for task in range(TASKS)])
    seconds("  decisions with 200 measured sets", lambda: json.loads(text), len(text))
    page = folder / "page.html"
    for command in (
        ["show", folder],
        ["runs", folder],
        ["report", folder],
        ["report", folder, "--html", page],
    ):
        before = used()
        subprocess.run([sys.executable, "-m", "lw2g", *map(str, command)], check=True, capture_output=True)
        name = f"lw2g {command[0]}{' --html' if page in command else ''}"
        print(f"{name:{WIDE}s} {used() - before:10.3f} s", flush=True)
    print(f"{'  its size':{WIDE}s} {page.stat().st_size / 1e6:10.3f} MB")
    page.unlink()


def seconds(what: str, work: Callable[[], object], size: int) -> None:
    print(f"{what:{WIDE}s} {milliseconds(work, 3) / 1e3:10.3f} s of {size / 1e6:.2f} MB", flush=True)


def used() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("asked", "run", "read"))
    parser.add_argument("folder", type=Path, nargs="?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "asked":
        print(f"{'':{WIDE}s} {f'{FEW}':>10s} {f'{TASKS}':>10s}")
        opened = open_session(resolved(retrieval="centroids").config, load_catalogue())
        retrievals(opened)
        answers(opened)
    elif arguments.folder is None:
        parser.error("name the folder of the run")
    else:
        {"run": run, "read": read}[arguments.what](arguments.folder)
