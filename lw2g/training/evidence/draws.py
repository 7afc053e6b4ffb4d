"""Draws of the new classes' head rows, over which evidence is averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lw2g.config.model import GrowthConfig
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import TaskInfo, derive_seed

__all__ = ["head_draws"]


@contextmanager
def head_draws(
    baseline: Baseline, task: TaskInfo, options: GrowthConfig, seed: int
) -> Iterator[list[Callable[[], None]]]:
    """Yield what puts each draw of a task's head in force; leave the parameters bit for bit as they were.

    The literal evidence takes the head that training begins with, and no other. The caller keeps torch's
    global generator.

    Args:
        baseline: Whose head is drawn.
        task: The task that has arrived.
        options: Which evidence, and how many draws.
        seed: The run's seed.
    """
    if options.evidence == "literal":
        yield [lambda: None]
        return
    before = {parameter: parameter.detach().clone() for parameter in baseline.parameters()}
    draws: list[dict[nn.Parameter, Tensor]] = []
    try:
        for number in range(options.draws):
            _put(before)
            torch.manual_seed(derive_seed(seed, "task", task.index, "head", number))
            baseline.draw_head(task)
            draws.append({one: one.detach().clone() for one, old in before.items() if not one.equal(old)})
        _put(before)
        # Only what a draw touches is written: the rest may be part of a forward's graph.
        yield [partial(_put, draw) for draw in draws]
    finally:
        _put(before)


@torch.no_grad()
def _put(values: Mapping[nn.Parameter, Tensor]) -> None:
    for parameter, value in values.items():
        parameter.copy_(value)
