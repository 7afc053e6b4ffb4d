"""Incremental against full evaluation: seconds summed over a run, as the number of tasks grows."""

from __future__ import annotations

import time

import torch

from lw2g.config.resolve import resolve
from lw2g.learning.session import open_session
from lw2g.runtime.progress import Reporter
from lw2g_testing.tiny import tiny_catalogue


def seconds(tasks: int, full: bool) -> float:
    catalogue = tiny_catalogue()
    overrides = {"benchmark.tasks": tasks, "benchmark.test": 40, "benchmark.train": 2, "run.device": "cpu"}
    resolved = resolve(
        catalogue,
        baseline="hide-prompt",
        retrieval="oracle",
        policy="always",
        benchmark="tiny",
        backbone="tiny",
        overrides=overrides,
    )
    session = open_session(resolved.config, catalogue)
    quiet, total = Reporter([], [2] * tasks), 0.0
    for index in range(tasks):
        session.parts.begin_task(index)
        session.parts.pool.grow(session.parts.new_set(None))
        if full:
            session.data.evaluator.forget()
        began = time.perf_counter()
        session.evaluate(index, quiet)
        total += time.perf_counter() - began
    return total


if __name__ == "__main__":
    torch.set_num_threads(1)
    seconds(2, full=True)
    print("tasks  incremental s  full s  full / incremental")
    for count in (5, 10, 20):
        quick, slow = seconds(count, full=False), seconds(count, full=True)
        print(f"{count:5d}  {quick:13.2f}  {slow:6.2f}  {slow / quick:18.2f}")
